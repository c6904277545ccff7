"""What a draft method provides, and what every drafter of it can be asked: the contract.

A drafter has an autoregressive part, which engines run step by step, and a parallel part, drafted in one shot after it; each may
be empty, and where both are, all drafts are copied.  Adapters, `mtpc inspect` and the benchmark know these two and
never a draft method's name: they find a draft method in the registry (`mtpc.methods`) and ask it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from mtpc.autoregressive.config import SHARED_KEYS, AutoregressiveConfig
from mtpc.files.config_json import FORMAT_VERSION, read_section

if TYPE_CHECKING:
    from mtpc.autoregressive.part import AutoregressivePart
    from mtpc.methods.drafter import Drafter
    from mtpc.parallel.part import ParallelPart

# Keys that the engines' model configuration reads of a drafter without an autoregressive part.
PARALLEL_KEYS: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 0,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "intermediate_size": 1,
    "max_position_embeddings": 1 << 20,
}
STORED_PARTS = {"autoregressive": "serial", "parallel": "window"}  # prefixes of tensors in a checkpoint of version 1
STATE_KEY = "eagle_aux_hidden_state_layer_ids"  # vLLM's: the target's states that it hands over, each below a layer


class DrafterConfig(Protocol):
    """What the configuration of any drafter says: a `Strict` model whose fields are the keys of its section."""

    def model_dump(self) -> dict[str, Any]:
        """The keys and their values."""

    @property
    def hidden_size(self) -> int:
        """D of the target."""

    @property
    def vocab_size(self) -> int:
        """V of the target."""

    @property
    def autoregressive(self) -> AutoregressiveConfig | None:
        """The layers of the autoregressive part; None: there is none."""

    @property
    def draft_steps(self) -> int | None:
        """s, drafts of the autoregressive part; 0 without one, None: as many as are asked for."""

    @property
    def num_drafts(self) -> int:
        """K, drafts of a step unless the user says otherwise."""

    @property
    def own_drafts(self) -> int:
        """How many of these are the two parts'; 0: every one is prompt lookup's."""

    @property
    def max_drafts(self) -> int:
        """Drafts of a step at most, no more than `mtpc.draft.MOST`."""


class ParallelOnly:
    """What the configuration of a drafter says that has no autoregressive part."""

    @property
    def autoregressive(self) -> None:
        """There is none."""
        return

    @property
    def draft_steps(self) -> int:
        """None."""
        return 0


class DraftMethod(ABC):
    """A kind of drafter.  One object of each is in the registry."""

    name: ClassVar[str]  # of its section in config.json, and on the command line
    title: ClassVar[str]  # "an MTPC drafter"
    summary: ClassVar[str]  # one line for a user who chooses
    architecture: ClassVar[str]  # in config.json; engines know their model classes by it
    algorithm: ClassVar[str]  # the name in SGLang
    config: ClassVar[type[Any]]  # a `DrafterConfig`

    def to_json(self, config: DrafterConfig) -> dict[str, Any]:
        """The whole of config.json: what engines read, and the drafter's own section."""
        if config.autoregressive is None:
            sizes = {"hidden_size": config.hidden_size, "vocab_size": config.vocab_size}
            layers = {**PARALLEL_KEYS, **sizes, "head_dim": config.hidden_size}
        else:
            shared = {key: getattr(config.autoregressive, key) for key in SHARED_KEYS}
            layers = {"model_type": config.autoregressive.layer, "hidden_act": "silu", **shared}
            if config.autoregressive.state_below is not None:
                layers[STATE_KEY] = [config.autoregressive.state_below]
        engine = {"architectures": [self.architecture], "tie_word_embeddings": False, "dtype": "bfloat16"}
        return {**engine, **layers, self.name: {"version": FORMAT_VERSION, **config.model_dump()}}

    def read_config(self, folder: Path) -> Any:
        """Read and check ``config.json``: a `DrafterConfig` of this draft method.

        Errors: `MTPCError` with one sentence that names the file, the key, what was found and what was expected.
        """
        return read_section(folder, self.name, self.config, self.to_json, self.title)

    def describes(self, values: Mapping[str, Any]) -> bool:
        """Whether a ``config.json`` says that it is such a drafter."""
        named = values.get("architectures")
        return self.name in values or (isinstance(named, list) and self.architecture in named)

    def autoregressive(self, config: Any) -> AutoregressivePart | None:
        """The untrained autoregressive part of a drafter; None: it has none.  Only here are its layers imported."""
        if config.autoregressive is None:
            return None
        from mtpc.autoregressive.layer import DraftLayers

        return DraftLayers(config.autoregressive)

    def parallel(self, config: Any) -> ParallelPart | None:
        """The untrained parallel part of a drafter; None: it has none."""
        return None

    def tensor_name(self, name: str) -> str:
        """Return the name in ``model.safetensors`` of a tensor of a `Drafter`."""
        part, _, rest = name.partition(".")
        return f"{STORED_PARTS[part]}.{rest}"

    @abstractmethod
    def facts(self, drafter: Drafter) -> dict[str, str]:
        """What `mtpc inspect` tells of a drafter beside its parts, by name."""
