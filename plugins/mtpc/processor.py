"""What the CPU is slow at, as far as it decides whether drafts bring speed."""

from __future__ import annotations

import torch

# Names in `torch.backends.cpu` of processors for which oneDNN has no bfloat16 products. torch's own take as long for
# each row as for one: on an AMD EPYC with AVX2, 8 rows take 7.1 times as long as one; in float32, 2.7 times.
SLOW_IN_BFLOAT16 = ("AVX2", "NO AVX")


def is_slow_in_bfloat16() -> bool:
    """Return whether this machine's CPU has no bfloat16 products of its own."""
    return torch.backends.cpu.get_cpu_capability() in SLOW_IN_BFLOAT16


def float32_advice() -> str:
    """Return a sentence that advises float32 on this machine; empty where bfloat16 is as good."""
    if torch.cuda.is_available() or not is_slow_in_bfloat16():
        return ""
    return (
        "This CPU has no AVX-512 and is slow in bfloat16, where a draft takes about as much time as it saves: "
        "serve with --dtype float32."
    )
