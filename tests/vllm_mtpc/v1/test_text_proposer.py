"""The V1 runner's proposer of a text part without an engine: what it loads and logs, and how it drafts a step."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.spec_decode.eagle import EagleProposer

from mtpc.draft_length.cost import Sampling
from mtpc.draft_model.drafting import TextDrafting
from mtpc.draft_model.part import TextDraft
from mtpc.errors import MTPCError
from mtpc.methods.mtpc import MTPC
from mtpc.metrics.draft_clock import DraftClock
from mtpc.prompt_lookup.prediction import Predictions
from tests.vllm_mtpc.v1.step_runner import StepRunner
from vllm_mtpc.v1 import text_proposer
from vllm_mtpc.v1.lazy_verification import LAST_DRAFT
from vllm_mtpc.v1.text_drafts import TextDrafts
from vllm_mtpc.v1.text_proposer import TextProposer

VOCABULARY, DRAFTS = 5, 3
CONFIG = SimpleNamespace(own_drafts=DRAFTS)


class Part:
    """Drafts one token for the first request, two for the second and so on."""

    vocab_size = VOCABULARY

    def __init__(self) -> None:
        self.asked: list[tuple[list[float], list[int], Any]] = []
        self.timed: list[tuple[int, int]] = []

    def add(self, key: str, text: Any, emitted: list[int]) -> None:
        assert text()[-len(emitted) :] == emitted

    def draft(self, keys: list[str], temperatures: list[float], lengths: list[int], noise: Any) -> TextDraft:
        self.asked.append((temperatures, lengths, None if noise is None else tuple(noise.shape)))
        probs = torch.full((len(keys), len(keys), VOCABULARY), 0.2) if any(temperatures) else None
        return TextDraft([[row] * (row + 1) for row in range(len(keys))], probs)

    def forget(self, keys: Any) -> None:
        assert not list(keys)

    def dummy_draft(self, requests: int, num_drafts: int) -> None:
        self.timed.append((requests, num_drafts))

    def memory(self) -> int:
        return 12_340_000


def undivided(part: Any) -> TextDrafts:
    """Always asks for whole drafts."""
    return TextDrafts(TextDrafting(part, None, ragged=True), Predictions(dict, 99))


def bare(**attributes: Any) -> Any:
    """As much of one as is given."""
    made = object.__new__(TextProposer)
    clock = DraftClock(None, metered=True)
    made.__dict__ |= {"device": torch.device("cpu"), "clock": clock, "num_speculative_tokens": DRAFTS} | attributes
    return made


@pytest.mark.parametrize("probabilistic", [True, False])
def test_a_step(probabilistic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    part = Part()
    made = bare(drafts=undivided(part), _enable_probabilistic_draft_probs=probabilistic)
    requests = {
        name: SimpleNamespace(
            prompt_token_ids=[1, 2],
            num_prompt_tokens=2,
            output_token_ids=[],
            sampling_params=None,
        )
        for name in "abc"
    }
    batch = SimpleNamespace(req_ids=["a", "b", "c"])
    sampled, unread = torch.tensor([[3, 4], [9, 9], [7, -1]]), torch.tensor([False, True, False, False])
    monkeypatch.setattr(EagleProposer, "prepare_next_token_ids_padded", lambda self, *arguments: arguments)
    made.prepare_next_token_ids_padded(sampled, requests, batch, unread)
    for temperatures in (None, [0.0, 1.0, 0.7]):
        metadata = SimpleNamespace(
            all_greedy=temperatures is None,
            temperature=None if temperatures is None else torch.tensor(temperatures, dtype=torch.float64),
            generators={},
        )
        drafts = made.propose(num_speculative_tokens=DRAFTS, sampling_metadata=metadata, target_positions=None)
        assert drafts == [[0], [], [1, 1]]
        states = probabilistic and temperatures is not None
        expected, shape = ([0.0, 0.7], (2, DRAFTS)) if states else ([0.0, 0.0], None)
        assert part.asked.pop() == (expected, [DRAFTS, DRAFTS], shape)
        probs = made.take_last_draft_probs()
        assert (probs is not None) == states
        if probs is not None:
            assert probs.sum((1, 2)).tolist() == pytest.approx([2.0, 0.0, 2.0])
    assert made.clock.drafts == 2
    assert made.clock.parts["text"] == pytest.approx(made.clock.seconds, rel=0.5)


def test_a_lazy_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner carries two numbers for each token, and the sampler finds the distributions."""
    lazy = SimpleNamespace(stated=torch.tensor([[0.5, 0.25], [0.125, 1.0]], dtype=torch.float64))
    drafts = SimpleNamespace(
        ids=["a", "b", "c"], rows=[0, 2], draft=lambda *given: TextDraft([[1, 2], [], [3]], None, lazy)
    )
    monkeypatch.setattr(LAST_DRAFT, "lazy", None)
    made = bare(drafts=drafts, _enable_probabilistic_draft_probs=True)
    metadata = SimpleNamespace(all_greedy=False, temperature=torch.ones(3), generators={})
    assert made.propose(num_speculative_tokens=2, sampling_metadata=metadata) == [[1, 2], [], [3]]
    assert LAST_DRAFT.lazy is lazy
    expected = [[[0, 0.5], [0, 0.25]], [[0, 0], [0, 0]], [[1, 0.125], [1, 1.0]]]
    assert made.take_last_draft_probs().tolist() == expected


@pytest.mark.parametrize(("is_first_rank", "ranks"), [(True, 1), (True, 2), (False, 2)])
def test_what_is_loaded(
    is_first_rank: bool, ranks: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Drafts are verified lazily where each rank has the part."""
    loaded: list[Any] = []

    def load(*given: Any) -> Part:
        loaded.append(given)
        return Part()

    method, model = MTPC(), SimpleNamespace(tokenizer="the target's", get_vocab_size=lambda: VOCABULARY)
    monkeypatch.setattr(method, "text", load)
    monkeypatch.setattr(text_proposer, "folder_of", lambda config: Path("folder"))
    monkeypatch.setattr(text_proposer, "drafter_of", lambda config: (method, CONFIG))
    monkeypatch.setattr(text_proposer, "get_tensor_model_parallel_world_size", lambda: ranks)
    config = SimpleNamespace(model_config=model, additional_config=None)
    made = bare(is_first_rank=is_first_rank, vllm_config=config, max_batch_size=4)
    made._enable_probabilistic_draft_probs = True
    with caplog.at_level(logging.INFO, "vllm.vllm_mtpc.v1.text_proposer"):
        made.load_model(SimpleNamespace())
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=16))
    made.initialize_attn_backend(SimpleNamespace(kv_cache_groups=[group]))
    made.dummy_run(8)
    assert (made.kv_cache_gid, made.block_size, made.supports_mm_inputs) == (0, 16, False)
    assert loaded == [(Path("folder"), CONFIG, "the target's", made.device)] * is_first_rank
    drafting = made.drafts.drafting
    assert (drafting is not None) == is_first_rank
    assert drafting is None or drafting.part.verifies_lazily == (ranks == 1)
    sentence = "drafts up to 3 tokens; 3 by its text part; drafting from the request's text; weights 0.0 MB"
    assert (sentence in caplog.text) == ("adaptive draft length; the text part takes 12.3 MB" in caplog.text)
    assert (sentence in caplog.text) == is_first_rank


def test_a_draft_model_that_cannot_be_loaded_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*given: Any) -> Part:
        raise MTPCError("the draft model has no tokenizer.")

    method = MTPC()
    monkeypatch.setattr(method, "text", fail)
    monkeypatch.setattr(text_proposer, "folder_of", lambda config: Path("folder"))
    monkeypatch.setattr(text_proposer, "drafter_of", lambda config: (method, None))
    monkeypatch.setenv("MTPC_REFUSAL", str(tmp_path / "message"))
    made = bare(
        is_first_rank=True,
        vllm_config=SimpleNamespace(model_config=SimpleNamespace(tokenizer="x", get_vocab_size=lambda: 9)),
    )
    with pytest.raises(SystemExit, match=r"^mtpc: the draft model has no tokenizer\.$"):
        made.load_model(SimpleNamespace())
    assert (tmp_path / "message").read_text() == "the draft model has no tokenizer."


def test_who_drafts_how_long_is_set_by_the_user() -> None:
    """The part itself drafts what it is made for, and prompt lookup the rest; costs are timed where none is set."""
    cost = {"verifying": [[1, 1.0], [8, 2.0]], "drafting": [[1, 0.5]]}
    for section, device, copies, by_part in (
        ({}, "cpu", False, DRAFTS),
        ({"copy": True}, "cpu", True, 2),
        ({"adaptive": False, "copy": True}, "cpu", True, 2),
        ({"adaptive": False}, "cpu", None, None),
        ({}, "cuda", None, None),
        ({"step_cost": cost}, "cuda", False, DRAFTS),
    ):
        config = SimpleNamespace(additional_config={"mtpc": section})
        part = Part()
        drafting = bare(vllm_config=config, device=torch.device(device))._drafting(part, Path("folder"), 2)
        assert drafting.ragged and drafting.drafts_by_part == by_part
        assert (None if drafting.lengths is None else drafting.lengths.copies) == copies
        assert ("prompt lookup" in drafting.facts) == bool(copies)
        adapts = section.get("adaptive", True) and (device == "cpu" or "step_cost" in section)
        assert ("adaptive draft length" in drafting.facts) == adapts


def test_steps_are_timed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """On each rank; only the first one has a part to time."""
    monkeypatch.setattr("vllm_mtpc.v1.costs.seconds_of_first_rank", lambda seconds: seconds)
    monkeypatch.setattr(text_proposer, "folder_of", lambda config: Path("folder"))
    steps: list[int] = []
    sampling = Sampling(lambda size: None, lambda size: None, None)
    monkeypatch.setattr("vllm_mtpc.v1.costs.sampling_of", lambda *given: sampling)
    model = SimpleNamespace(compute_logits=lambda states: None)

    def dummy_run(tokens: int, **named: Any) -> tuple[torch.Tensor, None]:
        steps.append(tokens)
        return torch.zeros(tokens), None

    runner = StepRunner(_dummy_run=dummy_run, model=model)
    for section, is_first_rank, is_timed in (({}, True, True), ({}, False, True), ({"adaptive": False}, True, False)):
        config, part = SimpleNamespace(additional_config={"mtpc": section}), Part()
        made = bare(vllm_config=config, max_batch_size=4)
        made.drafts = TextDrafts(
            made._drafting(part, Path("folder"), DRAFTS) if is_first_rank else None, Predictions(dict, 99)
        )
        before = None if made.drafts.drafting is None or not is_timed else made.drafts.drafting.lengths.cost
        steps.clear()
        with caplog.at_level(logging.INFO, "vllm.vllm_mtpc.v1.text_proposer"):
            made.time_steps(runner)
        assert bool(steps) == is_timed
        assert set(part.timed) == ({(1, DRAFTS), (4, DRAFTS)} if is_first_rank and is_timed else set())
        if made.drafts.drafting is not None and is_timed:
            assert made.drafts.drafting.lengths.cost is not before
    assert caplog.text.count("relative cost of a decoding step") == 1
