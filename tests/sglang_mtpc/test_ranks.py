"""Two ranks of SGLang's, with gloo, of which one has states that are off by an ulp: they draft the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.distributed.parallel_state import get_world_group, init_distributed_environment
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from torch import Tensor, multiprocessing, nn

from mtpc.methods.drafter import load_drafter
from mtpc.metrics.draft_clock import DraftClock
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import SINGLE_RANK
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from sglang_mtpc import draft_strategies, parallel_worker, ranks, served, verify
from sglang_mtpc.autoregressive_worker import AutoregressiveDraftWorker
from sglang_mtpc.drafting import Drafting
from sglang_mtpc.models import draft_layers
from sglang_mtpc.models.draft_layers import DraftLayersModel
from sglang_mtpc.parallel_worker import ParallelWorker
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.step import BatchSteps
from sglang_mtpc.vocabulary_head import VocabularyHead
from tests.sglang_mtpc.stand_ins import VOCAB, batch_of, built_of

ROWS, SIZE, DRAFTED = 3, 64, 8
RANKINGS = Rankings(6, {"even": Ranking((0, 2, 4))})


def of_window(folder: Path, states: Tensor) -> list[Tensor]:
    """What a drafter without an autoregressive part drafts and states."""
    batch, _ = batch_of(ROWS, "sampled", states)
    made = ParallelWorker.__new__(ParallelWorker)
    made.clock, made.steps, made._target_worker = DraftClock(None), BatchSteps(7), None
    made.lengths, made.shape, parallel = None, DraftShape(4, 1, 4), load_drafter(folder).parallel
    assert parallel is not None
    made.drafting = Drafting(parallel, made.shape)
    made.strategy = made._strategy()
    built = made._draft(batch)
    return [built.draft_token, built.draft_probs]


def of_both(folder: Path, states: Tensor) -> list[Tensor]:
    """What one with both parts does, and a state that its autoregressive part keeps for the window in SGLang's loop."""
    batch, _ = batch_of(ROWS, "sampled", states.repeat(1, 2))
    made, parallel = AutoregressiveDraftWorker.__new__(AutoregressiveDraftWorker), load_drafter(folder).parallel
    assert parallel is not None
    made.clock, made.parallel, made.shape = (
        DraftClock(None),
        Drafting(parallel, DraftShape(3, 1, 3)),
        DraftShape(4, 1, 4),
    )
    made.lengths, made.steps, made.loop_steps = None, BatchSteps(7), 1
    made.speculative_num_draft_tokens = 5
    made.target_worker = SimpleNamespace(model_config=SimpleNamespace(vocab_size=VOCAB))
    model: Any = DraftLayersModel.__new__(DraftLayersModel)
    made.draft_runner = SimpleNamespace(model=model)
    made.strategy = made._strategy()
    built = made.draft(batch)

    nn.Module.__init__(model)
    model.model, model.output = lambda *_: states, SimpleNamespace(for_processor=lambda _: None)
    model.logits_processor = lambda *_: None
    given = SimpleNamespace(hidden_states=None)
    with model.in_loop(keeps=True) as kept:
        model(None, None, SimpleNamespace(spec_info=given, forward_mode=ForwardMode.DECODE, batch_size=ROWS))
    return [built.draft_token, built.draft_probs, *kept]


def of_vocabulary(states: Tensor, shared: bool) -> list[Tensor]:
    """Logits of two tokens that are as likely where the first two numbers of a state are the same, and their order.

    shared: the ranks share out the head.
    """
    head = torch.zeros(6, SIZE)
    head[0, 0] = head[2, 1] = 1.0
    own = ranks.head_ranks() if shared else SINGLE_RANK
    shard = head.chunk(own.count)[own.number]
    logits = DraftLogits(DraftVocabularies(RANKINGS, VocabularySettings(size=3)), shard, ranks=own)
    made = VocabularyHead(logits, None)(states)
    return [made, made.argmax(-1)]


def draft(rank: int, drafter: Path, hybrid: Path, folder: Path) -> None:
    """What one of two ranks drafts, and what it would if each kept to its own states."""
    torch.set_num_threads(1)
    init_distributed_environment(2, rank, f"file://{folder}/store", rank, "gloo")
    ranks.get_parallel = lambda: SimpleNamespace(tp_group=get_world_group(), tp_rank=rank, tp_size=2)
    verify.verify_input = lambda batch, given, drafts, *rest: built_of(drafts)  # type: ignore[assignment]
    states = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(0))
    states[:, :2] = 1.0
    if rank:
        states[:, 1:] = torch.nextafter(states[:, 1:], torch.tensor(9.0))

    def drafted(shared: bool) -> list[Tensor]:
        return [*of_window(drafter, states), *of_both(hybrid, states), *of_vocabulary(states, shared)]

    shared = drafted(shared=True)
    for module in (draft_layers, draft_strategies, parallel_worker):
        module.of_first_rank = lambda states: states  # type: ignore[attr-defined]
    torch.save((shared, drafted(shared=False)), folder / str(rank))


def test_ranks_draft_the_same(
    drafter: Path, hybrid: Path, tmp_path: Path, loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # there are two
    multiprocessing.start_processes(draft, (drafter, hybrid, tmp_path), nprocs=2, start_method="fork")
    (first, alone), (second, other) = (torch.load(tmp_path / str(rank)) for rank in range(2))
    assert len(first) == 7
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one, two)
    differing = [not torch.equal(one, two) for one, two in zip(alone, other, strict=True)]
    assert differing == [False, True, False, True, True, True, True]  # tokens of windows are drawn: seldom


def gathered(rank: int, hybrid: Path, folder: Path) -> None:
    """Rows that one of two ranks holds of a head that the drafter shares with the target, and bytes that it gathers.

    With a draft vocabulary, then without.
    """
    init_distributed_environment(2, rank, f"file://{folder}/store", rank, "gloo")
    group, sizes = get_world_group(), list[int]()

    def all_gather(held: Tensor, *rest: Any, **more: Any) -> Tensor:
        whole = group.all_gather(held, *rest, **more)
        sizes.append(whole.nbytes)
        return whole

    sharing = SimpleNamespace(all_gather=all_gather)
    ranks.get_parallel = lambda: SimpleNamespace(tp_group=sharing, tp_rank=rank, tp_size=2)
    model: Any = DraftLayersModel.__new__(DraftLayersModel)
    nn.Module.__init__(model)
    model.method, model.drafter = served.read(str(hybrid))
    model.model = nn.Module()
    size, vocab = model.drafter.hidden_size, model.drafter.vocab_size
    model.model.own, model.model.dtype = None, torch.float32
    shard = nn.Linear(size, vocab // 2, bias=False)
    target = SimpleNamespace(model=SimpleNamespace(embed_tokens=nn.Embedding(1, size)), lm_head=shard)
    rankings = Rankings(vocab, {"few": Ranking(tuple(range(DRAFTED)))})
    model.share(target, DraftVocabularies(rankings, VocabularySettings(size=DRAFTED)), None)
    few, held = list(sizes), tuple(model.output.draft_logits.rows[0].share.shape)
    sizes.clear()
    model.share(target, None, None)
    same = model.output.whole.logits_of.share.data_ptr() == shard.weight.data_ptr()
    torch.save((few, held, sizes, same), folder / str(rank))


def test_no_rank_gathers_more_of_the_head_than_what_is_drafted(
    hybrid: Path, tmp_path: Path, loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else it gathered would be missing: the KV pool has been override_sizes by then."""
    monkeypatch.undo()  # there are two
    multiprocessing.start_processes(gathered, (hybrid, tmp_path), nprocs=2, start_method="fork")
    _, drafter = served.read(str(hybrid))
    assert drafter.vocab_size > 8 * DRAFTED
    for rank in range(2):
        few, held, all_tokens, whole_is_the_targets = torch.load(tmp_path / str(rank))
        assert held == (DRAFTED // 2, drafter.hidden_size)
        assert sum(few) == 2 * DRAFTED * drafter.hidden_size * 4  # bytes: each rank's share in turn, from both
        assert all_tokens == []
        assert whole_is_the_targets
