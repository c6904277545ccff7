"""The start of training (MTPC paper, section 4.1 and appendix E)."""

import pytest
import torch

from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig

VOCAB, HIDDEN = 9, 16


def build(circuit: str, leaves: str, features: int = 9, **trunk: int | bool) -> CircuitPart:
    torch.manual_seed(0)
    sizes = {"window": 4, "rank": 3, "hidden_size": HIDDEN, "vocab_size": VOCAB, "leaf_features": features}
    part = CircuitPart(CircuitConfig(circuit=circuit, leaves=leaves, **sizes, **trunk))
    part.head.initialize(torch.eye(VOCAB, HIDDEN) * 3)
    return part


def test_the_first_position_starts_as_the_targets_own_head():
    hidden, token = torch.randn(32, HIDDEN), torch.randint(VOCAB, (32,))
    own = (hidden @ (torch.eye(VOCAB, HIDDEN) * 3).T).log_softmax(-1)
    for leaves in ("table", "shared"):
        first = build("cp", leaves).head(hidden, token).leaves[:, 0].exp().mean(1).log()
        later = build("cp", leaves).head(hidden, token).leaves[:, 2].exp().mean(1).log()
        assert (own.exp() * (own - first)).sum(-1).mean() < 0.3
        assert (own.exp() * (own - later)).sum(-1).mean() > 1.0


@pytest.mark.parametrize("leaves", ["table", "shared"])
@pytest.mark.parametrize("reads_token", [True, False])
def test_behind_a_trunk_that_reads_the_token_no_position_is_the_targets_own(leaves: str, reads_token: bool):
    """The circuit then starts after that token."""
    hidden, token = torch.randn(32, HIDDEN), torch.randint(VOCAB, (32,))
    own = (hidden @ (torch.eye(VOCAB, HIDDEN) * 3).T).log_softmax(-1)
    head = build("cp", leaves, trunk_size=8, token_input=reads_token).head
    first = head(hidden, token).leaves[:, 0].exp().mean(1).log()
    assert ((own.exp() * (own - first)).sum(-1).mean() < 0.3) != reads_token


def test_hmm_and_btree_start_near_cp():
    """With identity transitions the latent variables of a window agree, as if there were only one."""
    hidden, token = torch.randn(8, HIDDEN), torch.randint(VOCAB, (8,))
    for circuit in ("hmm", "btree"):
        inner = build(circuit, "shared").head(hidden, token).sums[1]
        assert (inner.diagonal(dim1=-2, dim2=-1).exp() > 0.9).all()
