"""SGLang's draft worker with our parts, outside of an engine: what a step counts as and carries, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from torch import nn

from mtpc.draft import Draft, DraftContext
from mtpc.errors import MTPCError
from mtpc.methods.drafter import load_drafter
from mtpc.metrics.draft_clock import DraftClock
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.mixture import Copying
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from sglang_mtpc import autoregressive_worker, eagle_tree, ranks, served
from sglang_mtpc.adaptive import AdaptiveChain, AdaptiveTree
from sglang_mtpc.autoregressive_worker import AutoregressiveDraftWorker
from sglang_mtpc.draft_strategies import AutoregressiveTree, LoopOutput, TwoPartChain, TwoPartTree
from sglang_mtpc.drafting import Drafting, DraftInputs
from sglang_mtpc.models.draft_layers import DraftLayersModel
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchSteps
from tests.sglang_mtpc.stand_ins import VOCAB, Texts, batch_of, built_of

VOCABULARIES = DraftVocabularies(Rankings(6, {"low": Ranking((0, 1, 2))}), VocabularySettings(size=3))


def worker(file: Path | None, parallel: Any = None) -> Any:
    """One that SGLang has not made."""
    made = AutoregressiveDraftWorker.__new__(AutoregressiveDraftWorker)
    made.clock, made.parallel, made.shape = DraftClock(file), parallel, DraftShape(2, 1, 2)
    made.lengths, made.steps = None, BatchSteps(7)
    made.loop_steps = made.speculative_num_steps = 1
    made.speculative_num_draft_tokens = 3
    made.draft_runner = SimpleNamespace(model=model())
    made.target_worker = SimpleNamespace(model_config=SimpleNamespace(vocab_size=VOCAB))
    made.strategy = made._strategy()
    return made


def test_a_step_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draft(self: Any, batch: Any) -> Any:
        return built_of(Draft((torch.ones(200, 200) @ torch.ones(200, 200)).long(), None))

    monkeypatch.setattr(EagleDraftWorker, "draft", draft)
    monkeypatch.setattr(EagleDraftWorker, "_draft_extend_for_decode", lambda self, batch, result: None)
    one, result = worker(tmp_path / "times.json"), SimpleNamespace(
        logits_output=SimpleNamespace(hidden_states=torch.ones(3, 4)), accept_lens=torch.tensor([1]),
        speculative_num_draft_tokens=3,
    )  # fmt: skip
    for _ in range(3):
        one.draft(SimpleNamespace(reqs=[]))
        before = one.clock.seconds
        one._draft_extend_for_decode(None, result)
        assert one.clock.seconds > before
    one.clock.write()
    assert json.loads((tmp_path / "times.json").read_text())["drafts"] == 3


def test_the_targets_state_is_kept_for_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.randn(2, 4)

    def extend(self: Any, batch: Any, result: Any) -> None:
        assert self.speculative_num_draft_tokens == 3  # as many as were verified
        result.next_draft_input.hidden_states = layer

    monkeypatch.setattr(EagleDraftWorker, "_draft_extend_for_decode", extend)
    hidden, following = torch.randn(6, 4), SimpleNamespace(hidden_states=None)
    result = SimpleNamespace(
        logits_output=SimpleNamespace(hidden_states=hidden),
        accept_lens=torch.tensor([1, 3]),
        speculative_num_draft_tokens=3,
        next_draft_input=following,
    )
    made = worker(None, parallel="some")
    made.speculative_num_draft_tokens = 9
    made._draft_extend_for_decode(None, result)
    assert made.speculative_num_draft_tokens == 9
    assert torch.equal(following.hidden_states.view(2, 2, 4), torch.stack([hidden[[0, 5]], layer], 1))


@pytest.mark.parametrize("probs", [None, torch.tensor([[0.1, 0.9], [0.9, 0.1]])], ids=["tree", "chain"])
def test_greedy_requests_draft_greedily_after_their_prompt(
    probs: torch.Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = torch.tensor([[0], [1]])
    first = SimpleNamespace(draft_probs=probs, topk_index=drawn, topk_p=None, hidden_states=torch.zeros(2, 4))
    monkeypatch.setattr(EagleDraftWorker, "_draft_extend_for_prefill", lambda self, batch, *args: first)
    batch = SimpleNamespace(extend_lens=[2, 3], sampling_info=SimpleNamespace(top_ks=torch.tensor([1, 50])))
    made = worker(None)._draft_extend_for_prefill(batch, torch.zeros(5, 4), None)
    assert made.topk_index.tolist() == ([[1], [1]] if probs is not None else drawn.tolist())


def copying_worker(lengths: Texts, steps: int, parallel: Any = None, first: torch.Tensor | None = None) -> Any:
    """One that copies.

    steps: of its autoregressive part.  first: the layer's first logits, for states of ones; None: they do not
    wait.
    """

    def first_logits(states: torch.Tensor) -> torch.Tensor:
        assert first is not None
        return first * states.mean(1, keepdim=True)

    made = worker(None, parallel)
    made.draft_runner.model.defers_first_logits, made.draft_runner.model.first_logits = first is not None, first_logits
    made.lengths, made.shape = lengths, lengths.shape
    made.loop_steps = made.speculative_num_steps = steps
    made.speculative_num_draft_tokens = lengths.shape.nodes + 1
    made.strategy = made._strategy()
    return made


@pytest.mark.parametrize("mode", ["greedy", "mixed", "sampled"])
@pytest.mark.parametrize("waits", [True, False])
def test_an_autoregressive_part_drafts_from_the_mixture(
    mode: str, waits: bool, monkeypatch: pytest.MonkeyPatch, verified: list[Draft]
) -> None:
    """The first draft is drawn from what is stated of it, the loop mixes the rest, and what follows them is certain."""
    rows, seen = 4000, []
    batch, greedy = batch_of(rows, mode)
    own = batch.spec_info.draft_probs.clone()
    made = copying_worker(Texts(2, steps=2, drafts=5), 2, first=own.log() if waits else None)

    def forward(passed: Any) -> SimpleNamespace:
        return SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=own.log()))

    made.draft_runner.forward = forward
    if waits:
        batch.spec_info.hidden_states = torch.ones(rows, 4)
        batch.spec_info.draft_probs = torch.ones(rows, 1)  # see `ZeroHead`
        own = own.log().softmax(-1)

    def loop(self: Any, prepared: Any) -> tuple[Any, ...]:
        given = prepared.spec_info
        assert (self.speculative_num_steps, self.speculative_num_draft_tokens) == (2, 3)
        passed = SimpleNamespace(input_ids=given.topk_index[:, 0])
        seen.append(self.draft_runner.forward(passed).logits_output.next_token_logits)
        second = torch.zeros(rows, 1, dtype=torch.int64)
        probs = torch.stack([given.draft_probs, given.draft_probs], 1)
        return None, None, torch.cat([given.topk_index, second], 1), None if mode == "greedy" else probs

    def prepare(given: Any, pool: Any, asked: Any, graphs: Any, runner: Any, topk: int, steps: int) -> tuple[Any, ...]:
        assert (graphs, topk, steps) == (None, 1, 2)
        return SimpleNamespace(spec_info=given, mark_forward_metadata_ready=lambda: seen.append("ready")), None

    monkeypatch.setattr(EagleDraftWorker, "draft_forward", loop)
    monkeypatch.setattr(autoregressive_worker, "prepare_for_draft", prepare)
    made.req_to_token_pool, made.speculative_num_draft_tokens = None, 6
    made.draft_attn_backend = SimpleNamespace(init_forward_metadata=lambda prepared: seen.append("laid out"))
    made.draft(batch)
    ((tokens, probs),), (laid_out, ready, mixed) = verified, seen
    assert (laid_out, ready) == ("laid out", "ready")
    assert (made.speculative_num_draft_tokens, made.draft_runner.forward) == (6, forward)

    copying = Copying.begin(made.lengths.copied(5))
    expected = copying.mixed(own)
    assert torch.equal(tokens[greedy, 0], expected[greedy].argmax(1))
    following = copying.drafted(tokens[:, 0], copying.drafter_probability(own)).mixed(own)
    assert torch.allclose(mixed.softmax(-1), following, atol=1e-6)
    assert tokens[:, 2:].tolist() == [[3, 4, 5], [0, 0, 0]][::-1] * (rows // 2)
    if mode == "greedy":
        assert probs is None
        return
    assert torch.equal(probs[:, 0], expected)
    assert torch.equal(probs[:, 2:].argmax(2), tokens[:, 2:])
    assert torch.equal(probs[:, 2:].amax(2), torch.ones(rows, 3))
    for kind in (0, 1):  # drawn as often as stated
        drawn = tokens[kind::2, 0][~greedy[kind::2]]
        counts = torch.bincount(drawn, minlength=VOCAB).double() / len(drawn)
        assert (counts - expected[kind]).abs().max() < 4 * (0.25 / len(drawn)) ** 0.5


def test_a_window_reads_the_states_of_every_draft_step(monkeypatch: pytest.MonkeyPatch, verified: list[Draft]) -> None:
    """The target's and the first step's, kept from the step before, and those of the passes of SGLang's loop."""
    rows, size, seen = 3, 4, []
    states = torch.randn(rows, 2, size)
    batch, _ = batch_of(rows, "greedy", states.flatten(1))
    later, tokens = torch.randn(2, rows, size), torch.arange(9).view(rows, 3)

    def loop(self: Any, batch: Any, steps: int, nodes: int, mixing: Any) -> LoopOutput:
        assert torch.equal(batch.spec_info.hidden_states, states[:, 1])
        assert (steps, nodes, mixing) == (3, 3, None)
        return LoopOutput(torch.empty(0), torch.empty(0), tokens, None, list(later))

    def parallel(inputs: DraftInputs, mode: str) -> Draft:
        seen.append(inputs)
        return Draft(torch.full((rows, 2), 7), None)

    monkeypatch.setattr(AutoregressiveDraftWorker, "run_loop", loop)
    made = worker(None, parallel)
    made.loop_steps = made.speculative_num_steps = 3
    made.speculative_num_draft_tokens = 6
    made.strategy = made._strategy()
    made.draft(batch)
    assert torch.equal(seen[0].states, torch.cat([states, later.transpose(0, 1)], 1))
    assert torch.equal(seen[0].tokens, torch.cat([batch.spec_info.bonus_tokens[:, None], tokens], 1))
    assert verified[0].tokens.tolist() == [[*row, 7, 7] for row in tokens.tolist()]


@pytest.mark.parametrize("mode", ["greedy", "mixed", "sampled"])
def test_a_window_behind_it_goes_on_copying(hybrid: Path, mode: str, verified: list[Draft]) -> None:
    part = load_drafter(hybrid).parallel
    assert part is not None
    rows, parallel = 12, Drafting(part, DraftShape(3, 1, 3), copies=True)
    states = torch.randn(rows, 2, 64, generator=torch.Generator().manual_seed(5))
    batch, _ = batch_of(rows, mode, states.view(rows, -1))
    own, made = batch.spec_info.draft_probs.clone(), copying_worker(Texts(4, steps=1), 1, parallel)
    made.draft(batch)
    ((tokens, probs),) = verified
    assert tokens.shape == (rows, 6)

    copying = Copying.begin(made.lengths.copied(6))
    step = BatchSteps(7).begin(batch)
    known = DraftContext(states, torch.stack([batch.spec_info.bonus_tokens, tokens[:, 0]], 1))
    noise = None if mode == "greedy" else counter_uniforms(step.seeds, step.positions, 3)
    after = copying.drafted(tokens[:, 0], copying.drafter_probability(own))
    expected = part.draft(known, step.temperature, noise, 3, step.mode, after)
    assert torch.equal(tokens[:, 1:4], expected.tokens)
    assert torch.equal(tokens[1::2, 1:4], torch.tensor([[2, 3, 4]]).repeat(rows // 2, 1)) or mode != "greedy"
    assert torch.equal(tokens[:, 4:], after.copied.tokens[:, 4:])
    if expected.probs is not None:
        assert torch.allclose(probs[:, :4], torch.cat([copying.mixed(own)[:, None], expected.probs], 1), atol=1e-6)


@pytest.mark.parametrize(("kind", "captured"), [("alone", 3), ("copying", 1), ("parallel", 1)])
def test_a_loop_that_drafts_less_than_is_verified_is_not_captured(
    kind: str, captured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(EagleDraftWorker, "_capture_cuda_graphs", lambda self: steps.append(self.speculative_num_steps))
    made = copying_worker(Texts(), 3) if kind == "copying" else worker(None, "some" if kind == "parallel" else None)
    made.speculative_num_steps = 3
    made._capture_cuda_graphs()
    assert (steps, made.speculative_num_steps) == ([captured], 3)


class Trees(NamedTuple):
    """A strategy for trees, in the place of `AdaptiveTree`'s arguments."""

    shape: DraftShape
    parallel: bool
    adapts: bool
    expected: Any


@pytest.mark.parametrize(
    "case",
    [
        Trees(DraftShape(3, 2, 8), parallel=False, adapts=False, expected=None),
        Trees(DraftShape(3, 2, 8, 2), parallel=False, adapts=False, expected=AutoregressiveTree),
        Trees(DraftShape(3, 2, 8), parallel=False, adapts=True, expected=(AdaptiveTree, AutoregressiveTree)),
        Trees(DraftShape(3, 2, 8), parallel=True, adapts=False, expected=TwoPartTree),
        Trees(DraftShape(3, 2, 8), parallel=True, adapts=True, expected=(AdaptiveTree, TwoPartTree)),
    ],
)
def test_what_makes_a_tree(case: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[bool] = []
    monkeypatch.setattr(eagle_tree, "install", lambda: installed.append(True))
    made = worker(None, SimpleNamespace(parallel="a window") if case.parallel else None)
    made.shape, made.lengths = case.shape, Texts() if case.adapts else None
    found = made._strategy()
    if isinstance(case.expected, tuple):
        assert (type(found), type(found.whole)) == case.expected
    else:
        assert found is None if case.expected is None else type(found) is case.expected
    assert bool(installed) == (case.expected is not None and not case.parallel)


@pytest.mark.parametrize(("drafter", "steps", "parallel"), [("fastmtp", 3, None), ("hybrid", 1, DraftShape(3, 1, 3))])
@pytest.mark.parametrize("copied", [0, 2])
def test_a_worker_is_completed(
    drafter: str,
    steps: int,
    parallel: DraftShape | None,
    copied: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SGLang's loop is as long as the autoregressive part's drafts; a parallel part drafts the rest."""
    folder = request.getfixturevalue(drafter)
    drafts = steps + (parallel.depth if parallel else 0) + copied
    spec = SimpleNamespace(
        speculative_draft_model_path=str(folder),
        speculative_token_map="?copy=true" if copied else None,
        speculative_num_steps=drafts,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=drafts + 1,
    )
    monkeypatch.setattr(served, "adapts", lambda: False)
    monkeypatch.setattr(served, "get_spec", lambda: spec)
    model = SimpleNamespace(model_path="target", vocab_size=VOCAB, hidden_size=64, dtype=torch.float32)

    def sglang_makes_it(self: Any, target_worker: Any) -> None:
        self.target_worker, self.device = target_worker, "cpu"
        self.draft_runner = SimpleNamespace(model=SimpleNamespace(with_head_inputs=None))

    monkeypatch.setattr(EagleDraftWorker, "__init__", sglang_makes_it)
    monkeypatch.setattr(autoregressive_worker, "get_parallel", lambda: SimpleNamespace(tp_rank=0, dp_rank=None))
    made: Any = AutoregressiveDraftWorker(
        SimpleNamespace(model_config=model, model_runner=SimpleNamespace(model=None), random_seed=7)
    )
    assert (made.steps.random_seed, made.vocabularies, made.requests, made.metrics) == (7, None, None, None)
    assert (made.shape, made.speculative_num_steps) == (DraftShape(drafts, 1, drafts), steps)
    assert (made.parallel and made.parallel.shape) == parallel
    assert (made.lengths is not None) == bool(copied)
    assert made.parallel is None or made.parallel.copies == bool(copied)
    expected = AdaptiveChain if copied else TwoPartChain if parallel else None
    assert made.strategy is None if expected is None else type(made.strategy) is expected


class Head(nn.Module):
    """An output head with such a weight."""

    def __init__(self, weight: torch.Tensor | None) -> None:
        super().__init__()
        self.weight = weight


def model() -> Any:
    """A model without layers."""
    made = DraftLayersModel.__new__(DraftLayersModel)
    nn.Module.__init__(made)
    made.model = nn.Module()
    made.model.own, made.model.dtype = None, torch.float32
    made.method, made.drafter = SimpleNamespace(algorithm="X", title="X"), SimpleNamespace(hidden_size=4, vocab_size=6)
    return made


def target(weight: torch.Tensor | None) -> Any:
    """A target with this head."""
    return SimpleNamespace(model=SimpleNamespace(embed_tokens=nn.Embedding(6, 4)), lm_head=Head(weight))


def test_a_target_without_a_fitting_head_is_refused() -> None:
    for weight in (None, torch.zeros(6, 3), torch.zeros(6, 4, dtype=torch.int8)):
        with pytest.raises(MTPCError, match=r"needs an output head for states of 4 numbers, which the target lacks"):
            model().share(target(weight), VOCABULARIES, None)
        model().share(target(weight), None, None)  # SGLang computes with it


def test_a_multimodal_target_shares_those_of_its_language_model() -> None:
    text, made = target(torch.zeros(6, 4)), model()
    made.share(SimpleNamespace(language_model=text), None, None)
    assert (made.model.embed_tokens, made.output.lm_head) == (text.model.embed_tokens, text.lm_head)
    with pytest.raises(MTPCError, match=r"the drafter shares model\.embed_tokens of the target, which SGLang's"):
        model().share(SimpleNamespace(), None, None)


def test_rows_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two ranks has none of the tokens, and is sent its share of them."""
    head, ids = torch.randn(3, 4), VOCABULARIES.ids[0].tolist()
    sent = iter([head[ids[:2]], torch.cat([head[ids[2:]], torch.zeros(1, 4)])])
    group = SimpleNamespace(all_gather=lambda own: torch.cat([next(sent), own], -1))
    monkeypatch.setattr(ranks, "get_parallel", lambda: SimpleNamespace(tp_rank=1, tp_size=2, tp_group=group))
    one = model()
    one.share(target(torch.randn(3, 4)), VOCABULARIES, None)
    assert torch.equal(one.output.draft_logits.rows[0].share, torch.cat([head[2:], torch.zeros(1, 4)]))


@pytest.mark.parametrize(("device", "made"), [("cpu", DraftLogits), ("meta", UnionLogits)])
def test_elsewhere_than_on_a_cpu_shapes_are_static(
    device: str, made: type[DraftLogits], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = SimpleNamespace(all_gather=lambda own: own)
    monkeypatch.setattr(ranks, "get_parallel", lambda: SimpleNamespace(tp_rank=0, tp_size=1, tp_group=group))
    one = model()
    one.share(target(torch.empty(6, 4, device=device)), VOCABULARIES, None)
    assert type(one.output.draft_logits) is made


@pytest.mark.parametrize("mode", [ForwardMode.DECODE, ForwardMode.EXTEND, ForwardMode.DRAFT_EXTEND_V2])
@pytest.mark.parametrize("waits", [True, False])
def test_a_head_is_asked_later(mode: ForwardMode, waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where first drafts wait, only SGLang's loop of drafts asks it in a pass of the layer."""
    group = SimpleNamespace(all_gather=lambda own: own)
    monkeypatch.setattr(ranks, "get_parallel", lambda: SimpleNamespace(tp_rank=0, tp_size=1, tp_group=group))
    made, states, rows = model(), torch.randn(3, 4), []
    made.share(target(torch.randn(6, 4)), VOCABULARIES, None)
    del made.model  # a module
    made.defers_first_logits, made.model = waits, lambda *_: states

    def process(input_ids: Any, states: torch.Tensor, head: Any, metadata: Any) -> Any:
        logits = head(states)
        rows.append(logits.shape[1])
        return SimpleNamespace(next_token_logits=logits)

    made.logits_processor = process
    batch = SimpleNamespace(spec_info=SimpleNamespace(hidden_states=None), forward_mode=mode, batch_size=3)
    now, later = made(None, None, batch).next_token_logits, made.first_logits(states)
    asked = not waits or mode == ForwardMode.DECODE
    assert rows == [6 if asked else 1, 6]
    assert torch.equal(now, later) == asked
