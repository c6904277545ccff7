#!/usr/bin/env bash
# Trains a FastMTP drafter for Qwen3-8B or Qwen2.5-7B-Instruct: the target writes the data, then one layer learns from it.
#
#   examples/train_qwen.sh [TARGET [FOLDER]]      a folder or a Hugging Face id, and where to write
#   examples/train_qwen.sh Qwen/Qwen2.5-7B-Instruct runs/qwen2.5-7b
#
# TOKENS  tokens of answers that the target writes (default 20 million)
# GPUS    GPUs that the layer is trained on (default 1)
# LENGTH  tokens of an answer, at most (default 2048: Qwen3 thinks first; 512 suffices for Qwen2.5)
#
# Estimates, not measured: one GPU with 48 GB or more; 3 to 6 hours on an H100; 20 GB of disk, the target included.
# docs/guides/train.md has the arithmetic.  Writing and training continue where they were ended.
set -euo pipefail

target=${1:-Qwen/Qwen3-8B}
out=${2:-runs/qwen3-8b}
length=${LENGTH:-2048}

# Conversations in the style of your users give a longer acceptance length: --questions FILE answers their prompts first.
mtpc distill --target "$target" --out "$out/data" --tokens "${TOKENS:-20000000}" --concurrency 128 --answer-tokens "$length"
torchrun --standalone --nproc-per-node "${GPUS:-1}" --no-python mtpc train fastmtp --target "$target" --data "$out/data" \
    --out "$out/fastmtp" --resume "$out/fastmtp.state" \
    --context $((length + 256)) --loss kl --optimizer muon --learning-rate 1e-3 --epochs 2 --batch 16 --micro-batch 2 \
    --head-rows 16384 --learn-from all --questions 0
mtpc vocab build "$out/fastmtp/vocabulary.json" --target "$target" --data "$out/data"
mtpc evaluate "$out/fastmtp" --target "$target" --data "$out/data" --out "$out/acceptance.json"
mtpc inspect "$out/fastmtp" # prints the commands that serve it
