"""Record what the adapters touch in releases of their engines, of which none is installed or imported.

``python -m tests.integration_points WHEEL_OR_FOLDER...``: wheels as they are downloaded (``pip download --no-deps``),
or folders called like ``vllm-0.33.0`` that hold the engine's package.  Each becomes a file in this folder, and a
sentence is printed for each line of its adapter's table that does not hold in it.  A new release is looked at by adding
its file; when a table names another function, all of them are written anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration_points.records import ENGINES, of_release, record, table, write
from tests.integration_points.sources import Sources


def main(paths: list[str]) -> int:
    """How many lines do not hold."""
    wrong = 0
    for path in map(Path, paths):
        release = "-".join(path.name.split("-")[:2]).removesuffix(".whl")
        if release.split("-")[0] not in ENGINES or not path.exists():
            raise SystemExit(f"{path} is no wheel or folder called like vllm-0.33.0 or sglang-0.5.23.")
        print(write(release, record(release, Sources(path).parameters)))
        for line in table(release):
            if problem := line.problem(of_release(release)):
                print(f"  {problem}.")
                wrong += 1
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
