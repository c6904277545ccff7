"""The serial layers of a Gumiho drafter as a drafter by themselves, without its heads: EAGLE's way to draft.

    python -m benchmarks.serial_alone runs/gumiho runs/gumiho-serial

Every draft is then a step of the layers, as many as are asked for; the ablation of the Gumiho paper's heads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.arguments import one_sentence
from benchmarks.kept import digest
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.methods.drafter import Drafter, load_drafter, save_drafter
from mtpc.methods.gumiho import GumihoConfig


def serial_alone(whole: Drafter) -> Drafter:
    """The same layers with nothing behind them.

    Errors: `MTPCError` for what is no drafter of Gumiho's with heads.
    """
    config = whole.config
    if not isinstance(config, GumihoConfig) or config.parallel is None:
        raise MTPCError("This is no Gumiho drafter with parallel heads, which could be left out.")
    layers = config.model_copy(update={"parallel": None})
    alone = Drafter(whole.family, layers)
    alone.load_tensors(whole.tensors())
    return alone


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Write the directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    alone = serial_alone(load_drafter(given.drafter))
    save_drafter(given.out, alone, provenance.collect() | {"drafter_sha256": digest(given.drafter)})


if __name__ == "__main__":
    sys.exit(main())
