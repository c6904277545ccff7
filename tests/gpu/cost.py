"""Row: kernels and time of a draft, compared with the time that the device needs to read its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from transformers import LlamaConfig

from mtpc.draft import DraftContext
from mtpc.methods.drafter import Drafter, load_drafter
from mtpc.methods.fastmtp import FastMTP, config_for
from mtpc.noise import counter_uniforms
from mtpc.parallel.part import ParallelPart
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.gpu.running import Run
from tests.gpu.timing import bytes_per_second, kernels, microseconds
from tests.gpu.whole import Batch, Example, OwnVocabularies
from tests.support.tiny_models import make_part

SIZES = (1, 32)
BUDGET = 200  # kernels of a draft by an HMM (32 components, 8 tokens, 32 requests): 168 operators, some of two kernels
SMOLLM2 = LlamaConfig(
    vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3,
    num_hidden_layers=30, tie_word_embeddings=True,
)  # fmt: skip
TINY = LlamaConfig(
    vocab_size=200, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2
)  # fmt: skip
LANGUAGES, EACH = 4, 8192


class Timed(NamedTuple):
    """A draft for a given number of requests, and the bytes of the weights that it reads."""

    draft: Callable[[int], Callable[[], object]]
    reads: int


def weights(module: nn.Module) -> int:
    """Bytes."""
    return sum(parameter.nbytes for parameter in module.parameters())


def of_window(parallel: ParallelPart, hidden: int, run: Run) -> Timed:
    """All tokens that it drafts, in a batch of which some are greedy."""
    parallel = parallel.to(run.device)
    dtype = next(parallel.parameters()).dtype

    def draft(rows: int) -> Callable[[], object]:
        states = torch.randn(rows, hidden, device=run.device, dtype=dtype)
        keys = torch.arange(rows, device=run.device)
        known, temperature = DraftContext.of_target(states, keys % parallel.vocab_size), (keys % 2).float()
        noise = counter_uniforms(keys, keys, parallel.max_drafts)
        return lambda: parallel.draft(known, temperature, noise, parallel.max_drafts, "mixed")

    return Timed(draft, weights(parallel))


def of_fastmtp(run: Run, shape: LlamaConfig = SMOLLM2, each: int = EACH) -> Timed:
    """Three steps, each request from the vocabulary of its language; no text before."""
    torch.manual_seed(0)
    drafter = Drafter(FastMTP(), config_for(shape, 3)).to(run.device, torch.bfloat16).requires_grad_(False)
    rows = torch.randn(shape.vocab_size, shape.hidden_size, device=run.device, dtype=torch.bfloat16)
    languages = torch.randperm(shape.vocab_size)[: LANGUAGES * each].view(LANGUAGES, each).tolist()
    rankings = Rankings(shape.vocab_size, {str(i): Ranking(tuple(one)) for i, one in enumerate(languages)})
    head = OwnVocabularies(rows, rows, DraftVocabularies(rankings, VocabularySettings(each)))
    example = Example(drafter, head)

    def draft(count: int) -> Callable[[], object]:
        batch = Batch.random(count, 0, shape.hidden_size, shape.vocab_size, run.device)
        batch = batch._replace(hidden=batch.hidden[:, -1:].bfloat16(), following=batch.following[:, -1:])
        batch.numbers.zero_()
        return lambda: example.chain(batch, drafts=3)

    return Timed(draft, 3 * (weights(drafter) + each * rows[0].nbytes))


def cases(run: Run) -> dict[str, Timed]:
    """By name; on a CPU small ones."""
    if not run.on_gpu:
        small = make_part("hmm", 8, 32, 16, 258)
        return {"HMM of 258": of_window(small, 16, run), "FastMTP": of_fastmtp(run, TINY, 20)}
    shipped = load_drafter(run.paths.weights / "byte-mtpc-hmm-n8", dtype=torch.bfloat16).parallel
    assert shipped is not None
    return {
        "bytes": of_window(shipped, 384, run),
        "HMM of 258": of_window(make_part("hmm", 8, 32, 576, 258), 576, run),
        "HMM of 49,152": of_window(make_part("hmm", 8, 32, 576, 49_152).bfloat16(), 576, run),
        "FastMTP of SmolLM2": of_fastmtp(run),
    }


@torch.inference_mode()
def costs(run: Run) -> str:
    """Of each case, for one request and for 32."""
    speed, parts, counted = bytes_per_second(run.device, 1 << 30 if run.on_gpu else 1 << 20), [], {}
    for name, timed in cases(run).items():
        cells = []
        for rows in SIZES:
            call = timed.draft(rows)
            counted[name, rows] = kernels(call, run.device)
            cells.append(f"{counted[name, rows]} kernels {microseconds(call, run.device):.0f} us")
        parts.append(f"{name}: {', '.join(cells)}, reading takes {1e6 * timed.reads / speed:.0f}")
    most = counted.get(("HMM of 258", SIZES[-1]), 0)
    text = f"B = 1, 32 at {speed / 1e12:.2f} TB/s; " + "; ".join(parts)
    assert most <= BUDGET, f"{most} kernels of an HMM's draft, more than {BUDGET}: {text}"
    return text
