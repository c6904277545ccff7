"""The tokens of a tokenizer as bytes, so that tokenizers of different kinds can be compared."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mtpc.errors import MTPCError

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # a token for a byte, where SentencePiece falls back to bytes
SPACE = "\u2581"  # what SentencePiece writes for a space


class TokenBytes(NamedTuple):
    """What each token adds to a text.

    Attributes:
        tokens: Bytes of each token, by id.  None for a special token, and for an id without a token.
        special: Ids of the special tokens.
        fallback: Ids of tokens for a single byte that stand in for characters without a token of their own.
    """

    tokens: tuple[bytes | None, ...]
    special: frozenset[int]
    fallback: frozenset[int]

    def text_of(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of tokens one after the other; special tokens add none."""
        return b"".join(self.tokens[each] or b"" for each in ids)

    def digest(self) -> str:
        """Return the SHA-256 of the vocabulary: of every token's bytes by id, and of the ids that are special."""
        listed = [None if token is None else token.hex() for token in self.tokens], sorted(self.special)
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()

    def by_bytes(self) -> dict[bytes, int]:
        """Return the id of each token's bytes.

        Of several tokens with the same bytes, the first that is no byte fallback counts: it is the one that texts hold.
        """
        found: dict[bytes, int] = {}
        for number, text in sorted(enumerate(self.tokens), key=lambda each: (each[0] in self.fallback, each[0])):
            if text:
                found.setdefault(text, number)
        return found


class Intersection(NamedTuple):
    """Tokens that two tokenizers have in common, each pair with the same bytes.

    Attributes:
        draft: int64 [N], ids in the drafter's vocabulary, in rising order.
        target: int64 [N], the ids of the same tokens in the target's vocabulary.
    """

    draft: np.ndarray
    target: np.ndarray


def token_bytes(tokenizer: Any) -> TokenBytes:
    """Read every token of a tokenizer as bytes.

    Args:
        tokenizer: One of transformers.

    Returns:
        The bytes of its tokens.

    Raises:
        MTPCError: For a tokenizer that cannot decode single tokens.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise MTPCError(
            f"the tokenizer {type(tokenizer).__name__} cannot decode single tokens: only tokenizers with a "
            "tokenizer.json can be compared by bytes."
        )
    described = json.loads(backend.to_str())
    decode = _decoder(described)
    special = frozenset(token["id"] for token in described["added_tokens"] if token["special"])
    vocabulary: Mapping[str, int] = backend.get_vocab(with_added_tokens=True)
    tokens: list[bytes | None] = [None] * (1 + max(vocabulary.values(), default=-1))
    fallback = set()
    for text, number in vocabulary.items():
        if number not in special:
            tokens[number] = decode(text)  # added tokens too, as transformers decodes them
            if len(text) > 1 and BYTE_TOKEN.fullmatch(text):
                fallback.add(number)
    return TokenBytes(tuple(tokens), special, frozenset(fallback))


def intersection(draft: TokenBytes, target: TokenBytes) -> Intersection:
    """Return the tokens that both tokenizers have, by their bytes (TLI, algorithm 4 of arXiv:2502.05202).

    Of several tokens with the same bytes, the one of `TokenBytes.by_bytes` counts.

    Args:
        draft: Tokens of the drafter's tokenizer.
        target: Tokens of the target's tokenizer.

    Returns:
        Pairs of ids with the same bytes.

    Raises:
        MTPCError: Where they have no token in common.
    """
    of_draft, of_target = draft.by_bytes(), target.by_bytes()
    pairs = sorted((of_draft[each], of_target[each]) for each in of_draft.keys() & of_target.keys())
    if not pairs:
        raise MTPCError("the two tokenizers have no token in common, so none can draft for the other.")
    ids = np.array(pairs, dtype=np.int64)
    return Intersection(ids[:, 0].copy(), ids[:, 1].copy())


def _decoder(described: Mapping[str, Any]) -> Callable[[str], bytes]:
    """Return what turns a token's name into bytes, by the decoder and the model of a tokenizer.json."""
    kinds = _kinds(described["decoder"]) | _kinds(described["pre_tokenizer"])
    model = described["model"]
    if "ByteLevel" in kinds:
        return _of_byte_level
    if model["type"] == "WordPiece":
        prefix = model["continuing_subword_prefix"]
        return lambda text: (text.removeprefix(prefix) if text.startswith(prefix) else f" {text}").encode()
    if model.get("byte_fallback") or "ByteFallback" in kinds:
        return _with_byte_fallback
    if model["type"] == "Unigram" or "Metaspace" in kinds:
        return lambda text: text.replace(SPACE, " ").encode()
    raise MTPCError(
        f"a tokenizer of type {model['type']} with the decoder {', '.join(sorted(kinds)) or 'none'} cannot decode "
        "single tokens to bytes."
    )


def _kinds(part: Mapping[str, Any] | None) -> set[str]:
    """Return the types of a part of a tokenizer.json, which may be a sequence of others."""
    if part is None:
        return set()
    inner = [*part.get("decoders", ()), *part.get("pretokenizers", ())]
    return {part["type"], *(kind for each in inner for kind in _kinds(each))}


def _of_byte_level(text: str) -> bytes:
    if not all(character in _BYTES for character in text):
        return text.encode()  # a token that was added to the vocabulary as it is
    return bytes(_BYTES[character] for character in text)


def _with_byte_fallback(text: str) -> bytes:
    byte = BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace(SPACE, " ").encode()


def _byte_characters() -> dict[str, int]:
    """Return the byte of each character in which byte-level BPE writes its tokens (GPT-2).

    Bytes that are printable characters of Latin-1 are written as these, all others as characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_characters()
