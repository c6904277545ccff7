#!/usr/bin/env bash
# Lints and runs the tests of both engines, each in its own environment: those that start an engine and the others side by
# side, as an engine that starts uses one core and often none.  Prints each part's output when those before it have ended.
#
# PYTEST  more arguments of all
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # else each of the many processes would compile this project's modules anew

# Tests that need neither engine, which run beside SGLang's: those of vLLM alone take longer.
either=(tests/oracles tests/mtpc/{circuits,draft_length,methods,parallel,prompt_lookup,target_head,verify} tests/mtpc/lab/{evaluation,training})

logs=$(mktemp -d)
parts=() groups=()
set -m # each part in a process group of its own, so that an interrupt can be passed on
trap 'for group in "${groups[@]}"; do kill -INT -- "-$group" 2>/dev/null; done; wait; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

start() { # NAME ARGUMENT...: make with these arguments
    make --no-print-directory "${@:2}" >"$logs/$1" 2>&1 &
    parts+=("$1") groups+=($!)
}

show() { # prints the parts that were started, one after the other; fails if one of them failed
    local failed=0
    for i in "${!parts[@]}"; do
        echo "=== ${parts[i]}"
        tail --lines=+1 --follow --pid="${groups[i]}" "$logs/${parts[i]}"
        wait "${groups[i]}" || failed=1
    done
    parts=() groups=()
    return $failed
}

start "vLLM's environment" test-env
start "SGLang's environment" test-env-sglang
show || exit
start lint lint
start "vLLM's tests that start no engine" test-vllm PYTEST="-m 'not engine' ${either[*]/#/--ignore=} ${PYTEST:-}"
start "SGLang's tests that start no engine" test-sglang PYTEST="-m 'not engine' ${either[*]} ${PYTEST:-}"
start "SGLang's tests that start engines" test-sglang PYTEST="-m engine ${PYTEST:-}"
start "vLLM's tests that start engines" test-vllm PYTEST="-m engine ${PYTEST:-}"
show
