"""What Model Runner V2 captures of a draft, replayed with other requests: every draft method, copying, and languages.

vLLM's loop stands in for itself: its draws are ours, and a layer is a product; what runs in it and around it is real.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from mtpc.draw import draw_tokens
from mtpc.noise import counter_uniforms
from mtpc.parallel import part
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.prompt_lookup.table import CopyTable
from tests.gpu.whole import Example, OwnVocabularies, examples
from tests.support.fake_graphs import record
from vllm_mtpc.v2.languages import DeviceLanguages
from vllm_mtpc.v2.prompt_lookup import DeviceCopying
from vllm_mtpc.v2.speculator import Speculator

SLOTS, ROWS, LENGTH, DRAFTS = 6, 4, 12, 4
CASES = {name: example for name, example in examples(torch.device("cpu")) if name != "copying"}
BATCHES = (torch.tensor([2, 0, 5, -1]), torch.tensor([1, 3, 2, 0]), torch.tensor([4, -1, -1, -1]))


def speculator(example: Example, drafts: int, copies: bool) -> Any:
    """As much of one as its captured functions take."""
    made: Any = Speculator.__new__(Speculator)
    drafter, (size, vocab) = example.drafter, example.sizes
    made.autoregressive_drafts, made.parallel_drafts = drafter.split(drafts)
    made.max_num_reqs, made.dtype = SLOTS, torch.float32
    made.slot_logits = torch.zeros(SLOTS + 1, drafts, vocab)
    made.draft_logits, made.draft_tokens = made.slot_logits[:SLOTS], torch.zeros(SLOTS, drafts, dtype=torch.int64)
    made.states, made.tokens = (
        torch.zeros(ROWS, made.autoregressive_drafts + 1, size),
        torch.zeros(ROWS, 1, dtype=torch.int64),
    )
    made.tokens = made.tokens.repeat(1, made.autoregressive_drafts + 1)
    made.positions, made.idx_mapping, made.seeds = (torch.zeros(SLOTS, dtype=torch.int64) for _ in range(3))
    made.temperature, made.current_draft_step = torch.zeros(SLOTS), torch.zeros((), dtype=torch.int64)
    texts, lengths = torch.zeros(SLOTS, LENGTH + 1, dtype=torch.int32), torch.zeros(SLOTS, dtype=torch.int32)
    texts, lengths = SimpleNamespace(gpu=texts), SimpleNamespace(gpu=lengths)
    made.req_states = SimpleNamespace(all_token_ids=texts, total_len=lengths, add_request=lambda *_: None)
    made.num_speculative_steps, made.device = drafts, torch.device("cpu")
    made.copying = made.languages = None
    if copies:
        made.copying = DeviceCopying(CopyTable((0.5, 0.8)), texts.gpu, lengths.gpu, SLOTS, drafts, vocab)
        made.copying.num_sampled.fill_(1)
    if isinstance(example.head, OwnVocabularies):
        made.languages = DeviceLanguages(example.head.vocabularies, made, made.req_states, counts_metrics=True)
        for counts in (made.languages.num_sampled, made.languages.num_rejected):
            counts.fill_(1)
    reads = drafter.parallel is not None and drafter.parallel.reads_head
    made.model = SimpleNamespace(
        parallel=drafter.parallel,
        with_head_inputs=lambda known: (
            with_head_inputs(known, drafter.autoregressive, example.head) if reads else known
        ),
        compute_logits=lambda states, numbers: logits(example, states, numbers),
    )
    return made


def logits(example: Example, states: Tensor, numbers: Tensor | None) -> Tensor:
    """Of the autoregressive part."""
    if isinstance(example.head, OwnVocabularies) and numbers is not None:
        example.head.numbers = numbers
    return example.head.logits(states)


def sample_draft(self: Any, states: Tensor) -> Tensor:
    """vLLM's, but for the noise: draws from the logits and keeps them by slot."""
    slots, step = self.idx_mapping[: len(states)], self.current_draft_step
    made, heat = self.compute_draft_logits(states, 0).float(), self.temperature[slots]
    noise = counter_uniforms(self.seeds[slots] + step, self.positions[: len(states)], 1)[:, 0]
    kept = torch.where(slots < 0, self.max_num_reqs, slots)
    self.slot_logits.index_put_((kept, step.expand(len(kept))), made)
    return draw_tokens(made, heat, noise)[0]


def whole(self: Any, rows: int, turn: Tensor) -> None:
    """All that is captured of a step, in its order; turn: [d, d], stands for the layer."""
    if self.languages is not None:
        self.languages.graphs.function(rows)
    if self.copying is not None:
        self._look_up(rows)
    states = self.states[:rows, 0]
    for step in range(self.autoregressive_drafts):
        states = (states @ turn).tanh()
        self.current_draft_step.fill_(step)
        self.draft_tokens[:rows, step] = self.sample_draft(states)
    if self.parallel_drafts:
        self._draft_parallel(rows)


def fill(self: Any, seed: int, vocab: int) -> None:
    """Other requests into the buffers."""
    generator = torch.Generator().manual_seed(seed)
    self.idx_mapping.fill_(-1)[:ROWS] = BATCHES[seed % 3]
    self.states[:, 0].copy_(torch.randn(self.states[:, 0].shape, generator=generator))
    self.tokens[:, 0].copy_(torch.randint(vocab, (ROWS,), generator=generator))
    self.temperature.copy_(torch.tensor([1.0, 0.0, 0.6]).repeat(2))
    for keys in (self.seeds, self.positions):
        keys.copy_(torch.randint(1000, (SLOTS,), generator=generator))
    texts = self.req_states.all_token_ids.gpu
    texts.copy_(torch.randint(min(vocab, 4), texts.shape, generator=generator))
    self.req_states.total_len.gpu.copy_(torch.randint(4, LENGTH, (SLOTS,), generator=generator))


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("name", CASES)
@torch.inference_mode()
def test_replays_draft_what_calls_do(name: str, copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagleSpeculator, "sample_draft", sample_draft)
    example = CASES[name]
    size, vocab = example.sizes
    drafts = min(DRAFTS, example.drafter.config.max_drafts)
    turn = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    captured, called = (speculator(example, drafts, copies) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(part, "MAX_PROBS", 3 * drafts * vocab)  # windows of four requests are captured in two parts
        replays = {rows: record(lambda rows=rows: whole(captured, rows, turn))[0] for rows in (4, 2, 1)}
    for each in (captured.slot_logits, *learnt(captured)):  # of what was drafted while capturing
        each.zero_()
    for step, rows in enumerate((4, 2, 4, 1, 4)):
        for made in (captured, called):
            fill(made, step, vocab)
        replays[rows]()
        whole(called, rows, turn)
        assert torch.equal(captured.draft_tokens[:rows], called.draft_tokens[:rows])
        torch.testing.assert_close(captured.draft_logits, called.draft_logits)
        for kept, expected in zip(learnt(captured), learnt(called), strict=True):
            torch.testing.assert_close(kept, expected)


def learnt(self: Any) -> list[Tensor]:
    """What is known of the requests from step to step."""
    kept = [] if self.copying is None else [self.copying.slots.offsets, *self.copying.slots.proposed]
    if self.languages is None:
        return kept
    slots, tally = self.languages.slots, self.languages.tally
    return [*kept, slots.evidence, slots.numbers, tally.drafts, tally.moves]


@torch.inference_mode()
def test_buffers_that_move_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr(EagleSpeculator, "sample_draft", sample_draft)
    example = CASES["mtpc-hmm"]
    made, turn = speculator(example, 3, False), torch.eye(example.sizes[0])
    replay, _ = record(lambda: whole(made, 2, turn))
    replay()
    made.states = made.states.clone()
    with pytest.raises(AssertionError, match="nobody holds"):
        replay()
