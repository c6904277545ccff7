"""Machines and targets of docs/at-scale.md, and the sources of their figures."""

from __future__ import annotations

from benchmarks.at_scale.drafters import COPYING
from benchmarks.at_scale.step import Machine, Target
from benchmarks.draft_bytes import TARGETS, Shape


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:g} ms"


MIMO = Target("MiMo-7B", TARGETS["MiMo-7B"], 36)
LLAMA8 = Target(
    "Llama-3.1-8B", Shape(hidden=4096, vocab=128256, inner=14336, queries=4096, keys=1024, attended=4096), 32
)
LLAMA70 = Target(
    "Llama-3.3-70B", Shape(hidden=8192, vocab=128256, inner=28672, queries=8192, keys=1024, attended=8192), 80
)
SMOLLM2 = Target("SmolLM2-135M", Shape(hidden=576, vocab=49152, inner=1536, queries=576, keys=192, attended=576), 30)
BYTES_TARGET = Target("byte-target", Shape(hidden=384, vocab=258, inner=3584, queries=256, keys=128, attended=256), 6)

H100 = Machine(
    "H100 SXM",
    bandwidth=0.875 * 3.35e12,
    peak=0.7 * 989e12,
    layer=20e-6,
    step=0.5e-3,
    request=5e-6,
    drafting=1e-3,
    draft_step=0.1e-3,
    kernel=2e-6,
    memory=0.9 * 80e9,
    link=0.75 * 450e9,
)
A10 = H100._replace(name="A10", bandwidth=0.765 * 600e9, peak=0.7 * 125e12, drafting=5.4e-3)  # as in the FastMTP paper
CPU = Machine(
    "two cores of an AMD EPYC",
    bandwidth=54e6 / 2.1e-3,
    peak=340e9,
    step=0.86e-3,
    request=0.42e-3,
    drafting=1.49e-3,
    draft_step=0.5e-3,
)

# Assumptions: quantity, value, source.
ASSUMPTIONS = (
    ("an H100 SXM's memory", "3.35 TB/s, 80 GB, of which 90% for weights and caches", "NVIDIA's data sheet"),
    ("the share of that bandwidth that is reached", "0.875", "fitted to SGLang on one H100 (below)"),
    ("its dense bfloat16 peak, and the share", "989 TFLOP/s, 0.7", "NVIDIA's data sheet; the share is assumed"),
    (
        "a decoder layer, in addition to reading and computing",
        _ms(H100.layer),
        "fitted to SGLang on eight H100s (below)",
    ),
    ("a step, on the host", _ms(H100.step), "fitted likewise"),
    ("each request of a step, on the host", _ms(H100.request), "assumed"),
    ("all-reduces, two a layer", "0.0037 to 0.0338 ms for 16 KiB to 4 MiB", "measured: sgl-project/sglang#2904"),
    ("larger ones", "around a ring where that is faster, 0.002 ms a hop", "assumed"),
    ("the link of a rank", "450 GB/s one way, of which 0.75", "NVIDIA's data sheet; the share is assumed"),
    ("a step with drafts, in addition to one without", _ms(H100.drafting), "assumed; SGLang of 2025 took more (below)"),
    ("each pass through a drafter's layers", _ms(H100.draft_step), "assumed: 50 kernels in a CUDA graph"),
    ("kernels of a parallel part", "84, or 186 where heads are joint", "counted on meta tensors"),
    ("each of them", _ms(H100.kernel), "assumed"),
    ("passes over float32 logits until a token is sampled", "3, and 1 that writes the distribution", "assumed"),
    ("weights, keys and values", "bfloat16; nothing is quantized", "chosen"),
    ("a batch", "decodes; all requests have the same context length and draft alike", "chosen"),
    (
        "an A10 (below)",
        f"0.765 of 600 GB/s, 0.7 of 125 TFLOP/s, {_ms(A10.drafting)} a step with drafts",
        "NVIDIA's data sheet; fitted",
    ),
    ("the CPU (below)", "25.7 GB/s, 340 GFLOP/s; 0.86, 0.42, 1.49 and 0.5 ms for the assumptions above", "fitted"),
    (
        "finding copies, and the n-gram drafter's search",
        f"{_ms(COPYING.host)}, and nothing",
        "measured on a CPU; assumed",
    ),
)
