"""vLLM's own drafters on the V1 runner with prompt lookup, without an engine: what is drafted, stated and timed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.v1.spec_decode.eagle import EagleProposer
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

from mtpc.draft_length.cost import Sampling
from mtpc.errors import MTPCError
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.request import CopyRequest, batch_proposals
from mtpc.prompt_lookup.table import CopyTable
from tests.vllm_mtpc.v1.step_runner import StepRunner
from vllm_mtpc.native import v1 as native
from vllm_mtpc.native.v1 import NativeProposer
from vllm_mtpc.v1 import costs

CPU, SIZE, VOCABULARY, DRAFTS = torch.device("cpu"), 5, 9, 4
PROMPTS = {"a": [1, 2, 3, 1, 2], "b": [4, 5, 6], "c": [7, 8, 7]}  # of which b repeats nothing
HEAT = torch.tensor([0.7, 1.3, 0.0])


def requests_of(prompts: dict[str, list[int]]) -> dict[str, Any]:
    """VLLM's, before any token of the target."""
    sampling = SimpleNamespace(extra_args=None)
    return {
        name: SimpleNamespace(prompt_token_ids=prompt, output_token_ids=[], sampling_params=sampling)
        for name, prompt in prompts.items()
    }


class Loop(EagleProposer):
    """In the place of vLLM's proposer: its loop draws from states of its own, and nothing else."""

    def __init__(self, adaptive: bool, ranks: int = 1) -> None:
        config = SimpleNamespace(draft_model_config=SimpleNamespace(model="drafter"))
        self.vllm_config = SimpleNamespace(
            additional_config={"mtpc": {"copy": True, "adaptive": adaptive}},
            speculative_config=config,
            model_config=SimpleNamespace(tokenizer="target", get_vocab_size=lambda: 99),
            parallel_config=SimpleNamespace(data_parallel_size=ranks),
        )
        self.device, self.num_speculative_tokens, self.max_batch_size = CPU, DRAFTS, 4
        self.head = torch.randn(SIZE, VOCABULARY, generator=torch.Generator().manual_seed(0))
        self.head[:, 3] = 0.0
        self.model = SimpleNamespace(compute_logits=self.compute_logits)
        self._enable_probabilistic_draft_probs = True
        self._last_draft_probs: Tensor | None = None
        self.hidden_states = torch.zeros(8, SIZE)
        self.passes: list[int] = []
        self.states = torch.randn(DRAFTS, 3, SIZE, generator=torch.Generator().manual_seed(1))

    def compute_logits(self, states: Tensor) -> Tensor:
        """The token 3 is never drafted."""
        return (states @ self.head).masked_fill(torch.arange(VOCABULARY) == 3, -torch.inf)

    def prepare_next_token_ids_padded(self, sampled: Tensor, *_: Any) -> Any:
        """VLLM's."""
        return sampled[:, 0], torch.ones(len(sampled))

    def loop(self, *, num_speculative_tokens: int, sampling_metadata: Any, **_: Any) -> Tensor:
        """VLLM's loop."""
        self.passes.append(num_speculative_tokens)
        drafts = [
            self._sample_draft_tokens(self.states[step], sampling_metadata) for step in range(num_speculative_tokens)
        ]
        assert all(probs is None for _, probs in drafts)
        return torch.stack([tokens for tokens, _ in drafts], 1) if drafts else torch.empty(3, 0, dtype=torch.int64)

    def dummy_run(self, num_tokens: int) -> None:
        """One for each timed draft."""
        self.passes.append(num_tokens)


@pytest.fixture
def proposer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes one that has been extended; see `Loop`."""
    monkeypatch.setattr(SpecDecodeBaseProposer, "propose", Loop.loop)
    monkeypatch.setattr(native, "check_ranks", lambda config: None)
    monkeypatch.setattr(native, "native_vocabularies", lambda config: None)
    monkeypatch.setattr(native, "get_tensor_model_parallel_rank", lambda: 0)

    def make(**settings: Any) -> Any:
        made: Any = Loop(**settings)
        NativeProposer.begin(made)
        return made

    return make


def step(
    made: Any, emitted: list[int], temperature: Tensor | None, generators: Any = None, start: int = 0
) -> list[list[int]]:
    """Run one step of the runner, in which the target has emitted a token for each request; start: of its positions."""
    requests = made.__dict__.setdefault("requests", requests_of(PROMPTS))
    batch = SimpleNamespace(req_ids=list(PROMPTS), all_greedy=temperature is None)
    tokens = torch.tensor([[token, -1] for token in emitted])
    made.prepare_next_token_ids_padded(tokens, requests, batch, torch.zeros(4, dtype=torch.bool))
    sampling = SimpleNamespace(
        temperature=temperature, all_greedy=temperature is None, all_random=False, generators=generators or {}
    )
    drafts: list[list[int]] = made.propose(
        num_speculative_tokens=DRAFTS,
        target_positions=torch.arange(start, start + 3),
        target_hidden_states=torch.zeros(3, SIZE),
        next_token_ids=torch.tensor(emitted, dtype=torch.int32),
        token_indices_to_sample=torch.arange(3),
        common_attn_metadata=None,
        sampling_metadata=sampling,
    )
    return drafts


def copied_after(emitted: list[int]) -> Copied:
    """What the host copies after each prompt and a token."""
    texts = [[*prompt, token] for prompt, token in zip(PROMPTS.values(), emitted, strict=True)]
    copies = [CopyRequest(CopyTable(), text, VOCABULARY) for text in texts]
    return batch_proposals([copy.propose(DRAFTS) for copy in copies], DRAFTS)


EMITTED = [3, 0, 8]  # after which 1 and 7 are copied


def test_what_is_drafted_and_stated_is_the_mixture(proposer: Any) -> None:
    """At each request's temperature, and again where a request is greedy; tokens that the drafter lacks are copied."""
    made = proposer(adaptive=False)
    drafts, copied = step(made, EMITTED, HEAT), copied_after(EMITTED)
    assert copied.chances.any(1).tolist() == [True, False, True] and made.passes == [DRAFTS]
    copying, stated = Copying.begin(copied), made.take_last_draft_probs()
    for position in range(DRAFTS):
        own = (made.compute_logits(made.states[position]) / HEAT.where(HEAT > 0, 1.0)[:, None]).softmax(-1)
        expected, drawn = copying.mixed(own), torch.tensor(drafts)[:, position]
        torch.testing.assert_close(stated[:, position], expected)
        assert drawn[2] == expected[2].argmax() and (expected.gather(1, drawn[:, None]) > 0).all()
        assert position != 2 or (copying.weight[0] > 0) == (expected[0, 3] > 0)  # 3 is the third token to copy
        copying = copying.drafted(drawn, copying.drafter_probability(own))


@pytest.mark.parametrize("probabilistic", [True, False])
def test_greedy_drafts_are_the_most_probable_of_the_mixture(proposer: Any, probabilistic: bool) -> None:
    made = proposer(adaptive=False)
    made._enable_probabilistic_draft_probs = probabilistic
    drafts, copying = step(made, EMITTED, None if probabilistic else HEAT), Copying.begin(copied_after(EMITTED))
    assert made.take_last_draft_probs() is None
    for position in range(DRAFTS):
        own = made.compute_logits(made.states[position]).softmax(-1)
        expected = copying.mixed(own).argmax(-1)
        assert [draft[position] for draft in drafts] == expected.tolist()
        copying = copying.drafted(expected, copying.drafter_probability(own))
    assert drafts[0][:2] == [1, 2]


def test_draws_of_a_seeded_request_are_its_own(proposer: Any) -> None:
    """They repeat, whatever else is drawn, but at another position they are others."""

    def draws(start: int = 0) -> list[list[int]]:
        return step(proposer(adaptive=True), EMITTED, HEAT, {1: torch.Generator().manual_seed(7)}, start)

    drafts = [draws() for _ in range(20)]
    assert len({tuple(draft[1]) for draft in drafts}) == 1
    assert len({tuple(draft[0]) for draft in drafts}) > 1
    assert {len(draft[1]) for draft in drafts} == {DRAFTS}
    assert len({tuple(draws(start)[1]) for start in range(20)}) > 1


@pytest.mark.parametrize(("ranks", "expected"), [(1, 0), (2, DRAFTS)])
def test_where_all_is_copied_the_model_drafts_nothing(proposer: Any, ranks: int, expected: int) -> None:
    """But where data-parallel ranks make their passes together."""
    made = proposer(adaptive=False, ranks=ranks)
    made.requests = requests_of({name: [1, 2, 3, 5] * 9 for name in PROMPTS})
    drafts = step(made, [1, 1, 1], HEAT)
    assert made.passes == [expected]
    if not expected:
        assert drafts == [[2, 3, 5, 1]] * 3
        assert made.take_last_draft_probs() is None


def test_a_loop_of_another_kind_is_refused(proposer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagleProposer, "propose", lambda self: None, raising=False)
    with pytest.raises(MTPCError, match=r"mtpc.copy is not for drafter, which has a draft loop of its own"):
        proposer(adaptive=False)


def test_steps_and_drafts_are_timed(proposer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's steps without the drafter; and nothing where lengths are not chosen."""
    made, stepped = proposer(adaptive=True), []
    monkeypatch.setattr(costs, "seconds_of_first_rank", lambda seconds: seconds)
    monkeypatch.setattr(costs, "sampling_of", lambda *_: Sampling(lambda size: None, lambda size: None, None))

    def run(tokens: int, force_attention: bool) -> tuple[Tensor, None]:
        stepped.append(tokens)
        made.dummy_run(tokens)
        return torch.zeros(tokens, SIZE), None

    runner = StepRunner(_dummy_run=run, model=made.model)
    before = made.lengths.controller.cost
    made.time_steps(runner)
    assert made.lengths.controller.cost is not before
    assert set(made.passes) == {1, 4} and max(stepped) > 4
    fixed = proposer(adaptive=False)
    stepped.clear()
    fixed.time_steps(runner)
    assert not stepped
    fixed.dummy_run(8)
    assert fixed.passes == [8]
