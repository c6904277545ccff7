"""Drafting for one request on a CPU against the same draft uncompiled, in float32 and with int8 weights."""

from collections import Counter
from copy import deepcopy

import pytest
import torch

from mtpc.drafter import Drafter, DrafterConfig
from mtpc.drafter.single import drafting_for_one, has_compiler
from tests.mtpc.drafter.test_draft import inputs, make_drafter
from tests.statistics import REJECT_BELOW, chi_square_p_value

pytestmark = pytest.mark.skipif(not has_compiler(), reason="torch compiles with a C++ compiler: there is none")


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch.compiler.reset()


@pytest.mark.parametrize("circuit", ["cp", "hmm", "btree"])
@torch.inference_mode()
def test_in_float32_it_is_the_same_draft(circuit: str):
    drafter = make_drafter(circuit, token_input=True)
    single = drafting_for_one(drafter)
    hidden, token, _, noise = inputs(12, drafter)
    for row in range(12):
        one = slice(row, row + 1)
        greedy = (hidden[one], token[one], None, None, 5, "greedy")
        assert torch.equal(single(*greedy).tokens, drafter.draft(*greedy).tokens)
        sampled = (hidden[one], token[one], torch.tensor([0.7]), noise[one], 5, "sampled")
        found, expected = single(*sampled), drafter.draft(*sampled)
        assert torch.equal(found.tokens, expected.tokens)
        torch.testing.assert_close(found.probs, expected.probs, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_in_bfloat16_it_draws_from_the_distribution_that_it_states_and_leaves_the_drafter_alone():
    torch.manual_seed(0)
    config = DrafterConfig("hmm", 6, 3, 32, 7, "shared", 24, 8, 32, 64, True)
    drafter = Drafter(config).requires_grad_(False)
    for parameter in drafter.parameters():
        parameter.normal_(std=0.15)
    drafter = drafter.bfloat16()
    before = deepcopy(drafter.state_dict())
    single = drafting_for_one(drafter)
    hidden, token = torch.randn(1, 32).bfloat16(), torch.tensor([3])
    counts: Counter[tuple[int, int]] = Counter()
    stated: dict[tuple[int, int], float] = {}
    for _ in range(4000):
        draft = single(hidden, token, torch.ones(1), torch.rand(1, drafter.noise_size), 5, "sampled")
        first, second = draft.tokens[0, :2].tolist()
        counts[first, second] += 1
        probs = draft.probs[0]
        stated |= {(first, x): (probs[0, first] * probs[1, x]).item() for x in range(7)}
    assert chi_square_p_value(counts, stated) > 1e-4
    shifted = {(first, (second + 1) % 7): p for (first, second), p in stated.items()}
    assert chi_square_p_value(counts, shifted) < REJECT_BELOW
    own = drafter.draft(hidden, token, torch.ones(1), torch.rand(1, drafter.noise_size), 5, "sampled").probs[0, 0]
    assert 0 < (own - probs[0]).abs().sum() / 2 < 0.03
    assert all(torch.equal(value, before[name]) for name, value in drafter.state_dict().items())


@torch.inference_mode()
def test_other_arguments_are_compiled_anew():
    drafter = make_drafter("hmm", token_input=True)
    single = drafting_for_one(drafter)
    hidden, token, _, noise = inputs(1, drafter)
    for drafts in (5, 2, 5):
        for temperature, mode in ((None, "greedy"), (torch.ones(1), "sampled")):
            arguments = (hidden, token, temperature, None if temperature is None else noise, drafts, mode)
            found, expected = single(*arguments), drafter.draft(*arguments)
            assert torch.equal(found.tokens, expected.tokens)
            assert (found.probs is None) == (expected.probs is None)


@torch.inference_mode()
def test_a_draft_that_stands_in_for_the_own_is_compiled_as_well(monkeypatch: pytest.MonkeyPatch):
    honest = Drafter.draft
    monkeypatch.setattr(Drafter, "draft", lambda self, *args: honest(self, *args))
    drafter = make_drafter("hmm", token_input=True)
    single = drafting_for_one(drafter)
    hidden, token, _, noise = inputs(1, drafter)
    assert single(hidden, token, None, None, 5, "greedy").probs is None
    assert single(hidden, token, torch.ones(1), noise, 5, "sampled").probs is not None
