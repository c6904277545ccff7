"""Methods of other distributions: parts of any kind work by the contract, or are refused with one sentence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from mtpc.draft import MAX_DRAFTS, Draft, DraftContext, one_hot
from mtpc.errors import MTPCError
from mtpc.files.target import Target
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.methods.contract import ParallelOnly
from mtpc.methods.copying import PromptLookupPart
from mtpc.methods.drafter import Drafter, check_state
from mtpc.methods.fastmtp import FastMTP
from mtpc.methods.gumiho import Gumiho, GumihoConfig
from mtpc.parallel.part import ParallelPart
from mtpc.target_head.shared import SharedHead
from tests.support.tiny_methods import EXAMPLES, VOCAB, tiny_target
from tests.support.tiny_models import SIZE

LENGTH = 2  # drafts of `Successors`


class Successors(ParallelPart):
    """No circuit: each token is followed by the next number, for certain."""

    vocab_size, max_drafts, leaf_shape = VOCAB, LENGTH, (LENGTH, 1, VOCAB)

    def draft(self, known: DraftContext, temperature: Any, noise: Any, num_drafts: int, mode: str, *_: Any) -> Draft:
        tokens = (known.tokens[:, -1:] + 1 + torch.arange(num_drafts)) % VOCAB
        return Draft(tokens, None if mode == "greedy" else one_hot(tokens, VOCAB))

    def log_probs(self, *_: Any, **__: Any) -> Tensor:
        raise NotImplementedError

    def most_probable_tokens(self, *_: Any, **__: Any) -> Tensor:
        raise NotImplementedError


class Config(ParallelOnly):
    """Of a drafter of `Successors` alone."""

    hidden_size, vocab_size, num_drafts, own_drafts, max_drafts = SIZE, VOCAB, LENGTH, LENGTH, LENGTH

    def model_dump(self) -> dict[str, Any]:
        return {}


class BehindLayers(Gumiho):
    """Layers with `Successors` behind them."""

    def parallel(self, config: Any) -> ParallelPart:
        return Successors()


def layers(**changed: Any) -> Any:
    """Of two steps and two parallel positions, or else as changed."""
    config = EXAMPLES["gumiho-ff"]().config
    parallel = config.parallel.model_copy(update={"positions": LENGTH})
    return config.model_copy(update={"parallel": parallel, **changed})


def method(base: Any, made: Callable[[], ParallelPart | None]) -> Any:
    """One whose parallel part is another."""
    return type("Other", (base,), {"parallel": lambda self, config: made()})()


class NoSteps(GumihoConfig):
    """Layers that draft nothing."""

    draft_steps: ClassVar[int] = 0  # type: ignore[misc]


class Steps(Config):
    """Steps of layers that are not there."""

    draft_steps = 1  # type: ignore[assignment]


@torch.inference_mode()
def test_a_parallel_part_of_another_kind_follows_the_layers() -> None:
    drafter = Drafter(BehindLayers(), layers())
    drafter.check_parts("it")
    session, head = ReferenceDrafter(drafter, SharedHead.of(tiny_target())), SharedHead.of(tiny_target())
    hidden, following = torch.randn(3, 4, SIZE), torch.randint(VOCAB, (3, 4))
    greedy = session.draft(hidden, following, 4)
    assert torch.equal(greedy.tokens[:, 2:], (greedy.tokens[:, 1:2] + torch.tensor([1, 2])) % VOCAB)
    sampled = ReferenceDrafter(drafter, head).draft(hidden, following, 4, torch.ones(3), torch.rand(3, 4).double())
    assert torch.equal(sampled.probs[:, 2:].argmax(2), sampled.tokens[:, 2:])  # type: ignore[index]
    with pytest.raises(MTPCError, match="cannot draft trees"):
        ReferenceDrafter(drafter, head).draft_tree(hidden, following, 4)
    with pytest.raises(MTPCError, match="cannot draft trees"):
        ReferenceDrafter(Drafter(method(FastMTP, Successors), Config()), head).draft_tree(hidden, following, 2)


@pytest.mark.parametrize(
    ("base", "made", "config", "message"),
    [
        (FastMTP, lambda: None, Config(), "has no part that drafts"),
        (FastMTP, Successors, Steps(), "has draft steps, but no autoregressive part"),
        (Gumiho, Successors, NoSteps(**layers().model_dump()), "part, which must draft at least one token"),
        (FastMTP, lambda: EXAMPLES["gumiho-ff"]().parallel, Config(), "needs an autoregressive part before it"),
        (Gumiho, lambda: PromptLookupPart(VOCAB, 5), layers(), "cannot follow an autoregressive part"),
        (Gumiho, Successors, layers(steps=1, parallel=EXAMPLES["gumiho-ff"]().config.parallel), "is too short"),
    ],
)
def test_parts_that_do_not_fit_are_refused(base: Any, made: Any, config: Any, message: str) -> None:
    drafter = Drafter(method(base, made), config)
    with pytest.raises(MTPCError, match=f"^it cannot be served: a .* drafter .*{message}"):
        drafter.check_parts("it")


def test_the_methods_here_fit() -> None:
    for example in EXAMPLES.values():
        example().check_parts("it")


def test_the_state_that_is_read_must_be_between_layers_of_the_target(tmp_path: Path) -> None:
    for below, count, fits in ((None, 2, True), (1, 2, True), (2, 2, False), (0, 2, False), (2, None, True)):
        autoregressive = None if below is None else SimpleNamespace(state_below=below, needs_layers=None)
        config: Any = SimpleNamespace(autoregressive=autoregressive)
        refusal = nullcontext() if fits else pytest.raises(MTPCError, match=f"below layer {below} of its target")
        with refusal:
            check_state(tmp_path, config, Target(8, 11, count))


def test_both_parts_together_draft_no_more_than_any_drafter_may() -> None:
    values = layers().model_dump() | {"parallel": {"positions": MAX_DRAFTS - 2, "blocks": 0}}
    assert GumihoConfig.model_validate(values | {"steps": 2}).max_drafts == MAX_DRAFTS
    with pytest.raises(ValueError, match=f"must be at most {MAX_DRAFTS}"):
        GumihoConfig.model_validate(values | {"steps": 3})
