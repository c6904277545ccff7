r"""Train an EAGLE layer for a target, in the layout of the engines' own `eagle` drafters.

    python -m benchmarks.eagle_layer --target runs/smollm2 --drafter weights/smollm2-fastmtp --data runs/distilled \
        --minutes 15 --out runs/eagle

Without --drafter the layer starts as the linear map to the target's next state.  With the checkpoint of a FastMTP
drafter it starts from that drafter's layer.  EAGLE lacks FastMTP's norms before the projection, before the layer and
after it, so these are folded into the matrices next to them.  Folding assumes that every vector has the average size of
those in the first conversations; training compensates for the difference.

The layer is always of type Llama, because the engines support EAGLE layers of no other type.  `OUT/vllm` and
`OUT/sglang` hold the same layer.  SGLang's has a bias of zero in addition, and another name of its architecture.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.arguments import one_sentence
from mtpc.autoregressive.config import SHARED_KEYS
from mtpc.autoregressive.layer import DraftLayers
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.files.json_file import read_json
from mtpc.lab.output_paths import check_new_folder
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.lab.text.conversations import file_digest, read_conversations
from mtpc.lab.training.hidden_states import HiddenStateCache
from mtpc.lab.training.initialization import start_from_target
from mtpc.lab.training.precision import training_dtype
from mtpc.lab.training.recipes.gumiho_recipe import GumihoRecipe, config_for
from mtpc.lab.training.settings import GumihoSettings
from mtpc.lab.training.trainer import Trainer, train_on
from mtpc.methods.drafter import Drafter, load_drafter

DRAFTS = 4
MAPPED = 32  # batches of conversations that the linear map is fitted to
RIDGE = 1e-3  # added to its normal equations, relative to the size of each input
ARCHITECTURES = {"vllm": "LlamaForCausalLM", "sglang": "LlamaForCausalLMEagle"}  # vLLM adds its own prefix


class EagleRecipe(GumihoRecipe):
    """Recipe for layers without outer norms and without a bias."""

    def _initialize(self, drafter: Drafter) -> None:
        layers = drafter.autoregressive
        assert isinstance(layers, DraftLayers)
        if self.start is None:
            start_from_target(layers, self.target.model)
            map_to_next_states(layers, self._read())
            return
        trained = self.start.autoregressive
        if not isinstance(trained, DraftLayers) or not trained.config.normed:
            raise MTPCError("--drafter must name a FastMTP drafter.")
        if trained.config.layer != "llama" or len(trained.blocks) != 1:
            raise MTPCError("--drafter must have one layer, of type 'llama'.")
        embeddings, states = next(self._read())
        fold_norms(layers, trained, embeddings, states[:, :-1])

    def _read(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield embeddings [B, T - 1, d] of the tokens after the first T - 1 positions, and the states [B, T, d]."""
        for update in range(min(MAPPED, len(self._plan))):
            for hidden, tokens, _, head, _ in self.batch(update).micro_batches:
                yield head.embed(tokens[:, 1 : hidden.shape[1]]).float().cpu(), hidden.float().cpu()

    def optimizers(self, drafter: Drafter) -> list[torch.optim.Optimizer]:
        """Return optimizers for everything but the bias, which vLLM's layer does not have."""
        assert isinstance(drafter.autoregressive, DraftLayers)
        drafter.autoregressive.input_proj.bias.requires_grad_(False)
        return super().optimizers(drafter)


@torch.no_grad()
def map_to_next_states(layers: DraftLayers, read: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Initialize the projection as the best linear map to the target's next state; the decoder layer adds nothing.

    Args:
        layers: One layer without outer norms, written in place.
        read: Embeddings of the token after each position but the last, [B, T - 1, d], and the target's states,
            [B, T, d], zero where a text has ended.
    """
    size = layers.config.hidden_size
    products, crossed = torch.zeros(2 * size, 2 * size).double(), torch.zeros(2 * size, size).double()
    for embeddings, states in read:
        continues = states[:, 1:].any(-1)
        given = torch.cat([states[:, :-1], embeddings], -1)[continues].double()
        products += given.T @ given
        crossed += given.T @ states[:, 1:][continues].double()
    products.diagonal().mul_(1 + RIDGE)
    layers.input_proj.weight.copy_(torch.linalg.solve(products, crossed).T)
    layers.input_proj.bias.zero_()
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        layers.blocks[0].get_parameter(f"{name}.weight").zero_()


@torch.no_grad()
def fold_norms(layers: DraftLayers, trained: DraftLayers, embeddings: Tensor, states: Tensor) -> None:
    """Copy a layer with outer norms into one without them.

    Each norm becomes a constant factor for each dimension.  The factors of the final norm are applied to everything
    that is added to the residual stream.

    Args:
        layers: One layer without outer norms, written in place.
        trained: One layer with them.
        embeddings: Of the token after each position, [B, T, d].
        states: The target's states, [B, T, d], zero where a text has ended.
    """
    sizes: dict[str, Tensor] = {}
    continues = states.any(-1)

    def size(x: Tensor) -> Tensor:
        return x[continues].float().square().mean(-1).sqrt().mean()

    def watch(name: str, norm: nn.Module) -> Any:
        return norm.register_forward_pre_hook(lambda _, given: sizes.__setitem__(name, given[0]))

    block = trained.blocks[0]
    names = {
        "first": "blocks.0.input_layernorm",
        "middle": "blocks.0.post_attention_layernorm",
        "last": "final_layernorm",
    }
    hooks = [watch(name, trained.get_submodule(norm)) for name, norm in names.items()]
    trained(embeddings, states, torch.arange(states.shape[1]).expand(states.shape[:2]))
    for hook in hooks:
        hook.remove()
    scale = trained.get_parameter("final_layernorm.weight") / size(sizes["last"])
    of_state, of_token = trained.input_proj.weight.chunk(2, 1)
    of_state = of_state * trained.get_parameter("hidden_layernorm.weight") / size(states)
    of_token = of_token * trained.get_parameter("token_layernorm.weight") / size(embeddings)
    layers.input_proj.weight.copy_(torch.cat([of_state, of_token], 1) * scale[:, None])
    layers.input_proj.bias.zero_()
    weights = {name: tensor.clone() for name, tensor in block.state_dict().items()}
    first = weights.pop("input_layernorm.weight") / (size(sizes["first"]) * scale)
    for name in ("q", "k", "v"):
        weights[f"self_attn.{name}_proj.weight"] *= first
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        weights[f"{name}.weight"] *= scale[:, None]
    weights["post_attention_layernorm.weight"] *= size(sizes["middle"] * scale) / (size(sizes["middle"]) * scale)
    layers.blocks[0].load_state_dict(weights)


def write_layer(folder: Path, engine: str, layers: DraftLayers, dtype: str) -> None:
    """Write a layer in EAGLE's layout.

    Args:
        folder: Folder to create.
        engine: vllm or sglang.
        layers: One layer without outer norms.
        dtype: Dtype of the target, as in its config.json.
    """
    folder.mkdir(parents=True)
    config = {key: getattr(layers.config, key) for key in SHARED_KEYS}
    # SGLang replaces the embedding and the head of the layer, and fails if both are one module.
    config |= {"tie_word_embeddings": False, "architectures": [ARCHITECTURES[engine]]}
    config |= {"model_type": "llama", "dtype": dtype}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    of_state, of_token = layers.input_proj.weight.detach().chunk(2, 1)  # EAGLE's embedding comes first
    tensors = {f"layers.0.{name}": tensor.contiguous() for name, tensor in layers.blocks[0].state_dict().items()}
    tensors["fc.weight"] = torch.cat([of_token, of_state], 1)
    if engine == "sglang":
        tensors["fc.bias"] = layers.input_proj.bias.detach()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def dtype_of(target: Path) -> str:
    """Return the dtype of a target by its config.json, which older versions of transformers call ``torch_dtype``.

    Raises:
        MTPCError: The folder has no readable config.json.
    """
    config = read_json(target / "config.json")
    return str(config.get("dtype") or config.get("torch_dtype") or "float32")


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    add("--drafter", type=Path, help="start from the layer of this FastMTP drafter")
    add("--data", type=Path, required=True, help="train on the conversations in this folder of `mtpc distill`")
    add("--states", type=Path, help="keep the target's hidden states in this folder, as in `mtpc train`")
    add("--minutes", type=float, default=15, help="limit the minutes of training (default: %(default)s)")
    add("--epochs", type=int, default=1, help="limit the epochs of training (default: %(default)s)")
    add("--out", type=Path, required=True, help="write both layouts to this new folder")
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Train a layer and write it in both layouts."""
    arguments = read_arguments(given)
    check_new_folder(arguments.out)
    device, dtype = default_device(), dtype_of(arguments.target)
    target = FrozenTarget(arguments.target, device=device, dtype=training_dtype(device))
    settings = GumihoSettings(  # the layer drafts all steps + positions tokens: it has no parallel heads
        steps=DRAFTS - 1, positions=1, regression=0.0, classification=1.0, beta=0.6, epochs=arguments.epochs, batch=8,
        micro_batch=4, learning_rate=2e-4, optimizer="muon", starts=0.5, head_rows=6144,
    )  # fmt: skip
    values = {"layer": "llama", "attention_bias": False, "num_hidden_layers": 1, "normed": False, "steps": DRAFTS - 1}
    config = config_for(target.model.config, None, **values)
    learned = [conversation for conversation in read_conversations(arguments.data) if not conversation.heldout]
    states = None if arguments.states is None else HiddenStateCache(arguments.states, target)
    start = None if arguments.drafter is None else load_drafter(arguments.drafter, target.facts)
    recipe = EagleRecipe(target, learned, {"eagle": config}, settings, start=start, states=states)
    trainer = Trainer(recipe, minutes=arguments.minutes)
    train_on(Console(), trainer)
    layers = trainer.learners[0].model.autoregressive
    assert isinstance(layers, DraftLayers)
    facts = {"data_sha256": file_digest(arguments.data), "training": trainer.facts(trainer.learners[0])}
    for engine in ARCHITECTURES:
        write_layer(arguments.out / engine, engine, layers, dtype)
        provenance.write(arguments.out / engine, target=arguments.target.name, **facts)


if __name__ == "__main__":
    sys.exit(main())
