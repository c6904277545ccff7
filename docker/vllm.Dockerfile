# vLLM's official image with the drafters in it.  From the root of the repository:
#
#   docker build -f docker/vllm.Dockerfile -t mtpc-vllm .
#   docker run --gpus all --ipc=host -p 8000:8000 -v "$PWD/weights:/weights:ro" mtpc-vllm --model /weights/byte-target \
#     --speculative-config '{"method": "eagle", "model": "/weights/byte-mtpc-hmm-n8", "num_speculative_tokens": 7,
#     "draft_sample_method": "probabilistic"}'
#
# vLLM's own image for CPUs: --build-arg IMAGE=public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo --build-arg VERSION=v0.32.0
ARG IMAGE=vllm/vllm-openai
ARG VERSION=v0.33.0
FROM ${IMAGE}:${VERSION}

COPY pyproject.toml README.md LICENSE /opt/mtpc-plugins/
COPY plugins /opt/mtpc-plugins/plugins
RUN python3 -m pip install --no-cache-dir --break-system-packages '/opt/mtpc-plugins[cli]'
