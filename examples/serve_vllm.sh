#!/usr/bin/env bash
# Serves the byte-level target with its MTPC drafter in vLLM, on port 8000.
#
#   examples/serve_vllm.sh [ARGUMENT...]      arguments of `vllm serve`, as in --port 8001
#
# `mtpc inspect DRAFTER` prints this command for another drafter checkpoint.
set -euo pipefail
cd "$(dirname "$0")/.."

vllm serve weights/byte-target --speculative-config '{"method": "eagle", "model": "weights/byte-mtpc-hmm-n8",
  "num_speculative_tokens": 7, "draft_sample_method": "probabilistic"}' "$@"
