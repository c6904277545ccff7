#!/usr/bin/env bash
# Makes the virtual environment that serves (with --ray, over Ray; with --test, also tests) the drafters with one engine.
#
#   scripts/make_env.sh [--ray] [--test] [vllm|sglang]        (vllm unless said otherwise)
#
# VENV    where it is made (default .venvs/ENGINE)
# PYTHON  the interpreter to make it with (default: the first of python3, python3.12, python3.11 that is 3.11 or newer)
#
# With an NVIDIA GPU (nvidia-smi answers) it holds the ordinary engine.  Without one it holds vLLM's CPU build, or
# SGLang with tests/support/sglang_cpu, which stands in for the kernels that SGLang's CPU build would bring.  Run again,
# it does nothing unless a requirement file has changed since.
set -euo pipefail
cd "$(dirname "$0")/.."

engine=vllm
ray=
tests=
for argument; do
    case $argument in
        --ray) ray=yes ;;
        --test) tests=yes ;;
        vllm | sglang) engine=$argument ;;
        *)
            echo "make_env: the arguments are [--ray] [--test] [vllm|sglang], not $argument." >&2
            exit 2
            ;;
    esac
done

venv=${VENV:-.venvs/$engine}
device=cpu
if nvidia-smi >/dev/null 2>&1; then device=cuda; fi
files=("requirements/$engine-$device.txt")
ray_files=(requirements/ray.txt)
if [ $engine-$device = sglang-cpu ]; then ray_files+=(requirements/ray-sglang.txt); fi
stamp=$venv/.serve.stamp
if [ "$ray" ]; then
    stamp=$venv/.ray.stamp
    files+=("${ray_files[@]}")
fi
if [ "$tests" ]; then
    stamp=$venv/.test.stamp
    files+=(requirements/test.txt)
    if [ $device = cpu ]; then files+=("${ray_files[@]}"); fi
    if [ $engine-$device = vllm-cpu ]; then files+=(requirements/test-cpu.txt); fi
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

# Compiling all modules takes longer than all else that pip does, and Python compiles those that are imported.
install() { "$venv/bin/python" -m pip --disable-pip-version-check -qq install --no-compile "$@"; }

# The lines of a .pth file, folders to import from and imports, are read whenever the environment's Python starts.
activate_stand_in() {
    "$venv/bin/python" -c 'import pathlib, sysconfig
file = pathlib.Path(sysconfig.get_path("purelib"), "sglang_cpu.pth")
folder = pathlib.Path("tests/support").resolve()
file.write_text(f"{folder}\nimport sglang_cpu; sglang_cpu.activate()\n")'
}

started=$SECONDS
if [ $device = cpu ]; then
    requirements=()
    for file in "${files[@]}"; do requirements+=(-r "$file"); done
    if ! install --no-deps "${requirements[@]}"; then
        echo "make_env: if torch==...+cpu was not found, read the head of requirements/$engine-cpu.txt." >&2
        exit 1
    fi
    if [ $engine = vllm ]; then install --no-deps --no-build-isolation ./requirements/vllm_alias; fi
else
    install -r "requirements/$engine-cuda.txt"
    if [ "$ray" ]; then install -r requirements/ray.txt; fi
    if [ "$tests" ]; then install --no-deps -r requirements/test.txt; fi
fi
# One at a time: it writes into the source tree, and the other engine's environment may be in the making.
(flock 9 && install --no-deps --no-build-isolation --editable .) 9<pyproject.toml
if [ $engine-$device = sglang-cpu ]; then activate_stand_in; fi
echo "$wanted" >"$stamp"
echo "make_env: $venv is ready after $((SECONDS - started)) s"
