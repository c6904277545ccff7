"""A draft model with another tokenizer than its target (arXiv:2502.05202; section "pair" of config.json)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field

from mtpc.draft import MAX_DRAFTS
from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict
from mtpc.files.hub import local_folder
from mtpc.files.json_file import is_folder
from mtpc.files.target import HiddenSize, VocabSize
from mtpc.methods.contract import DraftMethod, ParallelOnly

if TYPE_CHECKING:
    from mtpc.draft_model.part import TextPart
    from mtpc.methods.drafter import Drafter

Rule = Literal["tli", "slem", "slrs"]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class PairConfig(ParallelOnly, Strict):
    """The keys of a pair of a draft model and a target.

    Attributes:
        hidden_size: d of the target, which engines require.
        vocab_size: V of the target.
        model: Folder of the draft model, or its id on the Hugging Face Hub.
        revision: Branch, tag or commit of that repository; None: its main branch.
        translation: "tli": the draft model's distribution over the common tokens. "slem": its text, in the target's
            tokens. "slrs": tokens of the target, walked byte by byte.
        num_drafts: K, draft tokens per verification step unless the user sets it.
        min_confidence: A draft ends where the probability that all of it is right falls below this, by the draft
            model's own probabilities.
        context: Most tokens of a request's text that the draft model reads.
        slots: Most requests that draft at the same time.
        draft_tokens: SHA-256 of the draft model's vocabulary, see `TokenBytes.digest`.
        target_tokens: SHA-256 of the target's vocabulary.
    """

    hidden_size: HiddenSize
    vocab_size: VocabSize
    model: Annotated[str, Field(min_length=1)]
    revision: str | None = None
    translation: Rule
    num_drafts: Annotated[int, Field(ge=1, le=MAX_DRAFTS)] = 4
    min_confidence: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.3
    context: Annotated[int, Field(ge=64, le=1 << 20)] = 2048
    slots: Annotated[int, Field(ge=1, le=4096)] = 16
    draft_tokens: Digest
    target_tokens: Digest

    @property
    def own_drafts(self) -> int:
        """Every draft token comes from the draft model."""
        return self.num_drafts

    @property
    def max_drafts(self) -> int:
        """The draft model can write any number of tokens."""
        return MAX_DRAFTS


class Pair(DraftMethod):
    """A whole language model that drafts in its own tokens."""

    name = "pair"
    title = "a draft model with its own tokenizer"
    summary = "any small language model, whose tokens are translated into the target's"
    architecture = "EaglePairForCausalLM"
    algorithm = "PAIR"
    config = PairConfig
    reads_text = True

    def text(self, folder: Path, config: PairConfig, tokenizer: str, device: torch.device) -> TextPart:
        """Load the draft model and both tokenizers.

        Args:
            folder: The pair's folder, for errors.
            config: Its configuration.
            tokenizer: Folder or id of the target's tokenizer.
            device: Where the draft model runs.

        Raises:
            MTPCError: The draft model or a tokenizer cannot be loaded, or is not the one that the pair was made for.
        """
        from transformers import AutoConfig

        from mtpc.draft_model.byte_walk import SpelledVocabulary
        from mtpc.draft_model.language_model import LanguageModel
        from mtpc.draft_model.pair import PairPart, load_tokenizer
        from mtpc.draft_model.translation import TokenizerPair
        from mtpc.vocabulary.token_counts import read_counts

        draft = local_folder(config.model, config.revision)
        if not is_folder(draft):
            raise MTPCError(
                f"{folder} names the draft model {draft}, which is not a folder: run mtpc convert pair again."
            )
        pair = TokenizerPair.of(load_tokenizer(draft), load_tokenizer(tokenizer))
        for name, encoder, expected in (
            (f"the draft model {config.model}", pair.own, config.draft_tokens),
            (f"the target {tokenizer}", pair.target, config.target_tokens),
        ):
            if encoder.tokens.digest() != expected:
                raise MTPCError(
                    f"{folder} was made for another vocabulary than that of {name}: run mtpc convert pair again."
                )
        spelled = None
        if config.translation == "slrs":
            counts = read_counts(folder, config.vocab_size)
            spelled = SpelledVocabulary(pair, counts.trie(pair.target.tokens))
        dtype = AutoConfig.from_pretrained(draft).dtype or torch.bfloat16
        if spelled is not None:
            dtype = torch.float32  # see `WalkedProbs`
        model = LanguageModel(draft, device, dtype, config.slots, config.context)
        return PairPart(model, pair, config.vocab_size, config.translation, config.min_confidence, spelled)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return the draft model and how its tokens are translated."""
        section = drafter.config.model_dump()
        return {"draft model": section["model"], "translation": section["translation"]}
