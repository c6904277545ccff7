"""The contract of a draft method and of its drafters.

A drafter has an autoregressive part, which engines run step by step, and a parallel part, drafted in one pass after it.
Either may be empty. Where both are, every draft token comes from prompt lookup. A drafter with a text part has neither:
it reads the request's text instead of the target's states.
Adapters, `mtpc inspect` and the benchmarks use this contract and never a draft method's name. They look draft methods
up in the registry (`mtpc.methods`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from mtpc.autoregressive.config import SHARED_KEYS, AutoregressiveConfig, LayersConfig
from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.files.config_json import FORMAT_VERSION, read_section

if TYPE_CHECKING:
    import torch

    from mtpc.autoregressive.part import AutoregressivePart
    from mtpc.draft_model.part import TextPart
    from mtpc.methods.drafter import Drafter
    from mtpc.parallel.part import ParallelPart

# Keys of config.json that the engines' model configuration needs for a drafter without an autoregressive part.
PARALLEL_KEYS: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 0,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "intermediate_size": 1,
    "max_position_embeddings": 1 << 20,
}
STORED_PARTS = {"autoregressive": "serial", "parallel": "window"}  # prefixes of tensor names in checkpoints
STATE_KEY = "eagle_aux_hidden_state_layer_ids"  # vLLM's key for the target layers whose inputs a drafter reads


class DrafterConfig(Protocol):
    """The configuration of any drafter: a `Strict` model whose fields are the keys of its section in config.json."""

    def model_dump(self) -> dict[str, Any]:
        """Return the keys and their values."""

    @property
    def hidden_size(self) -> int:
        """Hidden size d of the target."""

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V of the target."""

    @property
    def autoregressive(self) -> LayersConfig | None:
        """The layers of the autoregressive part; None: there is none."""

    @property
    def draft_steps(self) -> int | None:
        """s, draft tokens of the autoregressive part. 0 where it drafts none; None: as many as are requested."""

    @property
    def num_drafts(self) -> int:
        """K, draft tokens per verification step unless the user sets it."""

    @property
    def own_drafts(self) -> int:
        """Draft tokens of the two parts; 0: every draft token comes from prompt lookup."""

    @property
    def max_drafts(self) -> int:
        """The largest K, at most `mtpc.draft.MAX_DRAFTS`."""


class ParallelOnly:
    """Configuration defaults of a drafter without an autoregressive part."""

    @property
    def autoregressive(self) -> None:
        """There are no draft layers."""
        return

    @property
    def draft_steps(self) -> int:
        """There are no autoregressive draft steps."""
        return 0

    @property
    def own_drafts(self) -> int:
        """No draft token needs prompt lookup."""
        drafts: int = self.num_drafts  # type: ignore[attr-defined]  # of the configuration
        return drafts


class DraftMethod(ABC):
    """A type of drafter. The registry has one object of each.

    Attributes:
        name: Its section in config.json, and its name on the command line.
        title: Description with article, such as "an MTPC drafter", for messages.
        summary: One line for a user who chooses a method.
        architecture: The model class in config.json, which engines register.
        algorithm: The name for SGLang's ``--speculative-algorithm``.
        config: A `DrafterConfig`.
        reads_text: Whether its drafters have a text part, and no other part.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    architecture: ClassVar[str]
    algorithm: ClassVar[str]
    config: ClassVar[type[Any]]
    reads_text: ClassVar[bool] = False

    def to_json(self, config: DrafterConfig) -> dict[str, Any]:
        """Return the whole config.json: the keys that engines read, and the drafter's section."""
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
        """Read and check ``config.json``.

        Args:
            folder: The drafter checkpoint.

        Returns:
            A `DrafterConfig` of this draft method.

        Raises:
            MTPCError: With the file, the key, the value and what was expected.
        """
        return read_section(folder, self.name, self.config, self.to_json, self.title)

    def describes(self, values: Mapping[str, Any]) -> bool:
        """Return whether the content of a ``config.json`` is that of such a drafter."""
        named = values.get("architectures")
        return self.name in values or (isinstance(named, list) and self.architecture in named)

    def autoregressive(self, config: Any) -> AutoregressivePart | None:
        """Build the untrained autoregressive part; None: the drafter has none.

        The layers are made of transformers, which an engine's process does not import: it has layers of its own.
        """
        if config.autoregressive is None:
            return None
        if isinstance(config.autoregressive, LoRALayersConfig):
            from mtpc.autoregressive.adapted_layers import AdaptedLayers

            return AdaptedLayers(config.autoregressive)
        assert isinstance(config.autoregressive, AutoregressiveConfig)  # the only other kind of layers
        from mtpc.autoregressive.layer import DraftLayers

        return DraftLayers(config.autoregressive)

    def parallel(self, config: Any) -> ParallelPart | None:
        """Build the untrained parallel part; None: the drafter has none."""
        return None

    def text(self, folder: Path, config: Any, tokenizer: str, device: torch.device) -> TextPart | None:
        """Load the text part; None: the drafter has none.

        Args:
            folder: The drafter checkpoint.
            config: Its configuration.
            tokenizer: Folder or id of the target's tokenizer.
            device: Where the engine runs.

        Raises:
            MTPCError: The draft model cannot be loaded, or does not fit the target's tokenizer.
        """
        return None

    def tensor_name(self, name: str) -> str:
        """Return the name in ``model.safetensors`` of a tensor of a `Drafter`."""
        part, _, rest = name.partition(".")
        return f"{STORED_PARTS[part]}.{rest}"

    @abstractmethod
    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return what `mtpc inspect` prints about a drafter besides its parts, by name."""
