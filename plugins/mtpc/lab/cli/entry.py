"""The program `mtpc`, which also starts where the libraries of the command line are not installed."""

from __future__ import annotations

import sys

from mtpc.lab.extras import missing_extra


def main() -> None:
    """Run the command line, or name the extra that it needs."""
    try:
        from mtpc.lab.cli.main import app
    except ModuleNotFoundError as error:
        print(f"mtpc: {missing_extra(error)}", file=sys.stderr)
        sys.exit(2)
    app()


if __name__ == "__main__":
    main()
