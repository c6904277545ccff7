"""One step on each runner, without an engine: what the autoregressive part drafts is what the parallel part knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from mtpc.draft import Draft, DraftContext
from mtpc.metrics.draft_clock import DraftClock
from mtpc.noise import counter_uniforms
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig
from mtpc.prompt_lookup.mixture import Copied, Copying
from vllm_mtpc.v1.step import V1DraftStep
from vllm_mtpc.v2.speculator import Speculator

ROWS, SIZE, VOCABULARY = 3, 4, 6
STATES, TOKENS = torch.randn(ROWS, SIZE), torch.tensor([1, 2, 3])


class Model:
    """Drafts the number of the step that it is asked for; notes what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def greedy(self, states: Tensor, numbers: Tensor | None) -> Tensor:
        """Without a distribution."""
        self.given.append((numbers,))
        return torch.full((len(states),), len(self.given))

    def drawn(
        self, states: Tensor, temperature: Tensor, uniforms: Tensor, numbers: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """From a distribution of its own."""
        self.given.append((temperature, uniforms, numbers))
        return torch.full((len(states),), len(self.given)), torch.full(
            (len(states), VOCABULARY), float(len(self.given))
        )


def autoregressive_drafts(step: V1DraftStep, steps: int) -> tuple[Model, list[Tensor]]:
    """The model after some draft steps, and their states, in a buffer that is used again and again."""
    model, buffer, states = Model(), torch.empty(ROWS, SIZE), []
    for _ in range(steps):
        buffer.normal_()
        states.append(buffer.clone())
        step.draft_next(model, buffer)
    return model, states


def test_sampled_drafts_of_both_parts() -> None:
    noise, temperature, numbers = torch.rand(ROWS, 5).double(), torch.ones(ROWS), torch.tensor([0, 1, 0])
    step = V1DraftStep([STATES], [TOKENS], 2, 2, "sampled", temperature, noise, numbers)
    model, states = autoregressive_drafts(step, 2)
    for i, (heat, uniforms, chosen) in enumerate(model.given):
        assert heat is temperature
        assert chosen is numbers
        assert torch.equal(uniforms, noise[:, i])
    assert torch.equal(step.context().states, torch.stack([STATES, *states], 1))
    assert step.context().tokens.tolist() == [[token, 1, 2] for token in TOKENS.tolist()]
    assert torch.equal(step.parallel_noise(), noise[:, 2:])
    draft = step.drafts(Draft(torch.full((ROWS, 2), 5), torch.zeros(ROWS, 2, VOCABULARY)))
    assert draft.tokens.tolist() == [[1, 2, 5, 5]] * ROWS
    assert draft.probs is not None
    assert draft.probs[:, :, 0].tolist() == [[1, 2, 0, 0]] * ROWS


def test_greedy_drafts_of_an_autoregressive_part_alone() -> None:
    step = V1DraftStep([STATES], [TOKENS], 2, 0, "greedy", None, None, None)
    autoregressive_drafts(step, 2)
    assert step.drafts(None).tokens.tolist() == [[1, 2]] * ROWS
    assert step.drafts(None).probs is None


def test_where_nothing_is_copied_the_mixture_is_the_autoregressive_parts_distribution() -> None:
    """And no probability is computed, whether nothing was to be copied or another token was drafted."""
    asked = list[Tensor | None]()

    def most_probable(states: Tensor, copied: Tensor, _: Any) -> tuple[Tensor, Tensor, Tensor]:
        asked.append(copied)
        return TOKENS + 1, torch.full((ROWS,), 0.75), torch.full((ROWS,), 0.375)

    def greedy(states: Tensor, _: Any) -> Tensor:
        asked.append(None)
        return TOKENS + 1

    tokens = torch.tensor([[2, 9, 9], [9, 9, 9], [9, 9, 9]])
    for chances, alone in ((torch.zeros(ROWS, 3), [True] * 3), (torch.full((ROWS, 3), 0.1), [False, False, True])):
        step = V1DraftStep([STATES], [TOKENS], 3, 0, "greedy", None, None, None, Copying.begin(Copied(tokens, chances)))
        for _ in range(3):
            step.draft_next(SimpleNamespace(most_probable=most_probable, greedy=greedy), STATES)
        assert [copied is None for copied in asked] == alone
        assert step.drafts(None).tokens.tolist() == [[token + 1] * 3 for token in TOKENS.tolist()]
        assert step.copying is not None and step.copying.done == 3 and step.copying.is_over
        asked.clear()


def test_a_mixture_is_drawn_from_each_requests_vocabulary() -> None:
    numbers, copied, given = torch.tensor([0, 1, 0]), torch.full((ROWS,), 0.5), list[Tensor | None]()

    def drawn_mixed(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        given.append(arguments[-1])
        return TOKENS, torch.zeros(ROWS, VOCABULARY), copied

    copying = Copying.begin(Copied(torch.ones(ROWS, 2, dtype=torch.int64), torch.ones(ROWS, 2)))
    step = V1DraftStep([STATES], [TOKENS], 2, 0, "sampled", torch.ones(ROWS), torch.rand(ROWS, 2), numbers, copying)
    for _ in range(2):
        step.draft_next(SimpleNamespace(drawn_mixed=drawn_mixed), STATES)
    assert [chosen is numbers for chosen in given] == [True] * 2


def test_layers_that_draft_nothing_leave_their_state_to_the_parallel_part() -> None:
    """Though vLLM uses their buffer again."""
    step, states = V1DraftStep([STATES], [TOKENS], 0, 2, "greedy", None, None, None), STATES + 1
    assert step.replace_state(states) is TOKENS
    states.zero_()
    assert torch.equal(step.context().states, STATES[:, None] + 1)


def test_no_drafts_at_all() -> None:
    draft = V1DraftStep([STATES], [TOKENS], 0, 0, "mixed", None, None, None).drafts(None)
    assert draft.tokens.shape == (ROWS, 0)
    assert draft.probs is None


def bare_speculator() -> Any:
    """One that knows nothing yet."""
    speculator: Any = Speculator.__new__(Speculator)
    speculator.copying = speculator.languages = None
    speculator.grammars = set()
    return speculator


def test_a_replayed_graph_keeps_each_state_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagleSpeculator, "sample_draft", lambda self, states: states[:, 0].long())
    speculator = bare_speculator()
    speculator.parallel_drafts, speculator.dtype = 2, torch.float32
    speculator.states, speculator.tokens = torch.zeros(ROWS + 1, 3, SIZE), torch.zeros(ROWS + 1, 3, dtype=torch.int64)
    speculator.current_draft_step = torch.tensor(0)
    output = torch.empty(ROWS, SIZE)

    def graph() -> None:  # one and the same for every step, like a captured one
        speculator.sample_draft(output)

    for step in range(2):
        speculator.current_draft_step.fill_(step)
        output.fill_(10.0 + step)
        graph()
    assert speculator.states[:ROWS, :, 0].tolist() == [[0, 10, 11]] * ROWS
    assert speculator.tokens[:ROWS].tolist() == [[0, 10, 11]] * ROWS
    assert not speculator.states[ROWS].any()


@pytest.mark.parametrize("asked", [0, 1, 3])
@pytest.mark.parametrize("copies", [True, False])
def test_a_step_of_languages_copying_and_both_parts(copies: bool, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order, each for all requests and with what it reads in its buffers; a window drafts only what is left.

    Where only prompts are read vLLM asks for no drafts: the autoregressive part then reads them, and no more.
    """
    did: list[Any] = []
    monkeypatch.setattr(
        EagleSpeculator, "propose", lambda self, *_, num_speculative_tokens, **__: did.append(num_speculative_tokens)
    )
    speculator = bare_speculator()
    speculator.num_speculative_steps, speculator.autoregressive_drafts, speculator.autoregressive = 3, 1, True
    speculator.clock, speculator.final_norm = DraftClock(None), lambda states: -states
    speculator._copy_request_inputs = lambda rows, *_, dummy_run: did.append((rows, "inputs"))
    speculator.copying = SimpleNamespace(num_sampled=torch.full((ROWS + 2,), -1)) if copies else None
    speculator.languages = SimpleNamespace(
        read=lambda rows, *counts, eager: did.append((rows, "languages", *(each.tolist() for each in counts), eager))
    )
    speculator.copy_graphs = SimpleNamespace(run=lambda rows, eager: did.append((rows, "copies", eager)))
    speculator.parallel_graphs = SimpleNamespace(run=lambda rows, eager: did.append((rows, "parallel", eager)))
    speculator.draft_tokens = torch.arange(ROWS + 2)
    speculator.states, speculator.tokens = torch.zeros(ROWS + 2, 2, SIZE), torch.zeros(ROWS + 2, 2, dtype=torch.int64)
    speculator.positions = torch.zeros(ROWS + 2, dtype=torch.int64)
    batch = SimpleNamespace(
        num_reqs=ROWS,
        idx_mapping=torch.tensor([2, 0, 1]),
        query_start_loc=torch.tensor([0, 2, 5, 7, 7]),
        positions=torch.arange(10, 17),
    )
    states, sampled, rejected = torch.randn(7, SIZE), torch.tensor([1, 2, 0]), torch.tensor([1, 1, 0])
    last, following = torch.tensor([[1], [2], [3]]), torch.tensor([[7, 8, 9]])
    drafts = speculator.propose(
        batch, None, None, states, None, sampled, rejected, last, following, None, None, num_speculative_tokens=asked
    )
    first = [(ROWS, "inputs"), (ROWS, "languages", [1, 2, 0], [1, 1, 0], False), *[(ROWS, "copies", False)] * copies]
    assert did == [*first, min(1, asked), *([(ROWS, "parallel", False)] if asked > 1 else [])]
    assert drafts.tolist() == [0, 1, 2]
    if copies:
        assert speculator.copying.num_sampled.tolist() == [1, 2, 0, -1, -1]
    if asked > 1:
        assert torch.equal(speculator.states[:ROWS, 0], -states[[0, 3, 6]])
        assert speculator.positions.tolist() == [10, 13, 16, 0, 0]
        assert speculator.tokens[:ROWS, 0].tolist() == [3, 1, 8]


def test_a_window_lies_behind_the_autoregressive_drafts_in_its_requests_slot() -> None:
    torch.manual_seed(0)
    config = CircuitConfig(circuit="hmm", window=3, rank=2, hidden_size=SIZE, vocab_size=VOCABULARY, leaves="table")
    parallel, drafts, slots = CircuitPart(config), 2, torch.tensor([2, 0, -1])  # the last row is padding
    speculator = bare_speculator()
    speculator.autoregressive_drafts, speculator.parallel_drafts, speculator.max_num_reqs = 1, drafts, 4
    speculator.model = SimpleNamespace(parallel=parallel, with_head_inputs=lambda known: known)
    speculator.states, speculator.tokens = torch.randn(4, 2, SIZE), torch.randint(VOCABULARY, (4, 2))
    speculator.positions, speculator.seeds, speculator.idx_mapping = torch.arange(4), torch.arange(4) + 7, slots
    speculator.temperature = torch.tensor([0.7, 1.0, 0.5, 1.0])  # by slot
    speculator.draft_tokens = torch.full((4, 1 + drafts), -5)
    speculator.slot_logits = torch.full((5, 1 + drafts, VOCABULARY), -5.0)
    speculator._draft_parallel(ROWS)
    temperature = speculator.temperature[slots]
    noise = counter_uniforms(speculator.seeds[slots], torch.arange(ROWS), drafts)
    known = DraftContext(speculator.states[:ROWS], speculator.tokens[:ROWS])
    expected = parallel.draft(known, temperature, noise, drafts, "mixed")
    assert expected.probs is not None
    assert torch.equal(speculator.draft_tokens[:ROWS, 1:], expected.tokens)
    assert (speculator.draft_tokens[:, 0] == -5).all()
    for row, slot in ((0, 2), (1, 0)):
        stated = (speculator.slot_logits[slot, 1:] / speculator.temperature[slot]).softmax(-1)
        torch.testing.assert_close(stated, expected.probs[row])
    assert (speculator.slot_logits[:, 0] == -5).all()
    assert (speculator.slot_logits[[1, 3]] == -5).all()
