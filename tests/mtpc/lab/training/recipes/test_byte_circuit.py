"""The recipe of byte circuits: its loss by the definition, where it starts, and that it learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mtpc.lab.training.recipes.byte_circuit_loss import spelling_losses
from mtpc.lab.training.recipes.byte_circuit_recipe import byte_circuit_of, byte_unembedding
from mtpc.lab.training.trainer import Trainer
from mtpc.methods.drafter import load_drafter, save_drafter
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.mtpc.lab.training.tiny_recipes import BYTES, SPELLED_TOKENS, of_byte_circuit, tiny_target
from tests.oracles.byte_part import BytePartOracle
from tests.oracles.drafting import part as weights_of
from tests.support.tiny_methods import EXAMPLES, SPELLED
from tests.support.tiny_models import SIZE

DRAFTS = 4


@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm"])
@torch.inference_mode()
def test_the_loss_is_that_of_the_symbols_within_the_window(circuit: str) -> None:
    part = byte_circuit_of(EXAMPLES[f"bytecircuit-{circuit}"]())
    oracle = BytePartOracle(part.config, weights_of(part.state_dict(), "head."), SPELLED)
    generator = torch.Generator().manual_seed(1)
    hidden, tokens = torch.randn(9, SIZE, generator=generator), torch.randint(5, (9, DRAFTS + 1), generator=generator)
    found, beyond = spelling_losses(part, hidden, tokens), 0
    for row, text in enumerate(tokens.tolist()):
        mass = oracle.masses(hidden[row], text)
        for place in range(DRAFTS):
            assert found[row, place].item() == pytest.approx(mass[place] - mass[place + 1], rel=1e-4, abs=1e-5)
        beyond += mass[-1] == mass[-2]
    assert 0 < beyond < 9


def test_rows_of_bytes_are_means_of_those_of_tokens() -> None:
    tokens = TokenBytes((b"ab", b"b", None, b"a", b"a"), frozenset({2}), frozenset())
    rows = byte_unembedding(torch.arange(12.0).view(6, 2), tokens)
    assert rows.shape == (257, 2)
    torch.testing.assert_close(rows[[97, 98]], torch.tensor([[14 / 3, 17 / 3], [2.0, 3.0]]))
    assert rows.count_nonzero() == 4


def test_it_learns_and_is_kept(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    trainer = Trainer(of_byte_circuit(target, tmp_path, epochs=12, learning_rate=1e-2))
    trainer.run()
    for learner in trainer.learners:
        losses = torch.tensor(learner.losses)
        assert (losses[-5:].mean(0) < 0.9 * losses[:5].mean(0)).all()
        silent = [name for name, weight in learner.model.named_parameters() if not weight.any()]
        assert silent == []
        save_drafter(tmp_path / learner.name, learner.model, {})
        part = byte_circuit_of(load_drafter(tmp_path / learner.name, target.facts))
        assert part.byte_vocabulary.tokens() == SPELLED_TOKENS
    assert trainer.learners[0].model.config.num_drafts == BYTES.num_drafts
