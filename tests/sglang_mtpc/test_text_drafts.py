"""What a step drafts with a text part: the right text, one length, and state that is freed with its request."""

from __future__ import annotations

import gc
import random
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.distributed.parallel_state import get_world_group, init_distributed_environment
from torch import Tensor, multiprocessing

from mtpc.draft import Draft, one_hot
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.cost import DEFAULT_COSTS, StepCost
from mtpc.draft_model.drafting import TextDrafting
from mtpc.draft_model.part import LazyDraft, TextDraft, TextPart
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc import draft_lengths, ranks, served, text_drafts
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchStep, BatchSteps
from sglang_mtpc.text_drafts import TextChain, TextWorker
from tests.sglang_mtpc.stand_ins import VOCAB, batch_of
from tests.support.random_echo import method

DRAFTS, CPU = 4, torch.device("cpu")


class Request:
    """What is read of SGLang's ``Req``."""

    def __init__(self, prompt: list[int]) -> None:
        self.origin_input_ids, self.output_ids = array("q", prompt), array("q", prompt[:1])
        self.over, self.sampling_params = False, SimpleNamespace(custom_params=None)

    def finished(self) -> bool:
        return self.over

    @property
    def text(self) -> list[int]:
        return [*self.origin_input_ids, *self.output_ids]


def echo_part() -> Any:
    """Drafts as many tokens as the text's length, modulo one more than the drafts."""
    return method().text(Path(), SimpleNamespace(vocab_size=VOCAB), "", CPU)


def strategy(part: TextPart | None, shortest: int = 0, laps: list[str] | None = None) -> TextChain:
    """What a worker makes of a text part."""
    drafting = None if part is None else TextDrafting(part, None, ragged=False)
    return TextChain(drafting, VOCAB, CPU, DRAFTS, shortest, ([] if laps is None else laps).append)


def step_of(requests: list[Request], mode: str, steps: BatchSteps) -> tuple[Any, BatchStep, Tensor]:
    """A batch of these requests, its step, and which of them are greedy."""
    batch, greedy = batch_of(len(requests), mode)
    batch.reqs = requests
    return batch, steps.begin(batch), greedy


def check(
    draft: Draft | LazyDraft, requests: list[Request], step: BatchStep, greedy: Tensor, shortest: int
) -> set[int]:
    """Each draft follows its whole text, filled up to the longest; returns the lengths before."""
    noise, lengths = counter_uniforms(step.seeds, step.positions, DRAFTS), set[int]()
    alone = []
    for row, request in enumerate(requests):
        part = echo_part()
        part.add(0, lambda text=request.text: text, [])
        alone.append(part.draft([0], [0.0 if greedy[row] else 1.0], [DRAFTS], noise[row : row + 1]))
        lengths.add(len(alone[-1].tokens[0]))
    length = max(shortest, *lengths)
    assert isinstance(draft, Draft) and draft.tokens.shape == (len(requests), length)
    assert (draft.probs is None) == (step.mode == "greedy")
    for row, ((tokens,), probs, _) in enumerate(alone):
        fill = length - len(tokens)
        assert draft.tokens[row].tolist() == [*tokens, *[0] * fill]
        if draft.probs is not None:
            assert torch.equal(
                draft.probs[row, len(tokens) :], one_hot(draft.tokens[row : row + 1, :fill] * 0, VOCAB)[0]
            )
            if probs is not None:
                assert torch.equal(draft.probs[row, : len(tokens)], probs[0])
    return lengths


def test_drafts_follow_texts_that_grow() -> None:
    """Of requests that come, go and are left out; a step in which none drafts has no drafts, or the fewest allowed."""
    draws = random.Random(1)
    for mode in ("greedy", "mixed", "sampled"):
        for shortest in (0, 1, DRAFTS):
            laps, lengths = list[str](), set[int]()
            drafts, steps = strategy(echo_part(), shortest, laps), BatchSteps(7)
            requests = [Request(draws.choices(range(9), k=4 * size)) for size in range(1, 9)]
            for number in range(20):
                batch, step, greedy = step_of(draws.sample(requests, draws.randint(1, 8)), mode, steps)
                lengths |= check(drafts(batch, step), batch.reqs, step, greedy, shortest)
                for request in batch.reqs:
                    request.output_ids.extend(draws.choices(range(9), k=draws.randint(1, DRAFTS + 1)))
                if number % 3 == 0:
                    requests[number % 8].over = True
                    requests[number % 8] = Request(draws.choices(range(9), k=5))
            assert lengths == set(range(DRAFTS + 1))
            assert laps == ["text"] * 20


def test_lazy_distributions_are_passed_on() -> None:
    lazy, part = SimpleNamespace(stated=torch.tensor([[0.5, 1.0], [0.5, 0.25]])), echo_part()
    part.draft = lambda *given: TextDraft([[1], [2, 3]], None, lazy)
    requests = [Request([3]), Request([4])]
    for mode, shortest in (("sampled", 0), ("mixed", 3)):
        batch, step, _ = step_of(requests, mode, BatchSteps(7))
        draft = strategy(part, shortest)(batch, step)
        assert isinstance(draft, LazyDraft) and draft.probs is lazy
        assert draft.tokens.tolist() == [[1, 0, *[0] * (shortest - 2)], [2, 3, *[0] * (shortest - 2)]]


def test_a_step_without_drafts() -> None:
    for mode in ("greedy", "mixed"):
        for shortest in (0, 1):
            requests = [Request([3] * DRAFTS) for _ in range(4)]  # with its first output a multiple of one more
            batch, step, greedy = step_of(requests, mode, BatchSteps(7))
            assert check(strategy(echo_part(), shortest)(batch, step), requests, step, greedy, shortest) == {0}


def test_greedy_requests_that_are_left_of_a_mixed_batch() -> None:
    """SGLang still calls it mixed; the text part states no distributions."""
    batch, step, greedy = step_of([Request([3] * size) for size in (6, 7)], "greedy", BatchSteps(7))
    draft = strategy(echo_part())(batch, step._replace(mode="mixed"))
    check(draft._replace(probs=None), batch.reqs, step, greedy, 0)
    assert draft.probs is not None
    assert torch.equal(draft.probs, one_hot(draft.tokens, VOCAB))


def test_state_is_freed() -> None:
    """Of requests that finish, that SGLang forgets, and that it begins again without their output."""
    part = echo_part()
    drafts, steps = strategy(part), BatchSteps(7)
    requests = [Request([number] * 6) for number in range(4)]

    def draft(of: list[Request]) -> None:
        drafts(*step_of(of, "greedy", steps)[:2])

    draft(requests)
    assert len(part.texts) == 4
    requests[1].over = True
    requests[2].output_ids = array("q")  # as SGLang does where it retracts a request with input embeddings
    del requests[3]
    gc.collect()
    draft(requests[:1])
    assert list(part.texts.values()) == [requests[0].text]
    requests[2].output_ids.append(8)
    draft([requests[0], requests[2]])
    assert list(part.texts.values()) == [requests[0].text, requests[2].text]
    assert len(drafts.seen) == 2


def draft_on_rank(rank: int, folder: Path) -> None:
    """What one of two ranks drafts, of which only the first has a text part."""
    init_distributed_environment(2, rank, f"file://{folder}/store", rank, "gloo")
    ranks.get_parallel = lambda: SimpleNamespace(tp_group=get_world_group())
    drafts, steps = strategy(None if rank else echo_part()), BatchSteps(7)

    def made(mode: str, size: int) -> tuple[Tensor | None, ...]:
        requests = [Request([number] * size) for number in range(4)]
        return tuple(drafts(*step_of(requests, mode, steps)[:2]))

    # Of no drafts, and of three.
    torch.save([made(mode, size) for mode in ("greedy", "mixed") for size in (DRAFTS, 7)], folder / str(rank))


def test_ranks_draft_the_same(loaded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # there are two
    multiprocessing.start_processes(draft_on_rank, (tmp_path,), nprocs=2, start_method="fork")
    first, second = (torch.load(tmp_path / str(rank)) for rank in range(2))
    assert [tokens.shape[1] for tokens, _ in first] == [0, 3, 0, 3]
    assert first[3][0].any() and first[3][1] is not None
    for (tokens, probs), (others, stated) in zip(first, second, strict=True):
        assert torch.equal(tokens, others)
        assert (probs is None) == (stated is None)
        assert probs is None or torch.equal(probs, stated)


def test_what_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the target and the text part, on each rank, where lengths adapt by costs that nobody has set."""
    monkeypatch.setattr(text_drafts, "seconds_of_first_rank", lambda seconds: seconds)
    monkeypatch.setattr(text_drafts, "get_schedule", lambda: SimpleNamespace(max_running_requests=2))
    monkeypatch.setattr(served, "folder", lambda: "folder")
    monkeypatch.setattr(served, "config", lambda: SimpleNamespace(own_drafts=DRAFTS))
    monkeypatch.setattr(served, "announce_cost", lambda cost: None)
    steps: list[int] = []
    monkeypatch.setattr(text_drafts, "make_dummy_step", lambda runner: steps.append)
    for adapts, cost, copies, first, timed in (
        (True, None, False, True, True),
        (True, None, True, False, True),
        (True, StepCost(), False, True, False),
        (False, None, True, True, False),
        (False, None, False, True, False),
    ):
        for name, value in (("adapts", adapts), ("step_cost", cost), ("copies", copies)):
            monkeypatch.setattr(served, name, lambda value=value: value)
        made, part, drafted = object.__new__(TextWorker), echo_part(), list[tuple[int, int]]()
        monkeypatch.setattr(part, "dummy_draft", lambda *sizes, drafted=drafted: drafted.append(sizes))
        made.device, made.shape = CPU, DraftShape(DRAFTS, 1, DRAFTS)
        made._target_worker = SimpleNamespace(model_runner=None)
        made.text = made._drafting(part) if first else None
        steps.clear()
        made.init_cuda_graphs()
        assert bool(steps) == timed
        assert set(drafted) == ({(1, DRAFTS)} if timed and first else set())
        if made.text is not None:
            lengths = made.text.lengths
            assert (lengths is not None) == (adapts or copies)
            assert lengths is None or lengths.copies == copies
            assert not timed or (lengths is not None and lengths.cost is not DEFAULT_COSTS)


def test_prompt_lookup_drafts_in_its_place() -> None:
    """The draft of a batch is as long as the longest; a request that copies has certain tokens."""
    for mode in ("greedy", "sampled"):
        part = echo_part()
        drafting = TextDrafting.of(part, Path("none"), 2, DRAFTS, copies=True, cost=None, ragged=False)
        drafts = TextChain(drafting, VOCAB, CPU, DRAFTS, 0, lambda part: None)
        requests = [Request([1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1]), Request([5, 6, 7, 5])]
        requests[0].output_ids = array("q", [2])
        batch, step, _ = step_of(requests, mode, BatchSteps(7))
        draft = drafts(batch, step)
        assert isinstance(draft, Draft)
        assert draft.tokens[0].tolist() == [3, 4, 1, 2]
        if draft.probs is not None:
            assert torch.equal(draft.probs[0], one_hot(draft.tokens[:1], VOCAB)[0])
            assert torch.allclose(draft.probs.sum(2), torch.ones(2, DRAFTS))


def test_a_predicted_output_is_copied_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies replace the drafts of a text part, and are available to drafters with other parts."""
    tokenizer = SimpleNamespace(encode=lambda text, add_special_tokens: list(text.encode()))
    monkeypatch.setattr(draft_lengths, "load_tokenizer", lambda name: tokenizer)
    monkeypatch.setattr(draft_lengths, "get_serving", lambda: SimpleNamespace(tokenizer_path="target"))
    drafting = TextDrafting.of(echo_part(), Path("none"), 2, DRAFTS, copies=True, cost=None, ragged=False)
    drafts = TextChain(drafting, VOCAB, CPU, DRAFTS, 0, lambda part: None)
    requests = [Request([1, 2, 3]), Request([1, 2, 3])]
    requests[0].sampling_params.custom_params = {"prediction": "a prediction"}
    for request in requests:
        request.output_ids = array("q", list(b"a p"))
    draft = drafts(*step_of(requests, "greedy", BatchSteps(7))[:2])
    assert bytes(draft.tokens[0].tolist()) == b"redi" != bytes(draft.tokens[1].tolist())
    shape = DraftShape(DRAFTS, 1, DRAFTS)
    lengths = draft_lengths.WorkerLengths(CopyTable(), CPU, DraftBudget(0), shape, None, True, VOCAB)
    lengths.begin(requests)
    assert bytes(lengths.copied(DRAFTS).tokens[0].tolist()) == b"redi"
    assert not lengths.copied(DRAFTS).chances[1].any()
