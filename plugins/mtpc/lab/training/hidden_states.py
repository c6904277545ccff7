"""The target's hidden states of conversations on disk: computed once, whatever is trained on them and how often."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.replacing import replacing
from mtpc.lab.targets.frozen import FrozenTarget

TENSOR_NAME = "states"  # the one tensor of a file


class HiddenStateCache:
    """A folder with a file for each text, named by what it is of, so that targets and trainings can share it.

    States are kept in bfloat16, 2 d bytes a token.  Each file is put in its place in one step: several trainings may
    run at once.

    Errors: `MTPCError` for a file that holds something else.
    """

    def __init__(self, folder: Path, target: FrozenTarget) -> None:
        self.folder, self.target = folder / target.digest()[:16], target

    def load_or_compute(self, texts: list[tuple[int, ...]]) -> list[Tensor]:
        """The states after the final norm of each text, [L, d]; those that are missing are computed."""
        found = [self._read(text) for text in texts]
        missing = [text for text, states in zip(texts, found, strict=True) if states is None]
        computed = iter(self._compute(missing))
        whole = [next(computed) if states is None else states for states in found]
        return [states.to(self.target.model.dtype) for states in whole]

    def _path(self, text: tuple[int, ...]) -> Path:
        name = hashlib.sha256(torch.tensor(text, dtype=torch.int32).numpy().tobytes()).hexdigest()
        return self.folder / f"{name}.safetensors"

    def _read(self, text: tuple[int, ...]) -> Tensor | None:
        path, shape = self._path(text), (len(text), self.target.facts.hidden_size)
        if not path.exists():
            return None
        try:
            states = load_file(path, device=str(self.target.device))[TENSOR_NAME]
        except (KeyError, OSError, SafetensorError):
            states = None
        if states is None or states.shape != shape or states.dtype != torch.bfloat16:
            raise MTPCError(f"{path} does not hold the states that its name says: take it away.")
        return states

    def _compute(self, texts: list[tuple[int, ...]]) -> list[Tensor]:
        """Of texts of like length, and written; padding on the right changes nothing before it."""
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
