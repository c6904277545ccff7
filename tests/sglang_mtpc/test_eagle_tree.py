"""Trees of SGLang's draft loop as the core has them: the same nodes, with their probabilities, some borrowed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sglang.srt.speculative.eagle_utils import organize_draft_results
from sglang.srt.speculative.spec_utils import select_top_k_tokens
from torch import Tensor

from mtpc.draft import TreeDraft
from sglang_mtpc import eagle_tree, served
from sglang_mtpc.shape import DraftShape
from tests.mtpc.parallel.test_tree import rows_of
from tests.oracles.beams import beam_tree
from tests.oracles.borrowing import with_borrowed
from tests.oracles.processes import random_process
from tests.oracles.trees import Prefix

STEPS = 3
PROCESSES = [random_process(5, STEPS + 1, seed) for seed in range(3)]


def candidates(children: int) -> tuple[list[Tensor], ...]:
    """What SGLang's loop has found after its steps, a row for each process: scores, tokens and parents."""

    def likeliest() -> tuple[Tensor, Tensor]:
        """After each prefix, as many for each process."""
        laws = [PROCESSES[i * len(PROCESSES) // len(prefixes)].conditionals[x] for i, x in enumerate(prefixes)]
        return torch.stack(laws).topk(children)

    prefixes: list[Prefix] = [()] * len(PROCESSES)
    scores: Any = None
    found = []
    for step in range(STEPS):
        numbers = torch.arange(len(prefixes))[:, None]  # in the place of hidden states
        ids, above, scores, info = select_top_k_tokens(step, *likeliest(), numbers, scores, children)
        prefixes = [(*prefixes[i], token) for i, token in zip(above[:, 0].tolist(), ids.tolist(), strict=True)]
        found.append(info)
    return tuple(map(list, zip(*found, strict=True)))


@pytest.mark.parametrize(("children", "nodes", "count"), [(2, 7, 0), (3, 12, 4), (4, 20, 8)])
def test_the_tree_is_plain_pythons(children: int, nodes: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.compiler.set_stance("force_eager"):
        found = candidates(children)
    monkeypatch.setattr(served, "shape", lambda: DraftShape(STEPS, children, nodes, count))
    parents, scores, tokens = eagle_tree.organize_draft_results(None, *found, nodes + 1)
    trees = rows_of(TreeDraft(tokens, parents, scores))
    for row, process in enumerate(PROCESSES):
        plain = beam_tree(lambda x, p=process: p.conditionals[x].tolist(), STEPS, STEPS, children, nodes)
        expected = with_borrowed(plain, count)
        assert trees[row] == list(expected)
        assert scores[row].exp().tolist() == pytest.approx(list(expected.values()))
    if not count:
        *_, own = organize_draft_results(*found, nodes + 1)
        assert own.sort().values.tolist() == tokens.sort().values.tolist()
