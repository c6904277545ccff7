"""The entry point of `mtpc`, which imports no library of the command line before it can name the extra."""

from __future__ import annotations

import sys

from mtpc.lab.extras import missing_extra


def main() -> None:
    """Run the command line; where a library is missing, name the extra that installs it and exit with code 2."""
    try:
        from mtpc.lab.cli.main import app
    except ModuleNotFoundError as error:
        print(f"mtpc: {missing_extra(error)}", file=sys.stderr)
        sys.exit(2)
    app()


if __name__ == "__main__":
    main()
