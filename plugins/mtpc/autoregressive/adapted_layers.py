"""The target's last layers with LoRA adapters, in transformers: the reference of an MTPC drafter's backbone.

e_t = LLM_LoRA(k)(x_<=t) of MTPC (arXiv 2511.11346, section 3.3), from the state that the target has computed below its
last k layers. Draft and target share all other layers (appendix D).
"""

from __future__ import annotations

import math
from copy import copy
from typing import Any, cast

from torch import Tensor, nn

from mtpc.autoregressive.lora import LoRALayersConfig, module_path
from mtpc.autoregressive.part import AutoregressivePart
from mtpc.errors import MTPCError


class LowRank(nn.Module):
    """The adapter of one projection: B (A x), with B initially zero, as in peft.

    Attributes:
        lora_A: Weight [r, in features].
        lora_B: Weight [out features, r].

    Args:
        outputs: Out features.
        inputs: In features.
        rank: r.
    """

    def __init__(self, outputs: int, inputs: int, rank: int) -> None:
        super().__init__()
        self.lora_A, self.lora_B = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the low-rank product of x [..., in features], without its factor: [..., out features]."""
        product: Tensor = self.lora_B(self.lora_A(x))
        return product


class AdaptedLinear(nn.Module):
    """A projection of the target with an adapter; neither is copied.

    Args:
        base: The target's projection.
        adapter: Its adapter.
        scale: Factor of the low-rank product.
    """

    def __init__(self, base: nn.Module, adapter: LowRank, scale: float) -> None:
        super().__init__()
        self.base, self.adapter, self.scale = base, adapter, scale

    def forward(self, x: Tensor) -> Tensor:
        """Return the adapted projection of x [..., in features], in the base's dtype."""
        out: Tensor = self.base(x)
        return out + (self.scale * self.adapter(x.to(self.adapter.lora_A.weight.dtype))).to(out.dtype)


class AdaptedLayers(AutoregressivePart):
    """The target's last k layers with adapters, then its final norm; no token is read and none is drafted.

    Protocol: `bind` shares the target's layers, then `forward` may be called. State and moves of the module (``to``,
    ``state_dict``) are those of the adapters alone.

    Attributes:
        config: Sizes, layers and rank.
        layers: Adapters of each layer, by path: ``layers.0.self_attn.q_proj.lora_A.weight``.
    """

    def __init__(self, config: LoRALayersConfig) -> None:
        super().__init__()
        self.config, self.own = config, None
        self.layers = nn.ModuleList(self._adapters() for _ in config.layer_numbers)
        self._bound: tuple[Any, list[nn.Module]] | None = None  # not submodules: the target's decoder, adapted layers

    def _adapters(self) -> nn.ModuleDict:
        """Return the adapters of one layer, nested by the paths of their projections."""
        found: dict[str, nn.ModuleDict] = {}
        for module in self.config.modules:
            block, _, name = module_path(module).partition(".")
            adapter = LowRank(*self.config.shape(module), self.config.rank)
            found.setdefault(block, nn.ModuleDict())[name] = adapter
        return nn.ModuleDict(found)

    @property
    def _shared(self) -> tuple[Any, list[nn.Module]]:
        assert self._bound is not None  # `bind` comes first
        return self._bound

    @property
    def target(self) -> Any:
        """The decoder of the target (``model.model``) that the layers are shared with; call `bind` first."""
        return self._shared[0]

    @property
    def adapter_names(self) -> dict[str, str]:
        """Names of the tensors in peft's files, by those in this module."""
        names = {}
        for name in self.state_dict():
            _, number, rest = name.split(".", 2)
            names[name] = f"base_model.model.model.layers.{self.config.layer_numbers[int(number)]}.{rest}"
        return names

    def bind(self, model: Any) -> None:
        """Share the layers, the rotary embedding and the final norm of the target.

        Args:
            model: The target, a causal language model of transformers.

        Raises:
            MTPCError: The target has another number of layers, or projections of other sizes.
        """
        base = model.model
        if len(base.layers) != self.config.target_layers:
            raise MTPCError(
                f"the adapters are for a target with {self.config.target_layers} layers, not {len(base.layers)}."
            )
        numbered = zip(self.config.layer_numbers, self.layers, strict=True)
        layers = [
            self._adapted(base.layers[number], cast("nn.ModuleDict", adapters), index)
            for index, (number, adapters) in enumerate(numbered)
        ]
        self._bound = base, layers

    def _adapted(self, layer: Any, adapters: nn.ModuleDict, index: int) -> nn.Module:
        """Return a view of a decoder layer with adapted projections, whose keys are those of layer ``index``."""
        layer = _view(layer)
        for block, by_name in adapters.items():
            view = _view(getattr(layer, block))
            for name, adapter in cast("nn.ModuleDict", by_name).items():
                linear: Any = getattr(view, name, None)
                found = None if linear is None else tuple(linear.weight.shape)
                if found != self.config.shape(name):
                    raise MTPCError(
                        f"the adapters are for a {name} of {list(self.config.shape(name))}, but that of the target's "
                        f"layers is {None if found is None else list(found)}."
                    )
                setattr(view, name, AdaptedLinear(linear, cast("LowRank", adapter), self.config.scale))
            setattr(layer, block, view)
        if "self_attn" not in adapters:
            layer.self_attn = _view(layer.self_attn)
        layer.self_attn.layer_idx = index
        layer.self_attn.config = copy(layer.self_attn.config)
        layer.self_attn.config._attn_implementation = "sdpa"  # which takes the masks of the contract
        return cast("nn.Module", layer)

    def inputs(self, embeddings: Tensor, previous: Tensor) -> Tensor:
        """Return the embeddings: the layers read no token, so a parallel part reads the target's embedding of it."""
        return embeddings

    def forward(
        self,
        embeddings: Tensor | None,
        previous: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """See `AutoregressivePart.forward`; the embeddings are not read, and only one pass is made for a draft.

        Args:
            embeddings: Not read.
            previous: The states below the adapted layers, [B, T, d].
            positions: int64 [B, T].
            mask: See `AutoregressivePart.forward`.
            cache: See `AutoregressivePart.forward`.

        Returns:
            The states after the target's final norm, [B, T, d], in the dtype of ``previous``.
        """
        base, layers = self._shared
        z = previous.to(base.norm.weight.dtype)
        rotary = base.rotary_emb(z, positions)
        for layer in layers:
            z = layer(
                z,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=cache is not None,
                position_embeddings=rotary,
            )
        out: Tensor = base.norm(z)
        return out.to(previous.dtype)


def _view(module: Any) -> Any:
    """Return a module with the parameters and submodules of another, of which submodules may be replaced."""
    view = copy(module)
    view._modules = dict(module._modules)
    return view
