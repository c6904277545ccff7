"""The extras of this distribution that hold what only the command line uses."""

from __future__ import annotations

TRAINING = {"gguf", "tokenizers", "transformers"}


def missing(error: ModuleNotFoundError) -> str:
    """Return a sentence that names the extra with a missing package.

    Raises:
        ModuleNotFoundError: The given one, for a module of this distribution.
    """
    package = (error.name or "").partition(".")[0]
    if package in ("", "mtpc", "vllm_mtpc", "sglang_mtpc"):
        raise error
    extra = "train" if package in TRAINING else "cli"
    return f"this command needs the package {package}: pip install 'mtpc-plugins[{extra}]'."
