"""Compiled drafting, which the vLLM adapter uses for one request on a CPU, against the same draft uncompiled."""

import pytest
import torch

from mtpc.bench.engines import has_compiler
from tests.mtpc.drafter.test_draft import inputs, make_drafter


@pytest.mark.skipif(not has_compiler(), reason="torch compiles with a C++ compiler: there is none")
@pytest.mark.parametrize("circuit", ["cp", "hmm", "btree"])
@torch.inference_mode()
def test_a_compiled_draft_is_the_same_draft(circuit: str):
    torch.compiler.reset()
    drafter = make_drafter(circuit, token_input=True)
    compiled = torch.compile(drafter.draft, dynamic=False)
    hidden, token, _, noise = inputs(12, drafter)
    for row in range(12):
        one = slice(row, row + 1)
        greedy = (hidden[one], token[one], None, None, 5, "greedy")
        assert torch.equal(compiled(*greedy).tokens, drafter.draft(*greedy).tokens)
        sampled = (hidden[one], token[one], torch.tensor([0.7]), noise[one], 5, "sampled")
        found, expected = compiled(*sampled), drafter.draft(*sampled)
        assert torch.equal(found.tokens, expected.tokens)
        torch.testing.assert_close(found.probs, expected.probs, atol=1e-5, rtol=1e-4)
