# SGLang's official image with the drafters in it.  From the root of the repository:
#
#   docker build -f docker/sglang.Dockerfile -t mtpc-sglang .
#   docker run --gpus all --ipc=host -p 30000:30000 -v "$PWD/weights:/weights:ro" mtpc-sglang --enable-metrics \
#     --model-path /weights/byte-target --speculative-algorithm MTPC \
#     --speculative-draft-model-path /weights/byte-mtpc-hmm-n8
ARG IMAGE=lmsysorg/sglang
ARG VERSION=v0.5.23
FROM ${IMAGE}:${VERSION}

COPY pyproject.toml README.md LICENSE /opt/mtpc-plugins/
COPY plugins /opt/mtpc-plugins/plugins
RUN python3 -m pip install --no-cache-dir --break-system-packages '/opt/mtpc-plugins[cli]'

ENTRYPOINT ["python3", "-m", "sglang.launch_server", "--host", "0.0.0.0"]
