"""Frozen target for training and evaluation: hidden states and logits of text."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.errors import MTPCError, first_line
from mtpc.files.target import Target
from mtpc.lab.targets.folder import check_folder, weights_digest
from mtpc.methods.drafter import Drafter, load_drafter


class Features(NamedTuple):
    """Features of B texts.

    Attributes:
        hidden: Hidden states after the final norm, [B, T, d].
        logits: Logits, float32 [B, T, V]. Row t predicts token t + 1.
        below: States that enter a layer, [B, T, d], by the layer's number, where they were asked for.
    """

    hidden: Tensor
    logits: Tensor
    below: dict[int, Tensor] = MappingProxyType({})  # type: ignore[assignment]  # nothing writes to it


class FrozenTarget:
    """Causal language model of a Hugging Face folder, for inference only.

    Args:
        folder: Folder of the model.
        device: Device of the model.
        dtype: Dtype of the computation. "auto" is that of the folder.

    Attributes:
        model: Model of transformers, in evaluation mode and without gradients.

    Raises:
        MTPCError: The folder holds no model, a damaged or incomplete one, or a drafter.
    """

    def __init__(self, folder: Path, *, device: str = "cpu", dtype: torch.dtype | str = torch.float32) -> None:
        check_folder(folder)
        self.folder = folder
        try:
            model, loading = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
        except Exception as error:  # transformers raises any exception for a damaged folder
            raise MTPCError(f"{folder} cannot be loaded as a causal language model: {first_line(error)}.") from None
        for name in sorted(loading["missing_keys"]):  # transformers would fill them with random numbers
            raise MTPCError(
                f"{folder} does not hold the tensor {name!r}; name the folder of a complete target, not of a drafter."
            )
        self.model = model.to(device).eval()
        self.model.requires_grad_(False)
        self.device = torch.device(device)

    @property
    def facts(self) -> Target:
        """Sizes that a drafter must have."""
        config = self.model.config
        return Target(config.hidden_size, config.vocab_size, config.num_hidden_layers)

    @property
    def max_positions(self) -> int:
        """Tokens of the longest text that the target reads."""
        return getattr(self.model.config, "max_position_embeddings", None) or sys.maxsize

    def digest(self) -> str:
        """Return the SHA-256 of the folder's configuration and weights."""
        return weights_digest(self.folder)

    @property
    def end_tokens(self) -> frozenset[int]:
        """Token ids, each of which ends an output."""
        ends = self.model.generation_config.eos_token_id
        return frozenset() if ends is None else frozenset([ends] if isinstance(ends, int) else ends)

    @property
    def unembedding(self) -> Tensor:
        """Weight of the output head, float32 [V, d]."""
        return self.model.get_output_embeddings().weight.detach().float()

    @torch.no_grad()
    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the hidden states after the final norm, without logits: tokens int64 [B, T] -> [B, T, d]."""
        return self.states(tokens)[0]

    @torch.no_grad()
    def states(
        self, tokens: Tensor, below: Collection[int] = (), cache: Any = None
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Return the states of one forward pass, without logits.

        Args:
            tokens: int64 [B, T].
            below: Layers whose input states are returned as well.
            cache: A cache of transformers with the tokens before; None: there are none.

        Returns:
            The hidden states after the final norm, [B, T, d], and the states that enter a layer, by its number.
        """
        return _states(self._run(self.model.model, tokens, below, cache), below)

    @torch.inference_mode()
    def features(self, tokens: Tensor, below: Collection[int] = (), cache: Any = None) -> Features:
        """Return the features of one forward pass, see `states`.

        The logits are those of the whole model, which may scale or cap what its output head computes.
        """
        inner: list[Any] = []
        hook = self.model.model.register_forward_hook(lambda module, given, output: inner.append(output))
        try:
            logits = self._run(self.model, tokens, below, cache).logits
        finally:
            hook.remove()
        hidden, between = _states(inner[0], below)
        return Features(hidden, logits.float(), between)

    def check_head(self) -> None:
        """Check that the target's logits are what its output head computes of the hidden states.

        Raises:
            MTPCError: The model scales or caps them.
        """
        features = self.features(torch.zeros(1, 2, dtype=torch.int64))
        computed = self.model.get_output_embeddings()(features.hidden).float()
        if not torch.allclose(computed, features.logits, rtol=1e-2, atol=1e-3):
            raise MTPCError(
                f"{type(self.model).__name__} scales or caps the logits of its output head, which the KL divergence of "
                "this training leaves out: choose another --loss, and for Gumiho independent heads."
            )

    def _run(self, model: Any, tokens: Tensor, below: Collection[int], cache: Any) -> Any:
        """Return the output of the model, or of the part below its output head."""
        cached = {"past_key_values": cache, "use_cache": cache is not None, "output_hidden_states": bool(below)}
        return model(input_ids=tokens.to(self.device), **cached)

    def load_drafter(self, folder: Path) -> Drafter:
        """Return a drafter of this target from its checkpoint, in float32 on the target's device.

        Args:
            folder: The drafter checkpoint.

        Raises:
            MTPCError: See `mtpc.methods.drafter.load_drafter` and `bind`.
        """
        return self.bind(load_drafter(folder, self.facts, device=self.device))

    def bind(self, drafter: Drafter) -> Drafter:
        """Share the target's layers with a drafter that adapts them, and return the drafter.

        Raises:
            MTPCError: See `AdaptedLayers.bind`.
        """
        if isinstance(drafter.autoregressive, AdaptedLayers):
            drafter.autoregressive.bind(self.model)
        return drafter


def _states(output: Any, below: Collection[int]) -> tuple[Tensor, dict[int, Tensor]]:
    return output.last_hidden_state, {number: output.hidden_states[number] for number in below}


def state_below(drafter: Drafter) -> int | None:
    """Return the layer of the target whose input state a drafter reads; None: the last state.

    Args:
        drafter: The drafter.
    """
    autoregressive = drafter.config.autoregressive
    return None if autoregressive is None else autoregressive.state_below


def check_state(name: str, drafter: Drafter) -> None:
    """Check that a drafter's draft layers, if it has any, read the target's last hidden states.

    Args:
        name: Name of the drafter, for the error.
        drafter: The drafter.

    Raises:
        MTPCError: The drafter reads a hidden state between the target's layers, or the request's text.
    """
    if drafter.method.reads_text:
        raise MTPCError(f"{name} reads the request's text instead of the target's states: use `mtpc bench`.")
    autoregressive = drafter.config.autoregressive
    if autoregressive is not None and autoregressive.drafts and autoregressive.state_below is not None:
        raise MTPCError(
            f"{name} reads a state between the target's layers, which only engines compute: use `mtpc bench`."
        )


def sample_tokens(logits: Tensor, temperature: float, generator: torch.Generator | None = None) -> Tensor:
    """Sample the next token of each row: logits [B, V] -> int64 [B, 1]; temperature 0 is greedy."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)


def default_device() -> str:
    """Return the default device of models: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"
