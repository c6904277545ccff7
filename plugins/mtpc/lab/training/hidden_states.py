"""Disk cache of the target's hidden states, so that several trainings compute them only once."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.replacing import replacing
from mtpc.lab.targets.frozen import FrozenTarget

TENSOR_NAME = "states"  # the only tensor of a file
STATE_BYTES = 2  # of a hidden dimension, in bfloat16


class HiddenStateCache:
    """Folder with one file per text, named by the digests of target and text. Call ``plan`` before anything is stored.

    Several targets and concurrent trainings can share the folder, because files are written atomically. States are
    stored in bfloat16, 2 d bytes per token.

    Args:
        folder: Folder of the cache. It is created when needed.
        target: Frozen target whose states are cached.
    """

    def __init__(self, folder: Path, target: FrozenTarget) -> None:
        self.folder, self.target = folder / target.digest()[:16], target

    def plan(self, texts: Iterable[tuple[int, ...]]) -> str:
        """Return a line on the disk space of texts that are not stored yet, before any of them is.

        Args:
            texts: Token ids of each text.

        Raises:
            MTPCError: The disk has too little free space.
        """
        missing = {path: len(text) for text in texts if not (path := self._path(text)).exists()}
        tokens = sum(missing.values())
        needed = STATE_BYTES * self.target.facts.hidden_size * tokens
        there = next(each for each in (self.folder, *self.folder.absolute().parents) if each.exists())
        free = shutil.disk_usage(there).free
        size = f"the hidden states of {tokens:,} tokens take {needed / 1e9:,.3f} GB in {self.folder.parent}"
        if needed > free:
            raise MTPCError(
                f"{size}, which has {free / 1e9:,.3f} GB free; choose another folder with --states, or train without."
            )
        return f"{size}, of {free / 1e9:,.3f} GB that are free"

    def load_or_compute(self, texts: list[tuple[int, ...]]) -> list[Tensor]:
        """Return the target's hidden states after its final norm; compute and store missing ones.

        Args:
            texts: Token ids of each text, L tokens. Texts of similar lengths waste the least memory.

        Returns:
            States of each text, [L, d], in the target's dtype.

        Raises:
            MTPCError: A file of the cache holds something else.
        """
        cached = [self._read(text) for text in texts]
        missing = [text for text, states in zip(texts, cached, strict=True) if states is None]
        computed = iter(self._compute(missing))
        complete = [next(computed) if states is None else states for states in cached]
        return [states.to(self.target.model.dtype) for states in complete]

    def _path(self, text: tuple[int, ...]) -> Path:
        name = hashlib.sha256(torch.tensor(text, dtype=torch.int32).numpy().tobytes()).hexdigest()
        return self.folder / f"{name}.safetensors"

    def _read(self, text: tuple[int, ...]) -> Tensor | None:
        path, shape = self._path(text), (len(text), self.target.facts.hidden_size)
        if not path.exists():
            return None
        try:
            states = load_file(path)[TENSOR_NAME].to(self.target.device)
        except (KeyError, OSError, SafetensorError):
            states = None
        if states is None or states.shape != shape or states.dtype != torch.bfloat16:
            raise MTPCError(f"{path} does not hold the hidden states of its text; remove this file.")
        return states

    def _compute(self, texts: list[tuple[int, ...]]) -> list[Tensor]:
        """Compute and store the states of texts; padding on the right does not change them."""
        if not texts:
            return []
        padded = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
        for row, text in zip(padded, texts, strict=True):
            row[: len(text)] = torch.tensor(text)
        whole = self.target.hidden(padded).to(torch.bfloat16)
        computed = [states[: len(text)].clone() for states, text in zip(whole, texts, strict=True)]
        self.folder.mkdir(parents=True, exist_ok=True)
        for text, states in zip(texts, computed, strict=True):
            with replacing(self._path(text)) as unfinished:
                save_file({TENSOR_NAME: states}, unfinished)
        return computed
