"""Draft vocabularies in static shapes: each row's own, in plain torch, in the kernel, and divided among ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import Ranks
from mtpc.target_head.union import MAX_KERNEL_ROWS, UnionLogits, balanced_order
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.mtpc.parallel.trace import Trace
from tests.mtpc.target_head.ranks import HEAD, SIZE, VOCAB, on_ranks

LANGUAGES = {"english": Ranking(tuple(range(9))), "french": Ranking((17, 3, 15, 5, 12, 11, 0))}
VOCABULARIES = DraftVocabularies(Rankings(VOCAB, LANGUAGES), VocabularySettings(size=7))
UNION = sorted({*VOCABULARIES.ids[0].tolist(), *VOCABULARIES.ids[1].tolist()})
INTERPRETED = """
import torch
from mtpc.target_head import kernel, union
from triton.runtime.interpreter import InterpreterBuilder
torch.manual_seed(0)
read, load = [], InterpreterBuilder.create_masked_load
def noted(self, pointers, mask, *rest):
    if mask.data.shape == (kernel.COLUMNS_AT_ONCE, kernel.BLOCK):  # of the rows of the head
        read.append(mask.data.sum())
    return load(self, pointers, mask, *rest)
InterpreterBuilder.create_masked_load = noted
for count, rows, size, dtype in [(16, 102, 200, torch.float32), (3, 96, 40, torch.float16)]:
    states, head = torch.randn(count, size).to(dtype), torch.randn(rows, size).to(dtype)
    held, numbers = torch.rand(3, rows) < 0.3, torch.randint(3, (count,))
    held[:, :32] &= torch.arange(3)[:, None] == numbers[0]  # a block that no other row needs
    held[:, rows // kernel.BLOCK * kernel.BLOCK - kernel.BLOCK :] = False  # one or two that nobody needs
    used = held[numbers].any(0)
    head[~used] = torch.nan
    expected = union.logits_by_vocabulary(states, head.nan_to_num(), held, numbers)
    torch.testing.assert_close(kernel.logits_by_vocabulary(states, head, held, numbers), expected)
    blocks = sum(block.any() for block in used.split(kernel.BLOCK))
    assert len(read) == blocks * -(-size // kernel.COLUMNS_AT_ONCE)  # what nobody drafts is not read, and all else once
    assert sum(read) == used.sum() * size
    read.clear()
"""


def test_few_rows_draft_from_their_own_vocabularies() -> None:
    """And those without language from all of them."""
    states, numbers = torch.randn(4, SIZE), torch.tensor([1, 0, 2, 1])
    own = DraftLogits(VOCABULARIES, HEAD)(states, numbers)
    own[2] = -torch.inf
    own[2, UNION] = (states[2] @ HEAD.T)[UNION]
    torch.testing.assert_close(UnionLogits(VOCABULARIES, HEAD)(states, numbers), own)


@pytest.mark.parametrize("count", [2, MAX_KERNEL_ROWS + 1])
def test_others_draft_from_all_of_them(count: int) -> None:
    states, logits = torch.randn(count, SIZE), UnionLogits(VOCABULARIES, HEAD)
    expected = torch.full((count, VOCAB), -torch.inf)
    expected[:, UNION] = (states @ HEAD.T)[:, UNION]
    for found in (logits(states), *([logits(states, torch.zeros(count).long())] if count > MAX_KERNEL_ROWS else [])):
        torch.testing.assert_close(found, expected)
    head = logits.head(torch.zeros(count).long())
    torch.testing.assert_close(head.spread(head.logits(states[:, None]), -torch.inf)[:, 0], expected)


@pytest.mark.parametrize("count", [1, MAX_KERNEL_ROWS + 1])
def test_what_a_draft_costs(count: int) -> None:
    """Nothing asks for a value, as in a CUDA graph: on fake tensors whatever does so raises."""
    logits = UnionLogits(VOCABULARIES, HEAD)
    with FakeTensorMode(allow_non_fake_inputs=True), Trace() as trace:
        assert logits(torch.empty(count, SIZE), torch.empty(count, dtype=torch.int64)).shape == (count, VOCAB)
        assert trace.kernels <= (7 if count <= MAX_KERNEL_ROWS else 4)
        assert [made.shape for made in trace.made].count((count, VOCAB)) == 1  # what it returns


def test_ranks_draft_as_one_does() -> None:
    states, numbers = torch.randn(4, SIZE), torch.tensor([1, 0, 2, 1])

    def draft(shard: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor]:
        logits = UnionLogits(VOCABULARIES, shard, ranks)
        return logits(states, numbers), logits(states)

    for of_rank in on_ranks(draft):
        for found, expected in zip(of_rank, draft(HEAD, Ranks()), strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_every_rank_has_as_many_of_each_vocabulary(count: int) -> None:
    held = torch.rand(4, 1003, generator=torch.Generator().manual_seed(0)) < torch.tensor([[0.9], [0.5], [0.3], [0.1]])
    order = balanced_order(held, count)
    assert order.sort().values.tolist() == list(range(1003))
    each, kinds = -(-1003 // count), 2 ** len(held)
    for share in held[:, order].split(each, 1):
        assert (share.sum(1) <= held.sum(1) / count + kinds).all()


def test_the_kernel_reads_each_rows_own() -> None:
    """In Triton's interpreter, which must be chosen before Triton is imported."""
    pytest.importorskip("triton")
    subprocess.run([sys.executable, "-c", INTERPRETED], env=os.environ | {"TRITON_INTERPRET": "1"}, check=True)


def test_the_kernel_compiles_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which need not be there."""
    pytest.importorskip("triton")
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from mtpc.target_head import kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    rows = dict.fromkeys(("states", "rows", "logits"), "*bf16")
    numbers = dict.fromkeys(("count", "size", "width"), "i32") | {"held": "*u8", "numbers": "*i64"}
    sizes = {"tile": kernel.MAX_ROWS, "block": kernel.BLOCK, "step": kernel.COLUMNS_AT_ONCE}
    source = ASTSource(kernel._logits, rows | numbers | dict.fromkeys(sizes, "constexpr"), sizes)
    assert compiled(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
