"""What SGLang captures in CUDA graphs of a draft worker, for drafters of every shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.engine_sglang.conftest import SYNCHRONOUS
from tests.engine_sglang.server import drafting
from tests.support.captured_sglang import SIZES, Captured, captured
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_gumiho import make_gumiho
from tests.support.random_hybrid import FOLDER, forget_method, make_hybrid
from tests.support.random_models import make_target
from tests.support.random_native import make_eagle, make_eagle3

pytestmark = pytest.mark.engine
NATIVE = ("eagle", "eagle3")  # SGLang's own drafters
VOCABULARY, SMALL = 258, ["--max-total-tokens", "2048", "--max-running-requests", "4", "--context-length", "256"]


class Case(NamedTuple):
    """A server's drafts: as many steps of SGLang's loop, captured where that makes all that is verified.

    nodes: of a tree, with the root.  token_map: a query.
    """

    drafter: str
    drafts: int
    steps: int
    loop: bool
    children: int = 1
    nodes: int = 0
    token_map: str = ""
    overlaps: bool = True
    adaptive: bool = False

    def command(self, folder: Path) -> list[str]:
        """Of a server."""
        shape = ["--speculative-eagle-topk", str(self.children), "--speculative-num-steps", str(self.drafts)]
        shape += ["--speculative-num-draft-tokens", str(self.nodes or self.drafts + 1)]
        words = self.token_map.format(folder=folder)
        if self.drafter not in NATIVE:  # as on a GPU, where all drafts are whole
            words += ("&" if words else "?") + "adaptive=false"
        if words:
            shape += ["--speculative-token-map", words]
        own = ["--speculative-algorithm", self.drafter.upper(), "--speculative-draft-model-path"]
        how = [*own, str(folder / self.drafter)] if self.drafter in NATIVE else drafting(folder / self.drafter)
        fixed = ["--model-path", str(folder / "target"), "--device", "cpu", "--dtype", "float32", *SMALL]
        if self.adaptive:
            file = folder / f"{self.drafts}.json"
            file.write_text(json.dumps({"1": {"candidate_steps": [self.drafts, 2]}, "3": {"candidate_steps": [0]}}))
            shape += ["--speculative-adaptive", "--speculative-adaptive-config", str(file)]
        return [*fixed, *how, *shape, *([] if self.overlaps else [SYNCHRONOUS])]

    @property
    def shorter(self) -> list[list[object]]:
        """Of runtime states, see `Captured`: SGLang's own loop is as long as its draft, others keep their backend."""
        if not self.adaptive:
            return []
        if self.loop:
            return [[0, 0, [], SIZES, False], [2, 2, SIZES, SIZES, False]]
        return [[tokens, self.steps, [], SIZES, True] for tokens in (0, 2)]


RANKED = "{folder}/vocabulary.json?size=60&language="
CASES = {
    "FastMTP, 3 steps": Case("fastmtp", 3, 3, loop=True),
    "FastMTP, 1 step": Case("fastmtp", 1, 1, loop=False),
    "FastMTP, more steps than it is made for": Case("fastmtp", 5, 5, loop=True),
    "FastMTP, draft vocabularies": Case("fastmtp", 3, 3, loop=True, token_map=RANKED + "auto"),
    "FastMTP, tree of 2 children": Case("fastmtp", 3, 3, loop=True, children=2, nodes=8),
    "FastMTP, tree of 4 children": Case("fastmtp", 3, 3, loop=True, children=4, nodes=16),
    "FastMTP, borrowed nodes": Case("fastmtp", 3, 3, loop=False, children=2, nodes=8, token_map="?borrow=2"),
    "FastMTP, copying": Case("fastmtp", 6, 3, loop=False, token_map="?copy=true", overlaps=False),
    "Gumiho": Case("gumiho", 5, 2, loop=False),
    "Gumiho, autoregressive part alone": Case("gumiho", 2, 2, loop=True),
    "Gumiho, part of the autoregressive part": Case("gumiho", 1, 1, loop=False),
    "Gumiho, 3 draft steps": Case("gumiho3", 6, 3, loop=False),
    "Gumiho, tree": Case("gumiho", 5, 2, loop=False, children=2, nodes=12),
    "Gumiho, borrowed nodes": Case("gumiho", 5, 2, loop=False, children=2, nodes=12, token_map="?borrow=3"),
    "Gumiho, copying": Case("gumiho", 8, 2, loop=False, token_map="?copy=true", overlaps=False),
    "FastMTP, adaptive": Case("fastmtp", 3, 3, loop=True, adaptive=True),
    "FastMTP, adaptive, copying": Case(
        "fastmtp", 6, 3, loop=False, token_map="?copy=true", overlaps=False, adaptive=True
    ),
    "Gumiho, adaptive": Case("gumiho", 5, 2, loop=False, adaptive=True),
    "one draft step, then a window": Case("hybrid", 4, 1, loop=False),
    "EAGLE, draft vocabulary": Case("eagle", 3, 3, loop=True, token_map=RANKED + "letters"),
    "EAGLE, copying": Case("eagle", 3, 3, loop=True, token_map=RANKED + "letters&copy=true", overlaps=False),
    "EAGLE3, copying": Case("eagle3", 3, 3, loop=True, token_map="?copy=true", overlaps=False),
    "EAGLE, tree": Case("eagle", 3, 3, loop=True, children=2, nodes=8, token_map=RANKED + "letters"),
}
OFTEN = ("FastMTP, draft vocabularies", "FastMTP, adaptive", "Gumiho, adaptive", "Gumiho, tree", "EAGLE, copying")


def test_every_shape_of_drafter(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The loop is captured where SGLang replays it, and replays make what it makes; the pass after it always is."""
    target, heads = make_target(tmp_path / "target", layers=4), {"positions": 3, "blocks": 1}
    make_fastmtp(tmp_path / "fastmtp", target)
    make_gumiho(tmp_path / "gumiho", target, heads, num_hidden_layers=2)
    make_gumiho(tmp_path / "gumiho3", target, heads, steps=3)
    make_hybrid(tmp_path / "hybrid", target)
    make_eagle(tmp_path / "eagle", target, sglang=True)
    make_eagle3(tmp_path / "eagle3", target, [0, 1, 2], range(97, 123))
    make_vocabulary(tmp_path / "vocabulary.json", VOCABULARY)
    cases = CASES if request.config.getoption("--thorough") else {name: CASES[name] for name in OFTEN}
    commands = [case.command(tmp_path) for case in cases.values()]
    forget_method()
    found = dict(zip(cases, captured(commands, str(FOLDER)), strict=True))
    expected = {
        name: Captured(case.steps, case.drafts, SIZES * case.loop, SIZES, case.shorter) for name, case in cases.items()
    }
    wrong = {name: one for name, one in found.items() if one != expected[name]}
    assert not wrong, "\n".join(f"{name}: {one}" for name, one in wrong.items())
