"""Expected acceptance along a text against the circuit operations, position by position."""

import pytest
import torch

from mtpc.circuits import temper
from mtpc.drafter import Drafter, DrafterConfig
from mtpc.evaluation.acceptance import decode_acceptance
from mtpc.evaluation.heldout import Continuations, evaluate

VOCAB, HIDDEN, WINDOW, START, LENGTH = 5, 6, 4, 3, 12


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["cp", "hmm", "btree"])
@torch.inference_mode()
def test_acceptance_along_a_text(circuit: str, token_input: bool):
    torch.manual_seed(0)
    config = DrafterConfig(circuit, WINDOW, 2, HIDDEN, VOCAB, leaves="table", trunk_size=7, token_input=token_input)
    drafter = Drafter(config)
    for parameter in drafter.parameters():
        parameter.normal_()
    tokens = torch.randint(VOCAB, (1, START + LENGTH))
    hidden, logits = torch.randn(1, START + LENGTH, HIDDEN), torch.randn(1, START + LENGTH, VOCAB)
    temperature = 0.7

    starts = range(START - 1, START - 1 + LENGTH - WINDOW + 1)
    accept = torch.zeros(1, len(starts), WINDOW - 1, dtype=torch.float64)
    for row, t in enumerate(starts):
        window = tokens[:, t + 1 : t + 1 + WINDOW]
        params = temper(drafter.head(hidden[:, t], window[:, 0]), torch.tensor([temperature]))
        if token_input:
            q = drafter.circuit.conditionals(params, window[:, 1:]).exp()
        else:
            q = drafter.circuit.conditionals(drafter.circuit.condition(params, window[:, 0]), window)[:, 1:].exp()
        for i in range(WINDOW - 1):
            p = (logits[0, t + 1 + i] / temperature).softmax(-1)
            x = window[0, i + 1]
            accept[0, row, i] = min(1.0, (q[0, i, x] / p[x]).item())
    expected = decode_acceptance(accept)

    found = evaluate(drafter, Continuations(tokens, hidden, logits, START, temperature))
    assert found.length == pytest.approx(expected.length, rel=1e-5)
    assert found.marginal == pytest.approx(expected.marginal, rel=1e-4)
