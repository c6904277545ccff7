"""The V1 runner's proposer without an engine: what it loads, what it warms up, what it reads and how a step begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft import Draft
from mtpc.draft_length.budget import Own
from mtpc.metrics.draft_clock import DraftClock
from mtpc.prompt_lookup.mixture import Copied
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from vllm_mtpc.proposer import Proposer
from vllm_mtpc.request_vocabularies import RequestVocabularies
from vllm_mtpc.step import Step

CPU = torch.device("cpu")


def bare(**attributes: Any) -> Any:
    """As much of one as is given."""
    made = object.__new__(Proposer)
    made.__dict__ |= {"device": CPU, "copying": None, "vocabularies": None, "clock": DraftClock(None)} | attributes
    return made


def split(own: int) -> tuple[int, int]:
    """One draft is the serial part's."""
    return 1, own - 1


@pytest.mark.parametrize("serial", [True, False])
@pytest.mark.parametrize("own", [0, 4])
def test_what_is_loaded(serial: bool, own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A serial part's rows are gathered for each batch anew, once the head is shared."""
    gathered: list[bool] = []
    model = SimpleNamespace(
        gather_rows=lambda static: gathered.append(static), vocabularies=None, split=split, window="the window"
    )
    monkeypatch.setattr(EagleProposer, "load_model", lambda self, target: setattr(self, "model", model))
    made = bare(serial=serial, own=own, _get_model=lambda: model, _compiled=lambda window: f"{window} for one")
    made.hidden_states = torch.zeros(8, 4)
    made.load_model(SimpleNamespace(compute_logits=lambda states: None))
    assert gathered == [False] * serial
    assert made.vocabularies is None
    assert (made.num_speculative_tokens, made.window_drafts) == split(own)
    assert (made.window, made.draft_one) == (("the window", "the window for one") if own else (None, None))


def test_without_a_serial_part_metadata_is_of_the_targets_first_group() -> None:
    groups = [SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=size)) for size in (16, 32)]
    made = bare(serial=False, backlog=None)
    made.initialize_attn_backend(SimpleNamespace(kv_cache_groups=groups))
    assert (made.draft_attn_groups, made.kv_cache_gid, made.block_size) == ([], 0, 16)
    assert made.backlog is None


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_warmed_up(copies: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest batch and one request in each mode, as steps have them: with something to copy or with nothing."""
    steps: list[Step] = []
    passes: list[int] = []
    monkeypatch.setattr(EagleProposer, "dummy_run", lambda self, tokens, *_: passes.append(tokens))
    made = bare(
        serial=True,
        window=SimpleNamespace(),
        num_speculative_tokens=1,
        window_drafts=2,
        max_batch_size=3,
        hidden_states=torch.randn(8, 4),
        copying="some" if copies else None,
        _draft_window=steps.append,
    )
    made.dummy_run(1 if rows == 1 else 8)
    assert passes == [1 if rows == 1 else 8]
    largest = [] if rows == 1 else [(3, "mixed")]
    assert [(len(step.tokens[0]), step.mode) for step in steps] == [*largest, (1, "greedy"), (1, "sampled")]
    for step in steps:
        batch = len(step.tokens[0])
        assert (step.serial, step.window) == (1, 2)
        assert step.known().states.shape == (batch, 2, 4)
        assert (step.noise is None) == (step.mode == "greedy")
        assert step.noise is None or step.noise.shape == (batch, 3)
        assert (step.copying is not None) == copies
        if step.copying is not None:
            assert step.copying.done == 1
            assert step.copying.copied.tokens.shape == step.copying.copied.chances.shape == (batch, 3)
            assert not step.copying.copied.chances.any()


@pytest.mark.parametrize(("copies", "looked"), [(True, False), (True, True), (False, False)])
def test_what_the_target_said_is_read(copies: bool, looked: bool) -> None:
    """Of every request of the batch, but while its prompt is read; who is gone is forgotten."""
    rankings = Rankings(60, {"low": Ranking(tuple(range(30))), "high": Ranking(tuple(range(59, 29, -1)))})
    vocabularies = RequestVocabularies(LanguageDetector(rankings, surcharge=1.0), CPU)
    gone = {"gone": SimpleNamespace(prompt_token_ids=[1])}
    vocabularies.hear(torch.tensor([[2]]), gone, SimpleNamespace(req_ids=["gone"]))
    given: list[Any] = []
    copying = SimpleNamespace(sampled=lambda *args: given.append(args)) if copies else None
    made = bare(vocabularies=vocabularies, copying=copying, device=CPU)
    if looked:
        made.looked = True
    said = torch.tensor([[3, 4], [57, -1], [58, 59]])
    prompts = {"a": None, "b": [59] * 6, "c": [58] * 6}
    requests: dict[str, Any] = {
        name: SimpleNamespace(prompt_token_ids=prompt, get_token_id=lambda at: 40 + at)
        for name, prompt in prompts.items()
    }
    batch = SimpleNamespace(
        req_ids=["a", "b", "c"], all_greedy=False, generators={}, vocab_size=60, num_tokens_no_spec=[9, 9, 6]
    )
    unread = torch.tensor([False, False, True, True])
    following, counts = made.prepare_next_token_ids_padded(said, requests, batch, unread)
    assert (following.tolist(), counts.tolist()) == ([4, 57, 45], [2, 1, 0])
    assert made.requests == ["a", "b", "c"]
    assert set(vocabularies.readings) == {"a", "b", "c"}
    assert vocabularies.choose(made.requests).tolist() == [0, 1, 1]
    assert {name: reading.tokens for name, reading in vocabularies.readings.items()} == {"a": 2, "b": 7, "c": 6}
    assert len(given) == (copies and not looked)
    assert not made.looked
    for ids, known, tokens, waiting, greedy, seeded in given:
        assert (ids, known, tokens, greedy, seeded) == (["a", "b", "c"], requests, said, False, False)
        assert waiting.tolist() == [False, False, True]


def test_a_step_in_which_the_drafter_drafts_nothing_itself_is_heard_and_waits() -> None:
    """All that follows of it; where something else might be read than what it is given, vLLM prepares it as any."""
    heard, waited, said = [], [], torch.tensor([[3], [4]])
    requests, states = {"a": 1, "b": 2}, torch.randn(2, 4)
    batch = SimpleNamespace(req_ids=["a", "b"], all_greedy=True, generators={})
    mask = SimpleNamespace(gpu=torch.zeros(4, dtype=torch.bool))
    runner = SimpleNamespace(input_batch=batch, requests=requests, discard_request_mask=mask, positions=torch.arange(9))

    def asked(room: bool = True, own: int = 0, rests: bool = False, **others: Any) -> list[list[int]] | None:
        heard.clear()
        waited.clear()
        backlog = SimpleNamespace(has_room=lambda ids: room, wait=lambda *given: waited.append(given))
        copying = SimpleNamespace(
            rests_on=lambda ids, requests, said: rests,
            sampled=lambda *given: heard.append(given),
            own_that_pay=lambda most, seeded: own,
            lengths=lambda draft, most, seeds: ([[5] * most, []], None),
        )
        given = {"serial": True, "backlog": backlog, "copying": copying, "own": 3}
        clock = DraftClock(None, metered=True)
        made = bare(final_norm=lambda states: -states, clock=clock, **given | others)
        drafts: list[list[int]] | None = made.at_once(runner, 2, said, states)
        assert made.looked == (own > 0)
        assert (clock.drafts, list(clock.parts)) == (drafts is not None, ["copying"] * bool(heard))
        return drafts

    assert asked() == [[5, 5], []]
    ((ids, known, tokens, unread, greedy, seeded),) = heard
    assert (ids, known, tokens, greedy, seeded) == (["a", "b"], requests, said, True, False)
    assert unread.tolist() == [False, False]
    ((ids, positions, waiting, following),) = waited
    assert (ids, positions.tolist(), following.tolist()) == (["a", "b"], [0, 1], [3, 4])
    assert torch.equal(waiting, -states)
    later: list[Any] = []
    vocabularies = SimpleNamespace(hear_later=lambda *given: later.append(given))
    assert asked(rests=True, vocabularies=vocabularies) == [[], []] and not heard
    (((ids, told),), ((_, positions, waiting, following),)) = later, waited
    assert (ids, told.tolist(), positions.tolist(), following.tolist()) == (["a", "b"], [[3], [4]], [0, 1], [3, 4])
    assert torch.equal(waiting, -states)
    assert told.data_ptr() != said.data_ptr()  # the runner writes the next step's over these
    assert asked(own=2) is None and heard and not waited
    assert asked(serial=False, backlog=None) and not waited
    for others in ({"room": False}, {"backlog": None}, {"reads_other_states": True}, {"copying": None}):
        assert asked(**others) is None and not heard
    batch.generators = {1: "a generator"}
    assert asked() is None and not heard


def test_after_a_part_of_a_prompt_comes_the_prompts_next_token() -> None:
    """Whatever vLLM says: to both parts of a drafter; where all is read, what the target has said."""
    requests = [SimpleNamespace(prompt_token_ids=[5, 6, 7, 8], num_prompt_tokens=4) for _ in range(2)]
    begun, read, tokens = [], [], torch.tensor([[1], [2]])
    step = SimpleNamespace(serial=1, window=0, drafts=lambda window: Draft(tokens, None))
    made = bare(
        serial=True,
        own=1,
        known=requests,
        final_norm=lambda states: states,
        _begin=lambda *given: begun.append(given) or step,
        _draft_serially=lambda one, drafts, **named: read.append(one),
    )
    metadata = SimpleNamespace(
        seq_lens_cpu_upper_bound=torch.tensor([2, 4, 0]), query_start_loc=torch.tensor([0, 2, 6])
    )
    drafts = made.propose(
        num_speculative_tokens=1,
        target_token_ids=torch.tensor([5, 6, 5, 6, 7, 8]),
        target_positions=torch.tensor([0, 1, 0, 1, 2, 3]),
        target_hidden_states=torch.zeros(6, 4),
        next_token_ids=torch.tensor([8, 3], dtype=torch.int32),
        token_indices_to_sample=None,
        common_attn_metadata=metadata,
        sampling_metadata=SimpleNamespace(generators={}),
    )
    assert torch.equal(drafts, tokens)
    ((_, _, following, *_),), (one,) = begun, read
    assert following.tolist() == one.next_token_ids.tolist() == [7, 3]


@pytest.mark.parametrize(("may_end", "seeded", "passes"), [(True, False, 3), (True, True, 2), (False, False, 2)])
def test_vllms_loop_ends_where_nothing_more_pays(
    may_end: bool, seeded: bool, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three passes, of two that are planned; a batch with a seed, and a GPU, make those that are planned."""
    said = [True, True, False]
    asked: list[Any] = []

    def propose(self: Any, *, num_speculative_tokens: int, **_: Any) -> None:
        for _ in range(num_speculative_tokens):
            self._sample_draft_tokens(torch.zeros(1, 4), None)

    monkeypatch.setattr(EagleProposer, "propose", propose)
    nothing = Copied(torch.zeros(1, 8, dtype=torch.int64), torch.zeros(1, 8))
    copying = SimpleNamespace(
        batch=SimpleNamespace(own=Own(2, serial=2, further=6)),
        own_that_pay=lambda longest, seeds: 2,
        copied=nothing.first,
        goes_on=lambda tokens, peaks: asked.append((tokens.item(), peaks.item())) or said[len(asked) - 1],
    )
    model = SimpleNamespace(most_probable=lambda *_: (torch.tensor([7]), torch.tensor([0.5]), torch.tensor([0.0])))
    clock = DraftClock(None, metered=True)
    made = bare(copying=copying, own=2, may_end=may_end, serial=True, backlog=None, model=model, clock=clock)
    own, begun = made._own_that_pay(8, seeded)
    assert own == (8 if may_end and not seeded else 2)
    made.step = Step([torch.zeros(1, 4)], [torch.tensor([1])], own, 0, "greedy", None, None, None, begun)
    read = SimpleNamespace(_asdict=dict)
    with clock:
        made._draft_serially(read, own)
    assert made.step.drafts(None).tokens.tolist() == [[7] * passes]
    assert asked == ([(7, 0.5)] * 3 if own == 8 else [])


@pytest.mark.parametrize(
    ("probabilistic", "greedy", "random", "mode"),
    [
        (True, False, True, "sampled"),
        (True, False, False, "mixed"),
        (True, True, False, "greedy"),
        (False, False, True, "greedy"),
    ],
)
def test_how_a_step_begins(probabilistic: bool, greedy: bool, random: bool, mode: str) -> None:
    made = bare(own=4, model=SimpleNamespace(split=split), window=SimpleNamespace())
    made._enable_probabilistic_draft_probs = probabilistic
    temperature, states, tokens = torch.ones(2), torch.randn(2, 4), torch.tensor([7, 8])
    sampling = SimpleNamespace(all_greedy=greedy, all_random=random, generators={}, temperature=temperature)
    step = made._begin(3, states, tokens, torch.tensor([5, 6]), sampling)
    assert (step.serial, step.window, step.mode, step.seeded, step.copying) == (1, 2, mode, False, None)
    assert (step.states, step.tokens) == ([states], [tokens])
    assert (step.noise is None) == (mode == "greedy")
    assert step.noise is None or step.noise.shape == (2, 3)


@pytest.mark.parametrize(("pay", "longest", "own"), [(0, 9, 0), (2, 9, 2), (None, 9, 4), (None, 3, 3)])
def test_the_drafter_drafts_what_pays_and_no_more_than_is_its_own(pay: int | None, longest: int, own: int) -> None:
    """pay: what copying says; None: nothing is copied."""
    asked: list[Any] = []
    copied = np.zeros((1, own), np.int64), np.zeros((1, own), np.float32)
    copying = SimpleNamespace(
        own_that_pay=lambda *given: asked.append(given) or pay, copied=lambda count: Copied(*map(torch.tensor, copied))
    )
    found, mixing = bare(own=4, copying=None if pay is None else copying)._own_that_pay(longest, True)
    assert found == own
    assert asked == ([] if pay is None else [(longest, True)])
    assert (mixing is not None) == bool(pay)
    assert bare(own=0, copying=copying)._own_that_pay(longest, False) == (0, None)
