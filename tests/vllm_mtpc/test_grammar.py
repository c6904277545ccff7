"""Drafts of requests with a grammar are greedy and stated as certain, at any temperature and in any batch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from mtpc.draft import Draft, one_hot
from mtpc.draft_model.part import TextDraft
from mtpc.draw import choose
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.methods.drafter import load_drafter
from mtpc.metrics.draft_clock import DraftClock
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.prediction import Predictions
from mtpc.verify.rejection import verify_rejection
from vllm_mtpc.request_parameters import has_grammar
from vllm_mtpc.v1.proposer import Proposer
from vllm_mtpc.v1.text_drafts import TextDrafts
from vllm_mtpc.v2.speculator import Speculator

DRAFTS, VOCABULARY = 5, 258
ROWS, GRAMMARS = 4, (0, 2)


def parameters(grammar: bool) -> SamplingParams:
    """Of vLLM."""
    return SamplingParams(structured_outputs=StructuredOutputsParams(regex="[a-z]*") if grammar else None)


def requests() -> list[Any]:
    """Every other one has a grammar."""
    return [SimpleNamespace(sampling_params=parameters(row in GRAMMARS)) for row in range(ROWS)]


def test_which_requests_have_a_grammar() -> None:
    assert [row for row, one in enumerate(requests()) if has_grammar(one)] == list(GRAMMARS)
    assert not has_grammar(SimpleNamespace(sampling_params=None))


@pytest.mark.parametrize("certain", [True, False])
def test_a_cut_draft_keeps_the_distribution_only_if_it_is_certain(certain: bool) -> None:
    """What `has_grammar` explains, of one position: vLLM verifies what the grammar allows, and samples the rest."""
    generator, size, samples = torch.Generator().manual_seed(1), 8, 20_000
    p, q = torch.randn(2, size, generator=generator).softmax(-1)
    allowed = torch.arange(size) % 2 == 0
    allowed[int(q.argmax())] = True
    masked = (p * allowed / p[allowed].sum()).expand(samples, size)
    noise = torch.rand(3, samples, generator=generator, dtype=torch.float64)
    stated = one_hot(q.argmax().expand(samples, 1), size) if certain else q.expand(samples, 1, size)
    drafted = choose(stated[:, 0], torch.ones(samples), noise[0])
    verified = verify_rejection(
        drafted[:, None], stated, masked[:, None].expand(samples, 2, size), noise[1:2].T, noise[2]
    )
    sampled = choose(masked, torch.ones(samples), noise[2])
    first = torch.where(allowed[drafted], verified.tokens[:, 0], sampled).tolist()
    counts = {token: first.count(token) for token in set(first)}
    p_value = chi_square(counts, dict(enumerate(masked[0].tolist()))).p
    assert (p_value > REJECT_BELOW) == certain


def proposer(drafter: Path, batch: list[Any]) -> Any:
    """As much of one as drafting a window takes."""
    parallel = load_drafter(drafter).parallel
    made = object.__new__(Proposer)
    model = SimpleNamespace(split=lambda own: (0, own), with_head_inputs=lambda known, numbers: known)
    made.__dict__ |= {"parallel": parallel, "draft_single": parallel, "model": model, "vocabularies": None}
    made.__dict__ |= {"_enable_probabilistic_draft_probs": True, "request_states": batch}
    return made


def drafted(made: Any, temperature: Tensor, copying: Copying | None) -> Draft:
    """The draft of a step."""
    rows = len(made.request_states)
    sampling: Any = SimpleNamespace(
        all_greedy=False, all_random=bool((temperature > 0).all()), temperature=temperature, generators={}
    )
    states = torch.randn(rows, 64, generator=torch.Generator().manual_seed(1))
    step = made._begin(DRAFTS, states, torch.arange(rows), torch.arange(rows) + 9, sampling, copying)
    draft: Draft = step.drafts(made._draft_parallel(step))
    assert sampling.temperature is temperature and bool((temperature[list(GRAMMARS)[:1]] > 0).all())
    return draft


@pytest.mark.parametrize("copies", [True, False])
def test_on_the_v1_runner(drafter: Path, copies: bool) -> None:
    """The most probable tokens, with those of prompt lookup; others are drawn, and state what they are drawn from."""
    copying = None
    if copies:
        copying = Copying.begin(Copied(torch.full((ROWS, DRAFTS), 99), torch.full((ROWS, DRAFTS), 0.6)))
    made = proposer(drafter, requests())
    for temperature in (torch.full((ROWS,), 0.9), torch.tensor([0.9, 0.0, 0.9, 0.9])):
        one, other = (drafted(made, temperature, copying) for _ in range(2))
        assert one.probs is not None
        for row in GRAMMARS:
            assert torch.equal(one.tokens[row], other.tokens[row])
            assert torch.equal(one.probs[row], one_hot(one.tokens[row : row + 1], VOCABULARY)[0])
        assert (one.probs[3].amax(1) < 1).all()
        assert not torch.equal(one.tokens[3], other.tokens[3])
        assert (one.tokens[0] == 99).all() == copies
    alone = proposer(drafter, requests()[:1])
    alone.draft_single = alone.parallel.draft
    alone = drafted(alone, torch.full((1,), 0.9), None if copying is None else copying.of_rows(slice(1)))
    assert alone.probs is None  # which counts as certain
    assert torch.equal(alone.tokens[0], one.tokens[0])


def test_of_a_text_part() -> None:
    """It is asked for greedy drafts, whatever the temperature."""
    asked: list[list[float]] = []

    class Drafting:
        def add(self, *given: Any) -> None:
            pass

        def forget(self, names: list[str]) -> None:
            pass

        def draft(self, keys: Any, temperatures: list[float], *rest: Any) -> Any:
            asked.append(temperatures)
            return TextDraft([[] for _ in keys], None)

    drafts, named = TextDrafts(Drafting(), Predictions(dict, 99)), {}  # type: ignore[arg-type]
    for row, one in enumerate(requests()):
        vars(one).update(prompt_token_ids=[1], num_prompt_tokens=1, output_token_ids=[])
        named[str(row)] = one
    drafts.begin_step(list(named), named, torch.ones(ROWS, 1), torch.tensor([False, False, False, True]))
    drafts.draft(3, [0.9, 0.8, 0.7, 0.6], {})
    assert asked == [[0.0, 0.8, 0.0]]


def test_on_model_runner_v2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafted at temperature 0, and stated for the request's own, by slot; others as they are."""
    seen: list[Tensor] = []
    slots, temperature = torch.tensor([2, 0, 3, 1]), torch.tensor([1.0, 0.3, 0.7, 0.0])

    def propose(self: Any, *given: Any, num_speculative_tokens: int, dummy_run: bool, **named: Any) -> None:
        seen.append(given[9])

    monkeypatch.setattr(EagleSpeculator, "propose", propose)
    made: Any = Speculator.__new__(Speculator)
    made.grammars, made.copying, made.languages, made.autoregressive = set(), None, None, True
    made.num_speculative_steps = made.autoregressive_drafts = 3
    made.clock, made.final_norm, made.device = DraftClock(None), lambda states: states, torch.device("cpu")
    made.idx_mapping, made.draft_tokens = slots.int(), torch.randint(VOCABULARY, (ROWS, 3))
    before = torch.randn(ROWS, 3, VOCABULARY)
    batch = SimpleNamespace(num_reqs=ROWS, idx_mapping=slots.int(), idx_mapping_np=slots.numpy())
    for row, one in enumerate(requests()):
        made.begin_request(int(slots[row]), one)
    for dtype in (torch.float32, torch.bfloat16):
        made.draft_logits = before.to(dtype)
        drafts = made.propose(batch, None, None, torch.zeros(9, 4), None, None, None, None, None, temperature, None)
        assert seen.pop().tolist() == [temperature[slot] * (slot not in (2, 3)) for slot in range(ROWS)]
        for row, slot in enumerate(slots.tolist()):
            if row in GRAMMARS:  # slots 2 and 3, of temperatures 0.7 and 0
                stated = (made.draft_logits[slot].float() / (temperature[slot] or 1.0)).softmax(-1)
                torch.testing.assert_close(stated, one_hot(drafts[row : row + 1], VOCABULARY)[0])
                assert made.draft_logits[slot].isfinite().all()
            else:
                assert torch.equal(made.draft_logits[slot], before[slot].to(dtype))
    kept = made.draft_logits.clone()
    for slot in (2, 3):  # other requests come
        made.begin_request(slot, requests()[1])
    made.propose(batch, None, None, torch.zeros(9, 4), None, None, None, None, None, temperature, None)
    assert seen.pop() is temperature and torch.equal(made.draft_logits, kept)
    made.begin_request(2, requests()[0])
    made.propose(batch, None, None, torch.zeros(9, 4), None, None, None, None, None, temperature, None, dummy_run=True)
    made.draft_logits = None  # drafts are greedy anyway
    made.propose(batch, None, None, torch.zeros(9, 4), None, None, None, None, None, temperature, None)
    assert all(one is temperature for one in seen)
