"""Makes engines load this project's plugins from the checkout, also where it is not installed."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import mtpc
from tests.gpu.running import ROOT


def put_on_the_path(folder: Path) -> None:
    """Put the checkout and its entry points on the path of this process and of those that it starts.

    Engines find plugins by the metadata of installed distributions; ``folder`` gets that of this one.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{mtpc.__version__}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {mtpc.__version__}\n")
    sections = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    added = [str(folder), str(ROOT / "plugins"), str(ROOT)]
    sys.path[:0] = added
    os.environ["PYTHONPATH"] = os.pathsep.join([*added, *filter(None, [os.environ.get("PYTHONPATH")])])
