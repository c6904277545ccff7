"""What a draft may cost on a device, and that what it draws is what it states also where products are rounded."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mtpc.draft import DraftContext, Mode
from mtpc.draw import draw
from mtpc.parallel import joint
from mtpc.parallel.byte_part import ByteCircuitPart
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.mtpc.parallel.trace import ReducedPrecision, Trace
from tests.mtpc.parallel.windows import inputs, make_circuit_part
from tests.support.tiny_models import make_byte_circuit, make_part

BATCH, RANK, WINDOW, SIZE, DRAFTS = 32, 32, 8, 576, 7
BYTES, WORDS = 258, 49152  # vocabularies
KERNELS = {"ff": 130, "cp": 145, "hmm": 170, "btree": 250}


def traced(circuit: str, vocabulary: int, mode: Mode) -> Trace:
    with torch.device("meta"):
        window = make_part(circuit, WINDOW, RANK, SIZE, vocabulary)
        known = DraftContext.of_target(torch.zeros(BATCH, SIZE), torch.zeros(BATCH, dtype=torch.int64))
        noise = torch.zeros(BATCH, WINDOW - 1, dtype=torch.float64)
        with torch.no_grad(), Trace() as trace:
            window.draft(known, torch.ones(BATCH), noise, WINDOW - 1, mode)
    return trace


@pytest.mark.parametrize("circuit", KERNELS)
def test_kernels_of_a_draft(circuit: str) -> None:
    assert traced(circuit, BYTES, "mixed").kernels <= KERNELS[circuit]


@pytest.mark.parametrize("mode", ["greedy", "mixed"])
@pytest.mark.parametrize("circuit", KERNELS)
def test_memory_of_a_draft_over_a_large_vocabulary(circuit: str, mode: Mode) -> None:
    """Three times what it states at most, and nothing of that size in 64 bits."""
    trace, stated = traced(circuit, WORDS, mode), BATCH * (WINDOW - 1) * WORDS
    assert trace.peak <= 3 * 4 * stated
    assert not [made for made in trace.made if made.itemsize == 8 and math.prod(made.shape) >= stated]


@pytest.mark.thorough
def test_a_byte_circuit_of_a_large_vocabulary() -> None:
    """No more memory than any other parallel part; kernels by the depth of the vocabulary's trie."""
    generator = np.random.default_rng(0)
    texts = {bytes(generator.integers(97, 101, generator.integers(1, 13)).tolist()) for _ in range(3 * WORDS)}
    tokens = TokenBytes(tuple(sorted(texts))[:WORDS], frozenset(), frozenset())
    window = make_byte_circuit("hmm", tokens, 32, 16, SIZE, WORDS).parallel
    assert isinstance(window, ByteCircuitPart) and len(texts) >= WORDS and len(window.byte_vocabulary.levels) == 12
    known = DraftContext.of_target(torch.zeros(BATCH, SIZE), torch.zeros(BATCH, dtype=torch.int64))
    traces = []
    for rows in (slice(BATCH), slice(1)):
        here = DraftContext(*(each[rows].to("meta") for each in known[:2]))
        noise = torch.zeros(len(here.tokens), DRAFTS, dtype=torch.float64, device="meta")
        with torch.no_grad(), Trace() as trace:
            window.to("meta").draft(here, torch.ones(len(here.tokens), device="meta"), noise, DRAFTS, "mixed")
        traces.append(trace)
    assert traces[0].peak <= 3 * 4 * BATCH * DRAFTS * WORDS
    assert traces[1].kernels <= DRAFTS * (12 * 15 + 32 * 6) + 50  # by levels, and by symbols of the window


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", KERNELS)
@torch.inference_mode()
def test_rows_in_parts_are_drafted_as_all_at_once(
    circuit: str, token_input: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = make_circuit_part(circuit, token_input=token_input)
    hidden, token, temperature, noise = inputs(7, window)
    known, chances = DraftContext.of_target(hidden, token), torch.linspace(0, 0.9, 7)[:, None].expand(-1, 5)
    for copying in (None, Copying.begin(Copied(torch.arange(5).expand(7, -1), chances))):
        whole = window.draft(known, temperature, noise, 5, "mixed", copying)
        monkeypatch.setattr(joint, "MAX_LEAVES", 3 * math.prod(window.leaf_shape[1:]))  # three rows of one position
        parts = window.draft(known, temperature, noise, 5, "mixed", copying)
        monkeypatch.undo()
        assert torch.equal(parts.tokens, whole.tokens)
        torch.testing.assert_close(parts.probs, whole.probs)


def rounded_window(circuit: str) -> tuple[CircuitPart, DraftContext]:
    torch.manual_seed(0)
    window = make_part(circuit, 4, 8, 16, 300).requires_grad_(False)
    return window, DraftContext.of_target(torch.randn(500, 16), torch.randint(300, (500,)))


@pytest.mark.parametrize("circuit", KERNELS)
def test_what_is_drawn_is_what_is_stated_in_reduced_precision(circuit: str) -> None:
    """Token by token; the rows sum to 1 as they do in full precision."""
    window, known = rounded_window(circuit)
    noise = torch.rand(500, 3, dtype=torch.float64)
    with ReducedPrecision():
        draft = window.draft(known, torch.ones(500), noise, 3, "sampled")
    assert draft.probs is not None
    assert torch.equal(draft.tokens, draw(draft.probs, noise))
    torch.testing.assert_close(draft.probs.double().sum(-1), torch.ones(500, 3).double(), atol=5e-7, rtol=0)
    plain = window.draft(known, torch.ones(500), noise, 3, "sampled")
    assert plain.probs is not None
    if window.circuit.rank > 1:  # the control: products were rounded
        assert (plain.probs[:, 0] - draft.probs[:, 0]).abs().sum(-1).max() > 1e-4
