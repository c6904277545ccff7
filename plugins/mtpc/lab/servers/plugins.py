"""An engine as it is released: its processes load every plugin that is installed, but for this project's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import entry_points

NO_PLUGIN = "-"  # a name that no plugin has: an empty list of names would stand for all plugins in SGLang


def without_plugin(variable: str, groups: Sequence[str], package: str) -> dict[str, str]:
    """The variable that names the plugins to load, all but those of a package.

    variable: of the engine; names with commas, by default all.  groups: of entry points that it is about.
    """
    plugins = [plugin for group in groups for plugin in entry_points(group=group)]
    ours = {plugin.name for plugin in plugins if plugin.module.partition(".")[0] == package}
    named = os.environ.get(variable, "").split(",")
    wanted = {name.strip() for name in named} - {""} or {plugin.name for plugin in plugins}
    return {variable: ",".join(sorted(wanted - ours)) or NO_PLUGIN}
