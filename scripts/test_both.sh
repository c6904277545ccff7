#!/usr/bin/env bash
# Lints, then runs the tests of both engines side by side, each in its own environment: vLLM's output as it comes, then
# SGLang's.  Most of the time goes into installing and into starting servers, which takes one core.
#
# PYTEST  more arguments of both
cd "$(dirname "$0")/.."

# Tests that need neither engine, which run beside SGLang's: those of vLLM alone take longer.
either=(tests/oracles tests/mtpc/{circuits,draft_length,methods,parallel,prompt_lookup,target_head,verify} tests/mtpc/lab/{evaluation,training})

log=$(mktemp)
set -m # in a process group of its own, so that an interrupt can be passed on
make --no-print-directory test-sglang PYTEST="${PYTEST:-} ${either[*]}" >"$log" 2>&1 &
sglang=$!
set +m
trap 'kill -INT -- -$sglang 2>/dev/null; wait; rm -f "$log"' EXIT
trap 'exit 130' INT TERM

make --no-print-directory lint || exit
make --no-print-directory test-vllm PYTEST="${PYTEST:-} ${either[*]/#/--ignore=}"
vllm=$?
tail --lines=+1 --follow --pid=$sglang "$log"
wait $sglang && exit $vllm
