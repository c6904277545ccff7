#!/usr/bin/env bash
# What only a GPU can show of the drafters, in one table: `python -m tests.gpu` says how, and takes these arguments.
#
# PYTHON_VLLM, PYTHON_SGLANG  how Python is started where each engine is installed, with this project and what its tests
#                             need; by default in the environments that are made for it.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! nvidia-smi >/dev/null 2>&1; then
    echo "test-gpu: no NVIDIA GPU answers here (nvidia-smi), so there is nothing to try."
    exit 0
fi
if [ -z "${PYTHON_VLLM:-}" ]; then
    VENV=.venvs/vllm scripts/make_env.sh --test
    PYTHON_VLLM=$PWD/.venvs/vllm/bin/python
fi
if [ -z "${PYTHON_SGLANG:-}" ]; then
    VENV=.venvs/sglang scripts/make_env.sh --test sglang
    PYTHON_SGLANG=$PWD/.venvs/sglang/bin/python
fi
$PYTHON_VLLM -m tests.gpu --vllm "$PYTHON_VLLM" --sglang "$PYTHON_SGLANG" "$@"
