"""The V1 runner's proposer without an engine: what it loads, what it warms up, what it reads and how a step begins."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft import Draft
from mtpc.draft_length.cost import Sampling
from mtpc.metrics.draft_clock import DraftClock
from mtpc.prompt_lookup.mixture import Copied
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from tests.vllm_mtpc.v1.step_runner import StepRunner
from vllm_mtpc.v1.proposer import Proposer
from vllm_mtpc.v1.request_vocabularies import V1RequestVocabularies
from vllm_mtpc.v1.step import V1DraftStep

CPU = torch.device("cpu")


def bare(**attributes: Any) -> Any:
    """As much of one as is given."""
    made = object.__new__(Proposer)
    made.__dict__ |= {"device": CPU, "lengths": None, "vocabularies": None, "clock": DraftClock(None)} | attributes
    return made


def split(own: int) -> tuple[int, int]:
    """One draft is the autoregressive part's."""
    return 1, own - 1


@pytest.mark.parametrize("autoregressive", [True, False])
@pytest.mark.parametrize("own", [0, 4])
def test_what_is_loaded(autoregressive: bool, own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is shared, then rows of its head are gathered for each batch anew."""
    gathered: list[Any] = []
    model = SimpleNamespace(
        share_target=gathered.append,
        gather_rows=lambda static: gathered.append(static),
        vocabularies=None,
        split=split,
        parallel="the window",
        draft_logits=None,
        parameters=list,
        buffers=list,
    )
    monkeypatch.setattr(EagleProposer, "load_model", lambda self, target: setattr(self, "model", model))
    made = bare(
        autoregressive=autoregressive,
        drafter_tokens=own,
        _get_model=lambda: model,
        _compiled=lambda parallel: f"{parallel} for one",
    )
    made.hidden_states = torch.zeros(8, 4)
    target = SimpleNamespace(compute_logits=lambda states: None)
    made.load_model(target)
    assert gathered == [target, False]
    assert made.vocabularies is None
    assert (made.num_speculative_tokens, made.parallel_drafts) == split(own)
    assert (made.parallel, made.draft_single) == (("the window", "the window for one") if own else (None, None))


def test_without_an_autoregressive_part_metadata_is_of_the_targets_first_group() -> None:
    groups = [SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=size)) for size in (16, 32)]
    made = bare(autoregressive=False)
    made.initialize_attn_backend(SimpleNamespace(kv_cache_groups=groups))
    assert (made.draft_attn_groups, made.kv_cache_gid, made.block_size) == ([], 0, 16)


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_warmed_up(copies: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest batch and one request in each mode, as steps have them: with something to copy or with nothing."""
    steps: list[V1DraftStep] = []
    passes: list[int] = []
    monkeypatch.setattr(EagleProposer, "dummy_run", lambda self, tokens, *_: passes.append(tokens))
    made = bare(
        autoregressive=True,
        parallel=SimpleNamespace(),
        num_speculative_tokens=1,
        parallel_drafts=2,
        max_batch_size=3,
        hidden_states=torch.randn(8, 4),
        drafter_tokens=3,
        model=SimpleNamespace(split=split),
        lengths=SimpleNamespace(controller=SimpleNamespace(copies=copies)),
        _draft_parallel=steps.append,
    )
    made.dummy_run(1 if rows == 1 else 8)
    assert passes == [1 if rows == 1 else 8]
    largest = [] if rows == 1 else [(3, "mixed")]
    assert [(len(step.tokens[0]), step.mode) for step in steps] == [*largest, (1, "greedy"), (1, "sampled")]
    for step in steps:
        batch = len(step.tokens[0])
        assert (step.autoregressive, step.parallel) == (1, 2)
        assert step.context().states.shape == (batch, 2, 4)
        assert (step.noise is None) == (step.mode == "greedy")
        assert step.noise is None or step.noise.shape == (batch, 3)
        assert (step.copying is not None) == copies
        if step.copying is not None:
            assert step.copying.done == 1
            assert step.copying.copied.tokens.shape == step.copying.copied.chances.shape == (batch, 3)
            assert not step.copying.copied.chances.any()


@pytest.mark.parametrize("chooses", [True, False])
def test_what_the_target_said_is_read(chooses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every request of the batch, but while its prompt is read; who is gone is forgotten."""
    rankings = Rankings(60, {"low": Ranking(tuple(range(30))), "high": Ranking(tuple(range(59, 29, -1)))})
    vocabularies = V1RequestVocabularies(LanguageDetector(rankings, surcharge=1.0), CPU)
    gone = {"gone": SimpleNamespace(prompt_token_ids=[1], output_token_ids=[])}
    vocabularies.record_step(torch.tensor([[2]]), gone, SimpleNamespace(req_ids=["gone"]))
    given: list[Any] = []
    lengths = SimpleNamespace(begin_step=lambda *args: given.append(args)) if chooses else None
    made = bare(vocabularies=vocabularies, lengths=lengths, device=CPU, request_ids=[])
    sampled = torch.tensor([[3, 4], [57, -1], [58, 59]])
    prompts = {"a": None, "b": [59] * 6, "c": [58] * 6}
    requests: dict[str, Any] = {
        name: SimpleNamespace(prompt_token_ids=prompt, output_token_ids=[], sampling_params=None)
        for name, prompt in prompts.items()
    }
    batch = SimpleNamespace(req_ids=["a", "b", "c"], all_greedy=False, generators={})
    monkeypatch.setattr(EagleProposer, "prepare_next_token_ids_padded", lambda self, *arguments: arguments)
    unread = torch.tensor([False, False, True, True])
    arguments = (sampled, requests, batch, unread)
    assert made.prepare_next_token_ids_padded(*arguments) == arguments
    assert made.request_ids == ["a", "b", "c"]
    assert set(vocabularies.readings) == {"a", "b", "c"}
    assert vocabularies.choose(made.request_ids).tolist() == [0, 1, 1]
    assert {name: reading.tokens for name, reading in vocabularies.readings.items()} == {"a": 2, "b": 7, "c": 6}
    assert len(given) == chooses
    for ids, known, tokens, waiting, greedy in given:
        assert (ids, known, tokens, greedy) == (["a", "b", "c"], requests, sampled, False)
        assert waiting.tolist() == [False, False, True]


def test_where_drafts_have_one_length_a_limit_is_ignored_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """In the step in which its request comes, as every step would take time."""
    made, read = bare(vocabularies=None, lengths=None, request_ids=[]), list[str]()

    class Parameters:
        def __init__(self, name: str, limit: Any) -> None:
            self.name, self.limit = name, limit

        @property
        def extra_args(self) -> dict[str, Any]:
            read.append(self.name)
            return {"max_draft_tokens": self.limit}

    limits = {"a": None, "b": 3, "c": 0}
    requests = {name: SimpleNamespace(sampling_params=Parameters(name, limit)) for name, limit in limits.items()}
    for ids in (["a"], ["a", "b"], ["b", "c"], ["c"]):
        made._begin_step(ids, requests, torch.zeros(len(ids), 1), torch.zeros(len(ids)), None)
    message = "'max_draft_tokens' of requests is ignored: all drafts of this server have num_speculative_tokens tokens."
    assert caplog.messages == [message]
    assert read == ["a", "b", "c"]


class Begun(NamedTuple):
    """What a step is begun with, and what vLLM's loop is called with."""

    own: int
    following: list[int]
    copying: Any
    loop: dict[str, Any]


def proposed(monkeypatch: pytest.MonkeyPatch, longest: int = 1, **attributes: Any) -> tuple[Any, Begun]:
    """The drafts after parts of two prompts, the second of which is read to its end."""
    requests = [SimpleNamespace(prompt_token_ids=[5, 6, 7, 8], num_prompt_tokens=4) for _ in range(2)]
    begun, read, tokens = [], [], torch.tensor([[1], [2]])
    monkeypatch.setattr(EagleProposer, "propose", lambda self, **named: read.append(named))

    def begin(own: int, states: Any, following: torch.Tensor, positions: Any, sampling: Any, copying: Any) -> Any:
        begun.append((own, following.tolist(), copying))
        return SimpleNamespace(
            autoregressive=min(own, 1), parallel=0, drafts=lambda parallel: Draft(tokens[:, :own], None)
        )

    made = bare(
        autoregressive=True,
        drafter_tokens=1,
        request_states=requests,
        final_norm=lambda states: states,
        _begin=begin,
        **attributes,
    )
    metadata = SimpleNamespace(
        seq_lens_cpu_upper_bound=torch.tensor([2, 4, 0]), query_start_loc=torch.tensor([0, 2, 6])
    )
    drafts = made.propose(
        num_speculative_tokens=longest,
        target_token_ids=torch.tensor([5, 6, 5, 6, 7, 8]),
        target_positions=torch.tensor([0, 1, 0, 1, 2, 3]),
        target_hidden_states=torch.zeros(6, 4),
        next_token_ids=torch.tensor([8, 3], dtype=torch.int32),
        token_indices_to_sample=None,
        common_attn_metadata=metadata,
        sampling_metadata=SimpleNamespace(generators={}),
    )
    return drafts, Begun(*begun[0], read[0])


def test_after_a_part_of_a_prompt_comes_the_prompts_next_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parts of a drafter read that token, whatever token vLLM passes.

    After a whole prompt they read the token that the target has emitted.
    """
    drafts, begun = proposed(monkeypatch)
    assert drafts.tolist() == [[1], [2]]
    assert begun.following == begun.loop["next_token_ids"].tolist() == [7, 3]
    assert begun.copying is None


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("copies", [True, False])
def test_a_draft_is_as_long_as_is_chosen(own: int, copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer reads what the target has read in any step."""
    asked: list[Any] = []
    copied = Copied(torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 1)) if copies else None
    lengths = SimpleNamespace(
        plan=lambda longest, seeded: asked.append((longest, seeded)) or own,
        copied=lambda count: copied,
        cut=lambda draft, longest, seeds: (draft.tokens.tolist(), draft.probs),
    )
    drafts, begun = proposed(monkeypatch, 5, lengths=lengths)
    assert asked == [(5, False)]
    assert drafts == [[1][:own], [2][:own]]
    assert (begun.own, begun.loop["num_speculative_tokens"]) == (own, own)
    assert (begun.copying is not None) == (copies and own > 0)


def test_steps_and_drafts_are_timed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step's own dummy run of the drafter is left out; what the user gives or forbids is not timed."""
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(EagleProposer, "dummy_run", lambda self, tokens, *_: calls.append(("layer", tokens)))

    def run(tokens: int, force_attention: bool) -> tuple[torch.Tensor, None]:
        assert force_attention
        made.dummy_run(tokens)
        calls.append(("step", tokens))
        return torch.zeros(tokens, 4), None

    target = SimpleNamespace(compute_logits=lambda states: calls.append(("head", len(states))))
    runner = StepRunner(_dummy_run=run, model=target)

    def timed(kind: str) -> Callable[[int], None]:
        return lambda number: calls.append((kind, number))

    draft = SimpleNamespace(
        greedy=lambda states, numbers: calls.append(("draft", len(states))),
        drawn=lambda states, temperature, uniforms, numbers: calls.append(("drawn", len(states))),
        announce_cost=lambda cost: None,
    )
    lengths = SimpleNamespace(is_timed=True, controller=SimpleNamespace(longest=2, cost=None, copies=False))
    made = bare(
        lengths=lengths, autoregressive=True, parallel=None, drafter_tokens=2, num_speculative_tokens=2,
        max_batch_size=4, model=draft, hidden_states=torch.zeros(8, 4), is_first_rank=True,
    )  # fmt: skip
    monkeypatch.setattr("vllm_mtpc.v1.costs.seconds_of_first_rank", lambda seconds: seconds)
    monkeypatch.setattr(
        "vllm_mtpc.v1.costs.sampling_of",
        lambda runner, most, draft: Sampling(timed("sample"), timed("verify"), draft),
    )
    made.time_steps(runner)
    cost = lengths.controller.cost
    assert [tokens for tokens, _ in cost.verifying] == [1, 2, 3, 4, 6, 8, 12]
    assert [requests for requests, _ in cost.drafting] == [1, 4]
    kinds = [kind for kind, _ in calls]
    assert kinds.count("step") == kinds.count("head") == 5 * 7
    assert kinds.count("layer") == 2 * 5 * 2 and kinds.count("draft") == kinds.count("drawn") == 2 * 5 * 2
    assert (kinds.count("sample"), kinds.count("verify")) == (5 * 4, 5 * 6)  # of up to 4 requests, of 2 to 12 tokens
    assert cost.of(greedy=False).verifying
    calls.clear()
    lengths.is_timed = False
    made.time_steps(runner)
    assert not calls
