"""What is read off sources is what `inspect.signature` gives once they are imported."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from mtpc.serving.integration_point import installed
from tests.integration_points.records import parsed, shown
from tests.integration_points.sources import Sources

FILES = {
    "read_off/__init__.py": "from .functions import *\nfrom read_off.classes import Child as Renamed\n",
    "read_off/functions.py": """
import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nowhere import plain

def plain(a, b=1, /, c=2, *rest, d, e=3, **others): ...
async def later(a, *, b): ...

@contextmanager
def entered(device=None):
    yield

try:
    from read_off.nothing import absent
except ImportError:
    def absent(x): ...

if len("ab") == 2:
    named = plain
else:
    def other(y): ...
""",
    "read_off/base.py": """
class Base:
    def __init__(self, size, *, bias=True): ...
    def inherited(self, states): ...
    def overridden(self, old): ...
    @classmethod
    def made(cls, name): ...
    @staticmethod
    def still(x, y=0): ...
""",
    "read_off/classes.py": """
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Generic, NamedTuple, TypeVar
from . import base
from .base import Base as Above

T = TypeVar("T")

class Child(Above, Generic[T]):
    def overridden(self, new, *more): ...
    alias = overridden

class Later(base.Base): ...

@dataclass
class Fields:
    first: int
    made: list = field(default_factory=list)
    hidden: int = field(init=False, default=0)
    shared: ClassVar[int] = 1
    _: KW_ONLY
    last: int = 2

@dataclass
class More(Fields):
    made: int = 4
    extra: int = field(default=3)

class Plain(More): ...

class Pair(NamedTuple):
    left: int
    right: int = 0

class Own(Above):
    def __init__(self): ...
""",
}
FOUND = {
    "read_off": "plain later entered absent named Renamed.inherited Renamed.alias",
    "read_off.functions": "plain absent named",
    "read_off.base": "Base Base.inherited Base.made Base.still",
    "read_off.classes": "Child Child.__init__ Child.overridden Child.made Later.__init__ Later.still Above Fields "
    "Fields.__init__ More.__init__ More Plain Pair Own Own.__init__",
}


@pytest.fixture(params=["folder", "wheel"])
def package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """A package that is imported from a folder, as sources in that folder or in a wheel."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "read_off"]:
        monkeypatch.delitem(sys.modules, name)
    if request.param == "folder":
        return Sources(tmp_path)
    with zipfile.ZipFile(tmp_path / "read_off-1.0.whl", "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
    return Sources(tmp_path / "read_off-1.0.whl")


def test_parameters_are_those_of_what_is_imported(package: Sources) -> None:
    for module, functions in FOUND.items():
        for function in functions.split():
            here = shown(package.parameters(module, function))
            assert (function, here) == (function, shown(installed(module, function)))
            assert shown(parsed(here)) == here


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("read_off", "gone"),
        ("read_off.gone", "plain"),
        ("read_off.classes", "Child.gone"),
        ("read_off.classes", "gone.made"),
        ("read_off.base", "Base.made.further"),
        ("read_off.classes", "T"),
    ],
)
def test_what_is_not_there(package: Sources, module: str, function: str) -> None:
    with pytest.raises(LookupError, match="has no"):
        package.parameters(module, function)
