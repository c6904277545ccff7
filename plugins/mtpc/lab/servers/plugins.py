"""Environment variables with which an engine loads every installed plugin but this project's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import entry_points

NO_PLUGIN = "-"  # a name that no plugin has: in SGLang an empty list means all plugins


def without_plugin(variable: str, groups: Sequence[str], package: str) -> dict[str, str]:
    """Return the variable that lists the plugins to load, without those of one package.

    Args:
        variable: The engine's variable, which lists names separated by commas; unset means all plugins.
        groups: Entry point groups that the variable applies to.
        package: Top-level package whose plugins are left out.
    """
    plugins = [plugin for group in groups for plugin in entry_points(group=group)]
    ours = {plugin.name for plugin in plugins if plugin.module.partition(".")[0] == package}
    named = os.environ.get(variable, "").split(",")
    wanted = {name.strip() for name in named} - {""} or {plugin.name for plugin in plugins}
    return {variable: ",".join(sorted(wanted - ours)) or NO_PLUGIN}
