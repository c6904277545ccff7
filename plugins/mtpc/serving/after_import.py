"""Runs a function once a module has been imported, so that registering a plugin imports nothing itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

Action = Callable[[ModuleType], None]


class _Watcher(MetaPathFinder):
    """Acts when ``name`` is first imported, then removes itself from ``sys.meta_path``."""

    def __init__(self, name: str, action: Action) -> None:
        self.name, self.action = name, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_then_act(module: ModuleType) -> None:
            execute(module)
            self.action(module)

        setattr(spec.loader, "exec_module", execute_then_act)  # noqa: B010 (a method of one loader object)
        return spec


def after_import(name: str, action: Action) -> None:
    """Call a function with a module once it is imported; immediately if it already is.

    Args:
        name: Full name of the module.
        action: Function to call with the module.
    """
    if name in sys.modules:
        action(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Watcher(name, action))
