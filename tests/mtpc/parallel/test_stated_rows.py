"""What a window states is a distribution, whatever drafts, restricts and mixes it, alone and in a batch."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import ParallelConfig
from mtpc.parallel.independent import IndependentPart
from mtpc.parallel.part import ParallelPart
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.shared import Head, SharedHead
from mtpc.target_head.union import UnionLogits
from mtpc.verify import verify_rejection
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.support.tiny_models import make_part

SIZE, VOCAB, DRAFTS, ROWS = 8, 23, 3, 4
LANGUAGES = {"low": Ranking(tuple(range(7))), "high": Ranking(tuple(range(15, 8, -1)))}
OUTSIDE = 20  # in no draft vocabulary
CIRCUITS = ("ff", "cp", "hmm", "btree")
HEADS = ("whole", "one vocabulary", "by request", "union")
LEAVES: dict[str, dict[str, Any]] = {
    "circuit": {},
    "circuit of the target's leaves": {"leaves": "target"},
    "circuit that reads the token": {"leaves": "target", "token_input": True, "trunk_size": 6},
}
THROUGH_HEADS = tuple(f"{leaves} through {head}" for leaves in list(LEAVES)[1:] for head in HEADS)
TEMPERATURES = {"greedy": None, "mixed": (0.0, 1.0, 0.05, 5.0), "sampled": (1.0, 1.0, 1.0, 1.0)}


def parallel(circuit: str) -> IndependentPart:
    torch.manual_seed(1)
    config = ParallelConfig(positions=DRAFTS, blocks=1, circuit=circuit, rank=1 if circuit == "ff" else 3)
    window = IndependentPart(config, SIZE, VOCAB, 1e-5)
    with torch.no_grad():
        for parameter in window.parameters():
            parameter.normal_()
    return window.requires_grad_(False).eval()


def head(kind: str, rows: int) -> Head:
    torch.manual_seed(2)
    weights = torch.randn(VOCAB, SIZE)
    if kind == "whole":
        return SharedHead(weights, weights)
    vocabularies = DraftVocabularies(Rankings(VOCAB, LANGUAGES), VocabularySettings(size=7))
    if kind == "union":
        return UnionLogits(vocabularies, weights).head(torch.arange(rows) % 3)
    numbers = torch.zeros(rows, dtype=torch.int64) if kind == "one vocabulary" else torch.arange(rows) % 3
    return DraftLogits(vocabularies, weights).head(numbers)


def copying(kind: str, rows: int) -> Copying | None:
    """Nothing, tokens that no draft vocabulary holds, or some that the first one holds; with chances up to nearly 1."""
    if kind == "nothing":
        return None
    tokens = torch.full((rows, DRAFTS), OUTSIDE if kind == "outside" else 3)
    chances = torch.tensor([0.995, 0.0, 0.5, 0.9])[torch.arange(rows) % 4]
    return Copying.begin(Copied(tokens, chances[:, None].expand(rows, DRAFTS).contiguous()))


def drafted(window: ParallelPart, known: DraftContext, heat: str, copied: Copying | None, rows: int) -> Any:
    temperature = TEMPERATURES[heat]
    made = None if temperature is None else torch.tensor(temperature)[:rows]
    noise = None if made is None else torch.rand(rows, DRAFTS, dtype=torch.float64)
    return window.draft(known, made, noise, DRAFTS, heat, copied)  # type: ignore[arg-type]


def wrong(probs: Tensor, tokens: Tensor) -> str | None:
    """What is not as it must be."""
    if not bool(probs.isfinite().all()):
        return "not finite"
    if bool((probs < 0).any()) or float((probs.double().sum(-1) - 1).abs().max()) > 1e-5:
        return "no distribution"
    if not bool((probs.gather(-1, tokens[..., None]) > 0).all()):
        return "a token that it does not state"
    return None


@torch.inference_mode()
def test_every_row_is_a_distribution_that_its_token_comes_from() -> None:
    failed, tried = [], 0
    for circuit, kind, heat, copied, rows in product(
        CIRCUITS, ("circuit", *HEADS, *THROUGH_HEADS), TEMPERATURES, ("nothing", "outside", "inside"), (1, ROWS)
    ):
        torch.manual_seed(3)
        places = torch.randn(rows, 2, SIZE)
        if kind.startswith("circuit"):
            leaves, _, through = kind.partition(" through ")
            window: ParallelPart = make_part(circuit, DRAFTS + 1, 3, SIZE, VOCAB, **LEAVES[leaves])
            assert isinstance(window, CircuitPart)
            known = DraftContext.of_target(places[:, 0], torch.randint(VOCAB, (rows,)))
            if window.reads_head:
                known = known._replace(inputs=torch.randn(rows, 1, SIZE), head=head(through, rows))
        else:
            window = parallel(circuit)
            known = DraftContext(places, torch.randint(VOCAB, (rows, 2)), torch.randn(rows, 2, SIZE), head(kind, rows))
        draft = drafted(window, known, heat, copying(copied, rows), rows)
        name, tried = (circuit, kind, heat, copied, rows), tried + 1
        assert (draft.probs is None) == (heat == "greedy")
        if draft.probs is not None and (found := wrong(draft.probs, draft.tokens)):
            failed.append((*name, found))
    assert not failed, f"{len(failed)} of {tried}: {failed[:5]}"
    assert tried == 936


@pytest.mark.parametrize("stated", [0.0, float("nan")])
def test_a_draft_that_nothing_was_stated_of_is_rejected(stated: float) -> None:
    """What is emitted in its place has the target's distribution."""
    torch.manual_seed(0)
    drafts, target = torch.zeros(4000, 1, dtype=torch.int64), torch.tensor([0.02, 0.28, 0.7]).expand(4000, 2, 3)
    draft = torch.full((4000, 1, 3), stated)
    uniforms = torch.rand(2, 4000, dtype=torch.float64)
    emitted = verify_rejection(drafts, draft, target, uniforms[0, :, None], uniforms[1])
    assert not emitted.accepted.any()
    share = emitted.tokens[:, 0].bincount(minlength=3) / 4000
    torch.testing.assert_close(share, target[0, 0], atol=0.03, rtol=0.0)
