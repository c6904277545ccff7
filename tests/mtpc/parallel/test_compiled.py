"""Drafting for one request on a CPU against the same draft uncompiled, in float32 and with int8 weights."""

from collections import Counter
from copy import deepcopy

import pytest
import torch

from mtpc.draft import DraftContext
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.compiled import drafting_for_one, has_compiler
from tests.mtpc.parallel.windows import inputs, make_circuit_part
from tests.support.tiny_models import make_part

pytestmark = pytest.mark.skipif(not has_compiler(), reason="torch compiles with a C++ compiler: there is none")


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch.compiler.reset()


@pytest.mark.parametrize("circuit", ["hmm", pytest.param("btree", marks=pytest.mark.thorough)])  # each compiles anew
@torch.inference_mode()
def test_in_float32_it_is_the_same_draft(circuit: str):
    window = make_circuit_part(circuit, token_input=True)
    single = drafting_for_one(window)
    hidden, token, _, noise = inputs(12, window)
    for row in range(12):
        one = slice(row, row + 1)
        greedy = (DraftContext.of_target(hidden[one], token[one]), None, None, 5, "greedy")
        assert torch.equal(single(*greedy).tokens, window.draft(*greedy).tokens)
        sampled = (DraftContext.of_target(hidden[one], token[one]), torch.tensor([0.7]), noise[one], 5, "sampled")
        drafted, expected = single(*sampled), window.draft(*sampled)
        assert torch.equal(drafted.tokens, expected.tokens)
        torch.testing.assert_close(drafted.probs, expected.probs, atol=1e-5, rtol=1e-4)


@pytest.mark.thorough
@torch.inference_mode()
def test_in_bfloat16_it_draws_from_the_distribution_that_it_states_and_leaves_the_window_alone():
    torch.manual_seed(0)
    features = {"leaf_features": 24, "component_features": 8, "sum_features": 32, "trunk_size": 64}
    window = make_part("hmm", 6, 3, 32, 7, token_input=True, **features)
    for parameter in window.parameters():
        parameter.normal_(std=0.15)
    window = window.bfloat16()
    before = deepcopy(window.state_dict())
    single = drafting_for_one(window)
    hidden, token = torch.randn(1, 32).bfloat16(), torch.tensor([3])
    counts: Counter[tuple[int, int]] = Counter()
    stated: dict[tuple[int, int], float] = {}
    for _ in range(4000):
        draft = single(DraftContext.of_target(hidden, token), torch.ones(1), torch.rand(1, 5), 5, "sampled")
        first, second = draft.tokens[0, :2].tolist()
        counts[first, second] += 1
        probs = draft.probs[0]
        stated |= {(first, x): (probs[0, first] * probs[1, x]).item() for x in range(7)}
    assert chi_square(counts, stated).p > 1e-4
    shifted = {(first, (second + 1) % 7): p for (first, second), p in stated.items()}
    assert chi_square(counts, shifted).p < REJECT_BELOW
    own = window.draft(DraftContext.of_target(hidden, token), torch.ones(1), torch.rand(1, 5), 5, "sampled").probs[0, 0]
    assert 0 < (own - probs[0]).abs().sum() / 2 < 0.03
    assert all(torch.equal(value, before[name]) for name, value in window.state_dict().items())


@pytest.mark.thorough
@torch.inference_mode()
def test_other_arguments_are_compiled_anew():
    window = make_circuit_part("hmm", token_input=True)
    single = drafting_for_one(window)
    hidden, token, _, noise = inputs(1, window)
    for drafts in (5, 2, 5):
        for temperature, mode in ((None, "greedy"), (torch.ones(1), "sampled")):
            arguments = (
                DraftContext.of_target(hidden, token),
                temperature,
                None if temperature is None else noise,
                drafts,
                mode,
            )
            drafted, expected = single(*arguments), window.draft(*arguments)
            assert torch.equal(drafted.tokens, expected.tokens)
            assert (drafted.probs is None) == (expected.probs is None)


@pytest.mark.thorough
@torch.inference_mode()
def test_it_is_compiled_once_for_each_kind_of_what_is_known():
    """Other values are not compiled again; more places, more rows and another type are, and not drafted wrongly."""
    window = make_circuit_part("cp", window=3)
    single, compiled = drafting_for_one(window), torch._dynamo.utils.counters["stats"]
    hidden, token, _, _ = inputs(6, window)
    kinds = [
        lambda row: DraftContext(hidden[row : row + 1, None], token[row : row + 1, None]),
        lambda row: DraftContext(
            hidden[row : row + 2][None], token[row : row + 2][None]
        ),  # behind a step of an autoregressive part
        lambda row: DraftContext(hidden[row : row + 2, None], token[row : row + 2, None]),
    ]
    before = compiled["unique_graphs"]
    for _ in range(2):
        for kind in kinds:
            for row in range(4):
                known = kind(row)
                arguments = (known, None, None, 2, "greedy")
                assert torch.equal(single(*arguments).tokens, window.draft(*arguments).tokens)
    assert compiled["unique_graphs"] - before == len(kinds)


@torch.inference_mode()
def test_a_draft_that_stands_in_for_the_own_is_compiled_as_well(monkeypatch: pytest.MonkeyPatch):
    honest = CircuitPart.draft
    monkeypatch.setattr(CircuitPart, "draft", lambda self, *args: honest(self, *args))
    window = make_circuit_part("hmm", token_input=True)
    single = drafting_for_one(window)
    hidden, token, _, noise = inputs(1, window)
    assert single(DraftContext.of_target(hidden, token), None, None, 5, "greedy").probs is None
    assert single(DraftContext.of_target(hidden, token), torch.ones(1), noise, 5, "sampled").probs is not None
