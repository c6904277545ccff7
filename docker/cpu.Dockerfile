# Either engine on a CPU, as the tests run it: in the environment that scripts/make_env.sh makes.
#
#   docker build -f docker/cpu.Dockerfile --build-arg ENGINE=vllm -t mtpc-cpu .      (or ENGINE=sglang)
#   docker run --rm --network host mtpc-cpu make serve      (or make serve-sglang; they listen on 127.0.0.1 only)
#
# Where pip does not know PyTorch's index of CPU wheels: --build-arg PIP_EXTRA_INDEX_URL=...
FROM python:3.11-slim-bookworm

ARG ENGINE=vllm
ARG PIP_EXTRA_INDEX_URL
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ make libnuma1 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /mtpc-plugins
COPY pyproject.toml README.md LICENSE Makefile ./
COPY plugins plugins
COPY requirements requirements
COPY scripts scripts
COPY serve_configs serve_configs
COPY weights weights
COPY tests/support/sglang_cpu tests/support/sglang_cpu
RUN scripts/make_env.sh ${ENGINE}

CMD ["make", "help"]
