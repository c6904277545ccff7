"""Prompt lookup on Model Runner V2 without an engine.

Buffers replace `Copying`; drafts come from an autoregressive and a parallel part.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from mtpc.draft import DraftContext
from mtpc.noise import counter_uniforms
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.prompt_lookup.request import CopyRequest, batch_proposals
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc.v2 import mixing
from vllm_mtpc.v2.prompt_lookup import DeviceCopying
from vllm_mtpc.v2.speculator import Speculator

SLOTS, SIZE, VOCABULARY, AUTOREGRESSIVE, DRAFTS = 4, 5, 6, 2, 4
TABLE = CopyTable((0.5, 0.8))
TEXTS = {2: [1, 2, 3, 1, 2], 0: [4, 5], 3: [0, 1, 0]}  # by slot
BATCH = torch.tensor([2, 0, 3, -1])  # the last row is padding
ROWS = len(BATCH)
TEMPERATURE = torch.tensor([1.3, 1.0, 0.6, 0.0])  # by slot


def copying_of(texts: dict[int, list[int]]) -> DeviceCopying:
    """After these texts, the last token of each of which is new."""
    table, lengths = torch.zeros(SLOTS, 20, dtype=torch.int32), torch.zeros(SLOTS, dtype=torch.int32)
    copying = DeviceCopying(TABLE, table, lengths, SLOTS + 1, DRAFTS, VOCABULARY)
    for slot, text in texts.items():
        copying.texts[slot, : len(text)] = torch.tensor(text)
        copying.lengths[slot] = len(text)
    copying.num_sampled[:ROWS] = 1
    copying.propose(BATCH)
    return copying


def expected_copies() -> Copied:
    """By the host; nothing for the padded row."""
    proposals = [CopyRequest(TABLE, text, VOCABULARY).propose(DRAFTS) for text in TEXTS.values()]
    return batch_proposals(proposals, DRAFTS)


def test_what_is_proposed_lies_in_buffers_with_nothing_after_it() -> None:
    copying, (tokens, chances) = copying_of(TEXTS), expected_copies()
    assert chances.any(1).tolist() == [True, False, True]
    assert torch.equal(copying.copied.tokens[:3, :-1], tokens)
    torch.testing.assert_close(copying.copied.chances[:3, :-1], chances)
    assert torch.equal(copying.weight[:3], copying.copied.chances[:3, 0])
    assert not copying.copied.chances[:, -1].any()
    assert not copying.copied.chances[ROWS].any()


def test_copies_are_found_for_every_row_of_a_batch() -> None:
    asked: list[Tensor] = []
    speculator: Any = Speculator.__new__(Speculator)
    speculator.copying, speculator.idx_mapping = SimpleNamespace(propose=asked.append), BATCH
    speculator._look_up(3)
    assert [batch.tolist() for batch in asked] == [[2, 0, 3]]


@pytest.mark.parametrize("greedy", [False, True])
def test_a_replayed_graph_mixes_as_the_mixture_does(monkeypatch: pytest.MonkeyPatch, greedy: bool) -> None:
    """Draws are of vLLM; here they are the tokens that would be copied, but for the last row."""
    torch.manual_seed(0)
    stated: list[Tensor] = []
    drawn = torch.empty(ROWS, dtype=torch.int64)

    def sample_draft(self: Any, states: Tensor) -> Tensor:
        stated.append(self.compute_draft_logits(states, 0))
        return drawn

    monkeypatch.setattr(EagleSpeculator, "sample_draft", sample_draft)
    speculator: Any = Speculator.__new__(Speculator)
    head = torch.randn(SIZE, VOCABULARY)

    def compute_logits(states: Tensor, numbers: None = None) -> Tensor:  # the token 3 cannot be drafted
        return (states @ head).masked_fill(torch.arange(VOCABULARY) == 3, -torch.inf)

    speculator.copying, speculator.model = copying_of(TEXTS), SimpleNamespace(compute_logits=compute_logits)
    speculator.parallel_drafts, speculator.languages = 0, None
    speculator.temperature, speculator.idx_mapping = TEMPERATURE, BATCH
    speculator.draft_logits = None if greedy else torch.zeros(SLOTS, DRAFTS, VOCABULARY)
    speculator.current_draft_step = torch.tensor(0)
    output = torch.empty(ROWS, SIZE)
    temperature = torch.ones(ROWS) if greedy else TEMPERATURE[BATCH].where(TEMPERATURE[BATCH] > 0, 1.0)
    buffers = speculator.copying.copied
    reference = Copying.begin(Copied(buffers.tokens[:ROWS, :DRAFTS].clone(), buffers.chances[:ROWS, :DRAFTS].clone()))
    for step in range(DRAFTS):
        output.normal_()
        drawn.copy_(reference.token)
        drawn[2] = (reference.token[2] + (step == 1)) % VOCABULARY
        speculator.current_draft_step.fill_(step)
        speculator.sample_draft(output)  # one and the same for every step, like a captured one
        own = (compute_logits(output) / temperature[:, None]).softmax(-1)
        expected = reference.mixed(own)
        torch.testing.assert_close((stated[-1] / temperature[:, None]).softmax(-1), expected)
        assert torch.equal(stated[-1].argmax(-1), expected.argmax(-1))
        assert stated[-1].dtype == torch.float32
        reference = reference.drafted(drawn, reference.drafter_probability(own))
        torch.testing.assert_close(speculator.copying.weight[:ROWS], reference.weight)
        assert (reference.weight[0] > 0) == (step < DRAFTS - 1)
        assert (reference.weight[2] > 0) == (step < 1)


@pytest.mark.parametrize("probabilistic", [True, False])
def test_a_window_goes_on_with_what_is_left_to_copy(probabilistic: bool) -> None:
    torch.manual_seed(0)
    config = CircuitConfig(circuit="hmm", window=3, rank=2, hidden_size=SIZE, vocab_size=VOCABULARY, leaves="table")
    parallel, drafts = CircuitPart(config), DRAFTS - AUTOREGRESSIVE
    speculator: Any = Speculator.__new__(Speculator)
    speculator.copying = copying_of(TEXTS)
    speculator.model = SimpleNamespace(parallel=parallel, with_head_inputs=lambda known: known)
    speculator.autoregressive_drafts, speculator.parallel_drafts, speculator.max_num_reqs = (
        AUTOREGRESSIVE,
        drafts,
        SLOTS,
    )
    speculator.states = torch.randn(SLOTS, AUTOREGRESSIVE + 1, SIZE)
    speculator.tokens = torch.randint(VOCABULARY, (SLOTS, AUTOREGRESSIVE + 1))
    speculator.positions, speculator.seeds, speculator.idx_mapping = torch.arange(SLOTS), torch.arange(SLOTS), BATCH
    speculator.temperature, speculator.draft_tokens = TEMPERATURE, torch.full((SLOTS, DRAFTS), -5)
    speculator.slot_logits = torch.zeros(SLOTS + 1, DRAFTS, VOCABULARY) if probabilistic else None
    tokens, chances = (rows[:ROWS, AUTOREGRESSIVE:DRAFTS] for rows in speculator.copying.copied)
    weight = torch.tensor([0.7, 0.0, 0.9, 0.0])
    speculator.copying.weight[:ROWS] = weight
    speculator._draft_parallel(ROWS)
    known, copying = DraftContext(speculator.states, speculator.tokens), Copying(Copied(tokens, chances), 0, weight)
    if not probabilistic:
        expected = parallel.draft(known, None, None, drafts, "greedy", copying)
    else:
        temperature = TEMPERATURE[BATCH]
        noise = counter_uniforms(speculator.seeds[BATCH], torch.arange(ROWS), drafts)
        expected = parallel.draft(known, temperature, noise, drafts, "mixed", copying)
        assert expected.probs is not None
        stated = (speculator.slot_logits[2, AUTOREGRESSIVE:] / TEMPERATURE[2]).softmax(-1)
        torch.testing.assert_close(stated, expected.probs[0])
        assert stated[0, tokens[0, 0]] > 0.7
    assert torch.equal(speculator.draft_tokens[:ROWS, AUTOREGRESSIVE:], expected.tokens)


def test_a_new_request_begins_anew_in_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, lengths = torch.zeros(SLOTS, 20, dtype=torch.int32), torch.zeros(SLOTS, dtype=torch.int32)
    monkeypatch.setattr(mixing, "texts_on_device", lambda *_: texts)
    states = SimpleNamespace(req_id_to_index={}, total_len=SimpleNamespace(gpu=lengths))
    states.add_request = lambda request, *_: states.req_id_to_index.update({request: 3})
    speculator: Any = Speculator.__new__(Speculator)
    speculator.max_num_reqs, speculator.num_speculative_steps, speculator.vocab_size = SLOTS, DRAFTS, VOCABULARY
    speculator.device = torch.device("cpu")
    speculator._begin_copying(TABLE, states)
    slots = speculator.copying.slots
    slots.offsets[:] = slots.proposed.chances[:] = 1.0
    states.add_request("a", 3, [1, 2, 3], 0, 5)
    assert slots.offsets.tolist() == [1.0, 1.0, 1.0, 0.0, 1.0]
    assert slots.proposed.chances.tolist() == [[chance] * DRAFTS for chance in slots.offsets.tolist()]
