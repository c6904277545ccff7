"""Lets a released SGLang run on a CPU for this repository's tests and demo; no part of the adapter.

SGLang on a CPU imports ``sgl_kernel``, whose CPU build is on no package index, and torchvision, whose published build
does not load beside a CPU torch.  This package stands in for the first with plain torch (`slots`, `trees`, `accepted`,
`hashing`), mends the import of the second (`image_operators`), and gives SGLang's layers what the missing kernels would
bring: attention over trees of drafts and over several requests at once (`attention`), what a draft worker of SGLang's
own needs (`draft_attention`, `kernels`), and weights laid out for the processor (`linear`).

``scripts/make_env.sh`` makes an environment without a GPU call `activate` whenever its Python starts.  It is installed
nowhere else, and steps aside for a real ``sgl_kernel``.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from mtpc.serving.after_import import after_import

MENDS = {"torchvision.extension": "image_operators"}
CPU_MENDS = {
    "sglang.kernels.ops.speculative.gather_spec_extras": "kernels",
    "sglang.kernels.ops.speculative.row_argmax": "kernels",
    "sglang.srt.layers.attention.torch_native_backend": "attention",
    "sglang.srt.layers.quantization.unquant": "linear",
    "sglang.srt.managers.overlap_utils": "streams",
    "sglang.srt.speculative.draft_utils": "draft_attention",
}


@functools.cache
def activate() -> None:
    """Arrange everything, once; only what is imported later costs anything.

    SGLang is told to use its CPU engine unless ``SGLANG_USE_CPU_ENGINE`` is set already.  The stand-in for
    ``sgl_kernel`` goes last on the path, where a real one is found first.
    """
    mends = MENDS
    if os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1") == "1":
        mends = MENDS | CPU_MENDS
        sys.path.append(str(Path(__file__).parent / "import_path"))
    for module, name in mends.items():
        after_import(module, lambda found, name=name: _install(name, found))  # type: ignore[misc]


def _install(name: str, module: ModuleType) -> None:
    import_module(f"sglang_cpu.{name}").install(module)
