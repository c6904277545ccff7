#!/usr/bin/env bash
# Trains a FastMTP drafter for Llama-3.1-8B-Instruct: the target writes the data, then one layer learns from it.
#
#   examples/train_llama.sh [TARGET [FOLDER]]     a folder or a Hugging Face id (gated: set HF_TOKEN), and where to write
#
# TOKENS  tokens of answers that the target writes (default 20 million)
# GPUS    GPUs that the layer is trained on (default 1)
#
# Estimates, not measured: one GPU with 48 GB or more; 3 to 6 hours on an H100; 20 GB of disk, the target included.
# docs/guides/train.md has the arithmetic.  Writing and training continue where they were ended.
set -euo pipefail

target=${1:-meta-llama/Llama-3.1-8B-Instruct}
out=${2:-runs/llama-3.1-8b}

# Conversations in the style of your users give a longer acceptance length: --questions FILE answers their prompts first.
mtpc distill --target "$target" --out "$out/data" --tokens "${TOKENS:-20000000}" --concurrency 128
torchrun --standalone --nproc-per-node "${GPUS:-1}" --no-python mtpc train fastmtp --target "$target" --data "$out/data" \
    --out "$out/fastmtp" --resume "$out/fastmtp.state" \
    --loss kl --optimizer muon --learning-rate 1e-3 --epochs 2 --batch 16 --micro-batch 4 --head-rows 16384 --learn-from all --questions 0
mtpc vocab build "$out/fastmtp/vocabulary.json" --target "$target" --data "$out/data"
mtpc evaluate "$out/fastmtp" --target "$target" --data "$out/data" --out "$out/acceptance.json"
mtpc inspect "$out/fastmtp" # prints the commands that serve it
