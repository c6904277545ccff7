"""CPU shim that lets a released SGLang run without a GPU, for this repository's tests and demo; no part of the adapter.

SGLang on a CPU imports ``sgl_kernel``, whose CPU build is on no package index, and torchvision, whose published build
does not load alongside a CPU build of torch.  The shim has these modules:

- `slots`, `trees`, `accepted` and `hashing` replace ``sgl_kernel`` with plain torch.
- `image_operators` lets torchvision be imported.
- `attention` computes attention over draft trees, and over all requests of a step at once.
- `draft_attention`, `kernels` and `streams` are what SGLang's draft workers and overlapping steps need.
- `device` is what its schedulers in Ray's actors need.
- `linear` lays out weights for the processor.

``scripts/make_env.sh`` makes environments without a GPU call `activate` at the start of Python.  The shim is installed
nowhere else, and a real ``sgl_kernel`` takes precedence.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from mtpc.serving.after_import import after_import

MODULES = {"torchvision.extension": "image_operators"}
CPU_MODULES = {
    "sglang.kernels.ops.speculative.gather_spec_extras": "kernels",
    "sglang.kernels.ops.speculative.row_argmax": "kernels",
    "sglang.srt.layers.attention.torch_native_backend": "attention",
    "sglang.srt.layers.quantization.unquant": "linear",
    "sglang.srt.managers.overlap_utils": "streams",
    "sglang.srt.managers.scheduler": "device",
    "sglang.srt.speculative.draft_utils": "draft_attention",
}


@functools.cache
def activate() -> None:
    """Install the shim once; each module is changed when SGLang imports it.

    ``SGLANG_USE_CPU_ENGINE`` is set to 1 unless it is set already.  The shim's ``sgl_kernel`` comes last on the import
    path, so that a real one is found first.
    """
    modules = MODULES
    if os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1") == "1":
        modules = MODULES | CPU_MODULES
        sys.path.append(str(Path(__file__).parent / "import_path"))
    for module, name in modules.items():
        after_import(module, lambda found, name=name: _install(name, found))  # type: ignore[misc]


def _install(name: str, module: ModuleType) -> None:
    import_module(f"sglang_cpu.{name}").install(module)
