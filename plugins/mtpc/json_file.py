"""A JSON object in a file: what every config.json, index and provenance.json must be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Errors: `MTPCError` for a file that is missing or holds something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MTPCError(f"{path} is missing.") from None
    except (OSError, ValueError) as error:
        raise MTPCError(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(values, dict):
        raise MTPCError(f"{path} holds a {type(values).__name__}, but a JSON object was expected.")
    return values
