"""Configuration of the target's last layers with LoRA adapters, which draft nothing themselves (MTPC, section 3.3)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from mtpc.autoregressive.config import MAX_LAYERS, LayersConfig, layer_of
from mtpc.errors import MTPCError

MAX_TARGET_LAYERS, MAX_RANK = 1 << 12, 1 << 12
AdaptedModule = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTED_MODULES: tuple[AdaptedModule, ...] = get_args(AdaptedModule)
ATTENTION_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")  # the others are those of the MLP


class LoRALayersConfig(LayersConfig):
    """The target's last k layers, run a second time with adapters: their output is the state for the parallel part.

    The layers read the state that enters layer L - k of the target's L layers, and have keys and values of their own.
    Their base weights are the target's. Only the adapters (LoRA, arXiv 2106.09685) are in the checkpoint.

    Attributes:
        num_hidden_layers: k, adapted layers.
        target_layers: L, layers of the target.
        rank: r of each adapter.
        alpha: A low-rank product is scaled by ``alpha / rank``.
        modules: Adapted projections of each layer, by their names in transformers.
    """

    num_hidden_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)]
    target_layers: Annotated[int, Field(ge=2, le=MAX_TARGET_LAYERS)]
    rank: Annotated[int, Field(ge=1, le=MAX_RANK)] = 16
    alpha: Annotated[float, Field(gt=0, le=1 << 16)] = 16.0
    modules: list[AdaptedModule] = Field(default_factory=lambda: list(ADAPTED_MODULES))

    @model_validator(mode="after")
    def _is_above_a_layer(self) -> Self:
        if self.num_hidden_layers >= self.target_layers:
            raise ValueError(
                f"num_hidden_layers ({self.num_hidden_layers}) must be below target_layers ({self.target_layers})"
            )
        if not self.modules or len(set(self.modules)) < len(self.modules):
            raise ValueError("modules must name one projection or more, each once")
        return self

    @property
    def state_below(self) -> int:
        """The input of the first adapted layer."""
        return self.target_layers - self.num_hidden_layers

    @property
    def drafts(self) -> bool:
        """Only the parallel part drafts."""
        return False

    @property
    def needs_layers(self) -> int:
        """The target must have the layers that the adapters were trained for."""
        return self.target_layers

    @property
    def layer_numbers(self) -> range:
        """Numbers of the adapted layers in the target."""
        return range(self.state_below, self.target_layers)

    @property
    def scale(self) -> float:
        """The factor of each low-rank product."""
        return self.alpha / self.rank

    def shape(self, module: str) -> tuple[int, int]:
        """Return the output and input features of a projection of the target's layers.

        Args:
            module: One of `ADAPTED_MODULES`.
        """
        queries, keys = (heads * self.head_dim for heads in (self.num_attention_heads, self.num_key_value_heads))
        size, width = self.hidden_size, self.intermediate_size
        return {
            "q_proj": (queries, size),
            "k_proj": (keys, size),
            "v_proj": (keys, size),
            "o_proj": (size, queries),
            "gate_proj": (width, size),
            "up_proj": (width, size),
            "down_proj": (size, width),
        }[module]


def module_path(module: str) -> str:
    """Return the path of a projection within its decoder layer, as in transformers and peft.

    Args:
        module: One of `ADAPTED_MODULES`.
    """
    return f"self_attn.{module}" if module in ATTENTION_MODULES else f"mlp.{module}"


def lora_of(target: Any, layers: int, rank: int) -> dict[str, Any]:
    """Return the keys of a `LoRALayersConfig` for the last layers of a target, with all projections adapted.

    Args:
        target: The target's configuration in transformers.
        layers: k, adapted layers.
        rank: r of each adapter, and alpha: the low-rank products are not scaled.

    Raises:
        MTPCError: The layers are of an unsupported type, or have experts.
    """
    if getattr(target, "num_experts", None):
        raise MTPCError(f"LoRA layers need dense layers, but the target's model_type is {target.model_type!r}.")
    layer = layer_of(target)  # first, as it refuses targets of other keys
    return {
        **layer,
        "num_hidden_layers": layers,
        "target_layers": target.num_hidden_layers,
        "rank": rank,
        "alpha": float(rank),
    }
