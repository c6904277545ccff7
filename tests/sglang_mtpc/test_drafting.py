"""Drafts from a captured call are those of the call itself, in batches of any size and mode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mtpc.drafter import Draft, TreeDraft, load_drafter
from mtpc.drafter.drafter import Mode
from mtpc.drafter.single import has_compiler
from sglang_mtpc.drafting import Drafting, Drafts, Inputs, Replay
from sglang_mtpc.settings import Shape

CHAIN, TREE = Shape(5, 1, 5), Shape(4, 3, 9)


class Recorder:
    """Stands in for CUDA graphs: a recorded call is made again, and its results overwrite the first ones."""

    def __init__(self) -> None:
        self.replayed = 0

    def __call__(self, call: Callable[[], Drafts]) -> tuple[Replay, Drafts]:
        drafts = call()

        def replay() -> None:
            self.replayed += 1
            for kept, new in zip(drafts, call(), strict=True):
                if kept is not None:
                    kept.copy_(new)

        return replay, drafts


def inputs(drafting: Drafting, rows: int, mode: Mode) -> Inputs:
    """Random requests; in a mixed batch every other one is greedy."""
    config = drafting.drafter.config
    temperature = torch.full((rows,), 0.0 if mode == "greedy" else 0.7)
    if mode == "mixed":
        temperature[::2] = 0.0
    hidden = torch.randn(rows, config.hidden_size, generator=torch.Generator().manual_seed(rows))
    token = torch.arange(rows) * 7 % config.vocab_size
    return Inputs(hidden, token, temperature, torch.arange(rows) + 3, torch.full((rows,), 11))


def same(found: Drafts, expected: Drafts) -> bool:
    """Equal tokens and parents, and equal distributions but for rounding."""
    if isinstance(expected, TreeDraft):
        return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert isinstance(found, Draft)
    if expected.probs is None or found.probs is None:
        return torch.equal(found.tokens, expected.tokens) and expected.probs is found.probs
    return torch.equal(found.tokens, expected.tokens) and torch.allclose(found.probs, expected.probs, atol=1e-5)


@pytest.mark.parametrize("shape", [CHAIN, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("mode", ["greedy", "sampled", "mixed"])
def test_replays(drafter: Path, shape: Shape, mode: Mode) -> None:
    eager = Drafting(load_drafter(drafter).shortened(shape.steps), shape)
    captured, recorder = Drafting(eager.drafter, shape), Recorder()
    captured.capture([4, 1, 2], torch.zeros(4, eager.drafter.config.hidden_size), recorder)
    for rows in (3, 1, 4, 2, 3):  # three requests run in the graph of four
        batch = inputs(eager, rows, mode)
        assert same(captured(batch, mode), eager(batch, mode)), rows
    assert recorder.replayed == 5
    batch = inputs(eager, 5, mode)  # more than was captured
    assert same(captured(batch, mode), eager(batch, mode))
    assert recorder.replayed == 5


@pytest.mark.skipif(not has_compiler(), reason="torch compiles with a C++ compiler: there is none")
def test_one_request_drafts_compiled_what_it_drafts_uncompiled(drafter: Path) -> None:
    eager = Drafting(load_drafter(drafter).shortened(5), CHAIN)
    compiled = Drafting(eager.drafter, CHAIN)
    with torch.no_grad():
        compiled.compile_for_one(torch.zeros(1, eager.drafter.config.hidden_size))
        modes: tuple[Mode, ...] = ("greedy", "sampled", "mixed")
        for mode in modes:
            for rows in (1, 2):
                batch = inputs(eager, rows, mode)
                assert same(compiled(batch, mode), eager(batch, mode)), (mode, rows)
    assert compiled.draft_one != eager.draft_one


def test_shapes(drafter: Path) -> None:
    chain = Drafting(load_drafter(drafter).shortened(5), CHAIN)
    drawn = chain(inputs(chain, 3, "sampled"), "sampled")
    assert isinstance(drawn, Draft) and drawn.probs is not None
    assert drawn.tokens.shape == (3, 5)
    assert drawn.probs.shape == (3, 5, chain.drafter.config.vocab_size)
    assert drawn.probs.max() <= 1.0
    tree = Drafting(load_drafter(drafter).shortened(4), TREE)
    grown = tree(inputs(tree, 3, "sampled"), "sampled")
    assert isinstance(grown, TreeDraft)
    assert grown.tokens.shape == grown.parents.shape == (3, 9)


def test_noise_is_a_function_of_its_keys(drafter: Path) -> None:
    drafting = Drafting(load_drafter(drafter), Shape(7, 1, 7))
    batch = inputs(drafting, 64, "sampled")
    assert same(drafting(batch, "sampled"), drafting(batch, "sampled"))
    for changed in (batch._replace(seeds=batch.seeds + 64), batch._replace(positions=batch.positions + 1)):
        assert not torch.equal(drafting(changed, "sampled").tokens, drafting(batch, "sampled").tokens)
