"""A drafter checkpoint that names a draft model with another tokenizer (`mtpc convert pair`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtpc.draft_model.byte_walk import SpelledVocabulary
from mtpc.draft_model.pair import load_tokenizer
from mtpc.draft_model.translation import TokenizerPair
from mtpc.errors import MTPCError
from mtpc.files.hub import is_hub_id, local_folder
from mtpc.lab.targets.folder import check_folder, stated_sizes
from mtpc.lab.text.overlap import SAME, SLEM, SLRS, TLI, Overlap, overlap
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.pair import Pair, PairConfig, Rule
from mtpc.vocabulary.token_counts import count_tokens, write_counts

FITTING: dict[str, Rule] = {SAME: "tli", TLI: "tli", SLEM: "slem", SLRS: "slrs"}


def convert_pair(
    draft: str, target: Path, out: Path, texts: Sequence[int], translation: Rule | None = None, **settings: Any
) -> tuple[PairConfig, Overlap]:
    """Write a drafter checkpoint for a draft model and a target.

    Args:
        draft: Folder of the draft model, or ``owner/name[@revision]`` of the Hugging Face Hub.
        target: Folder of the target.
        out: Folder to write.
        texts: Tokens of texts in the target's tokenizer, to measure the overlap and to count where tokens end.
        translation: How tokens are translated. None: walked byte by byte where the draft model is over bytes, by common
            tokens where nearly all tokens of the text are common, else by text.
        **settings: Further keys of `PairConfig` that the user has set.

    Returns:
        The configuration, and the overlap of both vocabularies.

    Raises:
        MTPCError: The target states no sizes, a folder holds no model, the tokenizers have no token in common, or
            the draft model has no single way to write each token of the target ("slrs").
    """
    sizes = stated_sizes(target)
    if sizes is None:
        raise MTPCError(f"{target / 'config.json'} has no hidden_size and vocab_size, the sizes of the target.")
    name, _, revision = draft.partition("@")
    if not is_hub_id(name):
        name, revision = str(Path(draft).resolve()), ""
    folder = local_folder(name, revision or None)
    check_folder(folder, "a draft model")
    tokenizers = load_tokenizer(folder), load_tokenizer(target)
    shared, pair = overlap(*tokenizers, texts), TokenizerPair.of(*tokenizers)
    if (own := stated_sizes(folder)) is not None:
        pair.check_sizes(own.vocab_size, sizes.vocab_size)
    config = PairConfig(
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        model=name,
        revision=revision or None,
        translation=translation or FITTING[shared.method],
        draft_tokens=pair.own.tokens.digest(),
        target_tokens=pair.target.tokens.digest(),
        **settings,
    )
    counts = None
    if config.translation == "slrs":
        counts = count_tokens(texts, pair.target.tokens, sizes.vocab_size)
        SpelledVocabulary(pair, counts.trie(pair.target.tokens))
    save_drafter(out, Drafter(Pair(), config), {"target": target.name, "overlap": shared._asdict()})
    if counts is not None:
        write_counts(out, counts)
    return config, shared
