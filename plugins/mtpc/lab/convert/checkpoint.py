"""A safetensors checkpoint, in one file or in several with an index, of which a few tensors are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.config_model import short_repr
from mtpc.files.json_file import check_file, is_there, read_json

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"


class Checkpoint:
    """The tensors of a folder by name; each is read from disk on request.

    Attributes:
        folder: The checkpoint.
        files: File of each tensor.

    Args:
        folder: The checkpoint.

    Raises:
        MTPCError: The folder has no safetensors, or its index does not name the file of each tensor.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if is_there(folder / INDEX_FILE):
            self.files = self._files_by_index()
        elif is_there(folder / WEIGHTS_FILE):
            self.files = dict.fromkeys(self._names(WEIGHTS_FILE), WEIGHTS_FILE)
        else:
            raise MTPCError(
                f"{folder} holds neither {INDEX_FILE} nor {WEIGHTS_FILE}; only safetensors checkpoints are supported."
            )

    def _files_by_index(self) -> dict[str, str]:
        files = read_json(self.folder / INDEX_FILE).get("weight_map")
        if not isinstance(files, dict) or not files:
            raise MTPCError(f"{self.folder / INDEX_FILE} has no 'weight_map' that names the file of each tensor.")
        for name, file in files.items():
            if not isinstance(file, str) or Path(file).name != file:
                raise MTPCError(
                    f"{self.folder / INDEX_FILE} names {short_repr(file)} for {short_repr(name)}, "
                    "which is not a file in the folder."
                )
        return files

    def _names(self, file: str) -> list[str]:
        with self._open(file) as tensors:
            return list(tensors.keys())

    def _open(self, file: str) -> Any:
        path = self.folder / file
        check_file(path)
        try:
            return safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise MTPCError(f"{path} is damaged or not a safetensors file: {error}.") from None

    def shape(self, name: str) -> list[int]:
        """Return the shape of a tensor, read from its file's header.

        Args:
            name: Name of the tensor.

        Raises:
            MTPCError: The file is missing, damaged, or does not contain the tensor.
        """
        with self._open(self.files[name]) as tensors:
            self._check_contains(tensors, name)
            return list(tensors.get_slice(name).get_shape())

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Read tensors as they are stored.

        Args:
            names: Names of the tensors.

        Returns:
            The tensors by name, on the CPU.

        Raises:
            MTPCError: A file is missing, damaged, or does not contain a tensor that the index names.
        """
        tensors: dict[str, Tensor] = {}
        names = sorted(names)
        for file in sorted({self.files[name] for name in names}):
            with self._open(file) as opened:
                for name in names:
                    if self.files[name] == file:
                        self._check_contains(opened, name)
                        tensors[name] = opened.get_tensor(name)
        return tensors

    def _check_contains(self, tensors: Any, name: str) -> None:
        if name not in tensors.keys():  # noqa: SIM118 (not a dictionary)
            raise MTPCError(
                f"{self.folder / self.files[name]} does not hold the tensor {name!r} that {INDEX_FILE} names."
            )
