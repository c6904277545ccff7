"""As many drafts are accepted as in the plain decoding loop: greedy, step by step; sampled, within noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from tests.engine.acceptance import (
    TOKENS,
    Loop,
    Steps,
    Tree,
    assert_as_expected,
    assert_equally_often,
    counted,
    outcome_of_check,
    with_permuted_head,
)
from tests.engine.conftest import Models
from tests.engine.prompts import prompts
from tests.engine_sglang.conftest import CHILDREN, FEW, NODES, WHOLE
from tests.engine_sglang.server import Answer, SGLangServer, drafting

SHAPES = {"chain": None, "tree, synchronous": Tree(NODES, CHILDREN)}
pytestmark = [
    pytest.mark.engine,
    pytest.mark.thorough,
    pytest.mark.parametrize("drafted", SHAPES, indirect=True),
]


@pytest.fixture(scope="module")
def loop(models: Models) -> Loop:
    """What ships, without an engine."""
    return Loop(models.target, models.drafter)


@pytest.fixture
def tree(request: pytest.FixtureRequest) -> Tree | None:
    """What the server drafts, where it is no chain."""
    return SHAPES[request.node.callspec.params["drafted"]]


def steps(*answers: Answer) -> Steps:
    """Of one request, or of several together."""
    found = [answer["meta_info"] for answer in answers]
    return Steps(sum(meta["spec_verify_ct"] for meta in found), sum(meta["spec_num_correct_drafts"] for meta in found))


def test_greedy(drafted: SGLangServer, loop: Loop, tree: Tree | None) -> None:
    for prompt in prompts(8):
        answer = drafted.generate(prompt, max_new_tokens=TOKENS, ignore_eos=True)
        expected = loop.decode(prompt, 0.0, tree)
        assert answer["output_ids"] == expected.tokens
        assert steps(answer) == counted(expected)


def test_the_check_of_a_running_server(
    drafted: SGLangServer, models: Models, tree: Tree | None, tmp_path: Path
) -> None:
    """`mtpc check-acceptance` finds a wrong head, and nothing where there is none; trees are refused."""
    if tree is not None:
        with pytest.raises(MTPCError, match="only chains of draft tokens are compared"):
            outcome_of_check(drafted, models)
        return
    assert_as_expected(drafted, models)
    wrong, steps = with_permuted_head(models.drafter, tmp_path / "wrong"), str(models.drafts)
    arguments = drafting(wrong, "--speculative-num-steps", steps, *WHOLE)
    with SGLangServer(models.target, tmp_path / "log", *FEW, *arguments) as server:
        assert outcome_of_check(server, models) == "lower than expected"


def test_sampled(drafted: SGLangServer, loop: Loop, tree: Tree | None) -> None:
    asked = prompts(24 if tree is None else 16)  # a tree takes the reference implementation as long as three chains
    request = {"max_new_tokens": TOKENS, "ignore_eos": True, "temperature": 1.0, "n": 4}
    served = [steps(*drafted.generate(prompt, **request)) for prompt in asked]
    assert_equally_often(served, [counted(loop.decode(prompt, 1.0, tree)) for prompt in asked])
