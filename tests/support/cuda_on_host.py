"""SGLang's CUDA kernel that builds trees of drafts, from the source that it compiles, compiled for the host instead.

Its threads share nothing but what they read, so one after the other writes what all at once do.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import sglang
from torch import Tensor

SOURCE = Path(sglang.__path__[0]) / "kernels/jit/include/sgl_kernel/speculative/eagle.cuh"
AROUND = """
struct Index { int x; };
static Index blockIdx, threadIdx;
#define __global__ static
#include "eagle.cuh"
extern "C" void build(
    int rows, int64_t* parents, int64_t* selected, int64_t* lengths, bool* mask, int64_t* positions, int64_t* index,
    int64_t* next_token, int64_t* next_sibling, int topk, int depth, int nodes, int mode) {
  for (blockIdx.x = 0; blockIdx.x < rows; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < nodes; ++threadIdx.x)
      sglang::speculative::build_tree_efficient(
          parents, selected, lengths, mask, positions, index, next_token, next_sibling, topk, depth, nodes, mode);
}
"""


def compile_builder(folder: Path) -> Callable[..., None] | None:
    """As SGLang calls its builder on a CPU; None: there is no source in this release, or no compiler."""
    compiler = shutil.which("g++")
    if compiler is None or not SOURCE.exists():
        return None
    (folder / "builder.cpp").write_text(AROUND)
    library = folder / "builder.so"
    options = ["-shared", "-fPIC", "-O1", f"-I{SOURCE.parent}", "-o", str(library)]
    subprocess.run([compiler, *options, str(folder / "builder.cpp")], check=True)
    kernel = ctypes.CDLL(str(library)).build

    def build(parents: Tensor, selected: Tensor, *others: Tensor | int) -> None:
        topk, depth, nodes, _ = others[-4:]
        rows = len(selected)
        # What SGLang checks before it starts the kernel (its tree.cuh), which counts in rows of this width.
        assert parents.is_contiguous() and selected.is_contiguous()
        assert selected.shape == (rows, nodes - 1) and (depth == 1 or parents.shape == (rows, topk * (depth - 1) + 1))
        values = (each.data_ptr() if isinstance(each, Tensor) else int(each) for each in (parents, selected, *others))
        kernel(rows, *(ctypes.c_void_p(value) if place < 8 else value for place, value in enumerate(values)))

    return build
