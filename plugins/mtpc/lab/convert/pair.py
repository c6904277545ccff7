"""A language model as the drafter of a target, whatever its tokenizer is (`mtpc convert pair`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mtpc.draft_model.byte_walk import SpelledVocabulary
from mtpc.draft_model.pair import load_tokenizer
from mtpc.draft_model.translation import TokenizerPair
from mtpc.errors import MTPCError
from mtpc.files.hub import is_hub_id, local_folder
from mtpc.lab.convert.same_vocabulary import draft_rows, write_draft_model
from mtpc.lab.output_paths import check_new_folder
from mtpc.lab.targets.folder import check_folder, stated_sizes
from mtpc.lab.text.overlap import SAME, Overlap, PairMethod, overlap
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.pair import Pair, PairConfig
from mtpc.vocabulary.token_counts import count_tokens, write_counts


class ConvertedPair(NamedTuple):
    """What engines serve a draft model by.

    Attributes:
        method: "same" for the engine's own draft loop, else how tokens are translated.
        folder: The written folder, or the draft model's own where nothing has to change.
        overlap: What both tokenizers have in common.
    """

    method: PairMethod
    folder: Path
    overlap: Overlap


def convert_pair(
    draft: str, target: Path, out: Path, texts: Sequence[int], method: PairMethod | None = None, **settings: Any
) -> ConvertedPair:
    """Write what serves a draft model for a target.

    With the target's vocabulary it is the draft model itself, reordered, or nothing where it has the same ids. Else it
    is a drafter checkpoint that refers to the draft model.

    Args:
        draft: Folder of the draft model, or ``owner/name[@revision]`` of the Hugging Face Hub.
        target: Folder of the target.
        out: Folder to write. It must be new or empty.
        texts: Tokens of texts in the target's tokenizer, to measure the overlap and to count where tokens end.
        method: See `ConvertedPair`. None: "same" where the target has all tokens of the draft model, and nearly all
            tokens of the text are common. Otherwise tokens are walked byte by byte where the draft model is over bytes,
            by common tokens where nearly all tokens of the text are common, else by text.
        **settings: Further keys of `PairConfig` that the user has set; unused by "same".

    Returns:
        The method, what it is served by, and the overlap of both vocabularies.

    Raises:
        MTPCError: ``out`` is not empty, the target states no sizes, a folder holds no model, or the tokenizers have no
            token in common. With "slrs": the draft model has no single way to write each token of the target. With
            "same": it has tokens that the target does not have.
    """
    check_new_folder(out)
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
    method = method or shared.method
    facts = {"target": target.name, "overlap": shared._asdict()}
    if method == SAME:
        if own is None:
            raise MTPCError(
                f"{folder / 'config.json'} has no hidden_size and vocab_size, the sizes of the draft model."
            )
        if own.vocab_size == sizes.vocab_size and tokenizers[0].get_vocab() == tokenizers[1].get_vocab():
            return ConvertedPair(method, folder, shared)
        rows = draft_rows(pair, sizes.vocab_size)
        write_draft_model(folder, target, tokenizers[1], rows, out, {"draft_model": draft, **facts})
        return ConvertedPair(method, out, shared)
    config = PairConfig(
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        model=name,
        revision=revision or None,
        translation=method,
        draft_tokens=pair.own.tokens.digest(),
        target_tokens=pair.target.tokens.digest(),
        **settings,
    )
    counts = None
    if config.translation == "slrs":
        counts = count_tokens(texts, pair.target.tokens, sizes.vocab_size)
        SpelledVocabulary(pair, counts.trie(pair.target.tokens))
    save_drafter(out, Drafter(Pair(), config), facts)
    if counts is not None:
        write_counts(out, counts)
    return ConvertedPair(method, out, shared)
