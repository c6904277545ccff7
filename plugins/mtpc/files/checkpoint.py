"""A checkpoint in safetensors, in one file or in several with an index, of which few tensors are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.config_model import shown
from mtpc.files.json_file import check_file, is_there, read_json

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class Checkpoint:
    """The tensors of a folder by their names; nothing is read before it is asked for.

    files: the file of each tensor.

    Errors: `MTPCError` for a folder without safetensors, or an index that does not tell where each tensor is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if is_there(folder / INDEX):
            self.files = self._by_index()
        elif is_there(folder / WHOLE):
            self.files = dict.fromkeys(self._names(WHOLE), WHOLE)
        else:
            raise MTPCError(f"{folder} holds neither {INDEX} nor {WHOLE}; only safetensors are read.")

    def _by_index(self) -> dict[str, str]:
        files = read_json(self.folder / INDEX).get("weight_map")
        if not isinstance(files, dict) or not files:
            raise MTPCError(f"{self.folder / INDEX} has no 'weight_map' that names the file of each tensor.")
        for name, file in files.items():
            if not isinstance(file, str) or Path(file).name != file:
                raise MTPCError(
                    f"{self.folder / INDEX} names {shown(file)} for {shown(name)}, which is no file of the folder."
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
        """The shape of a tensor, from its file's header."""
        with self._open(self.files[name]) as tensors:
            self._must_hold(tensors, name)
            return list(tensors.get_slice(name).get_shape())

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Some tensors, each as it is stored.

        Errors: `MTPCError` for a file that is missing, damaged or does not hold what the index says.
        """
        tensors: dict[str, Tensor] = {}
        names = sorted(names)
        for file in sorted({self.files[name] for name in names}):
            with self._open(file) as opened:
                for name in names:
                    if self.files[name] == file:
                        self._must_hold(opened, name)
                        tensors[name] = opened.get_tensor(name)
        return tensors

    def _must_hold(self, tensors: Any, name: str) -> None:
        if name not in tensors.keys():  # noqa: SIM118 (not a dictionary)
            raise MTPCError(f"{self.folder / self.files[name]} does not hold the tensor {name!r} that {INDEX} names.")
