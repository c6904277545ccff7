#!/usr/bin/env bash
# Serves the byte-level target with its MTPC drafter in SGLang, on port 8000.
#
#   examples/serve_sglang.sh [ARGUMENT...]    arguments of `sglang.launch_server`, as in --enable-metrics
#
# `mtpc inspect DRAFTER` prints this command for another drafter checkpoint.
set -euo pipefail
cd "$(dirname "$0")/.."

python -m sglang.launch_server --model-path weights/byte-target --port 8000 \
  --speculative-algorithm MTPC --speculative-draft-model-path weights/byte-mtpc-hmm-n8 "$@"
