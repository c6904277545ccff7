"""The extras of this distribution that install what only the command line needs."""

from __future__ import annotations

TRAINING = {"gguf", "tokenizers", "transformers"}


def missing_extra(error: ModuleNotFoundError) -> str:
    """Return a sentence that names the extra that installs a missing package.

    Args:
        error: The error of the failed import.

    Raises:
        ModuleNotFoundError: The given error again, where the module is one of this distribution.
    """
    package = (error.name or "").partition(".")[0]
    if package in ("", "mtpc", "vllm_mtpc", "sglang_mtpc"):
        raise error
    extra = "train" if package in TRAINING else "cli"
    return f"this command needs the package {package}: in a checkout, pip install '.[{extra}]'."
