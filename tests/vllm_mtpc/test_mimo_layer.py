"""The layer of a MiMo checkpoint, compared with vLLM's own module for it.

They differ in one thing only: vLLM's module zeroes the first embedding, as SGLang's does.  The published training code
does not, and neither does this project.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.models import mimo_mtp

from mtpc.autoregressive.layer import DraftLayers
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import load_drafter
from mtpc.target_head.shared import SharedHead
from tests.support.random_mimo import make_mimo

LENGTH = 48


class Block(nn.Module):
    """vLLM's decoder layer, without its cache: the same layer of transformers."""

    def __init__(self, layer: DraftLayers) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, positions: Tensor, hidden_states: Tensor, residual: None) -> tuple[Tensor, Tensor]:
        rotary = self.layer.rotary(hidden_states[None], positions[None])
        out = self.layer.blocks[0](hidden_states[None], attention_mask=None, position_embeddings=rotary)[0]
        return out, torch.zeros_like(out)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[DraftLayers, FrozenTarget]:
    """The converted layer, and the target that it is of."""
    mimo = make_mimo(tmp_path_factory.mktemp("mimo"))
    autoregressive = load_drafter(mimo.drafter).autoregressive
    assert autoregressive is not None
    return autoregressive, FrozenTarget(mimo.plain)


def engines(layer: DraftLayers) -> Any:
    """VLLM's module with this layer's weights."""
    with pytest.MonkeyPatch.context() as patch, set_current_vllm_config(VllmConfig()):
        patch.setattr(mimo_mtp, "Qwen2DecoderLayer", lambda **_: Block(layer))
        module = mimo_mtp.MiMoMultiTokenPredictorLayer(layer.config, "layer", VllmConfig().model_config)
    own = {name: tensor for name, tensor in layer.state_dict().items() if not name.startswith("blocks.")}
    missing, unexpected = module.load_state_dict(own, strict=False)
    assert not unexpected
    assert all(name.startswith("mtp_block.") for name in missing)
    return module.eval()


@torch.inference_mode()
def test_the_engines_own_drafts(made: tuple[DraftLayers, FrozenTarget]) -> None:
    layer, target = made
    text = torch.randint(256, (LENGTH + 1,), generator=torch.Generator().manual_seed(0))
    states = target.model.model(input_ids=text[None, :-1]).last_hidden_state  # [1, T, d]
    embeddings = target.model.get_input_embeddings()(text[None, 1:])
    positions = torch.arange(LENGTH)
    theirs = engines(layer)(embeddings[0], positions, states[0])
    head = SharedHead.of(target.model)

    def drafts(out: Tensor) -> list[int]:
        return head.logits(out[None])[0].argmax(-1).tolist()

    zeroed = torch.where(positions[None, :, None] == 0, 0.0, embeddings)
    same, ours = (layer(first, states, positions[None])[0] for first in (zeroed, embeddings))
    torch.testing.assert_close(same, theirs, rtol=1e-4, atol=1e-4)
    assert drafts(same) == drafts(theirs)
    assert not torch.allclose(ours, theirs, atol=0.1)  # whose attention reads the first position
    assert drafts(ours) != drafts(theirs)
