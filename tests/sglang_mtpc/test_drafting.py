"""Drafts equal those of the reference implementation, captured or not, in batches of any size and mode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.draft import Draft, Mode, TreeDraft
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.memory import BYTES_PER_PROB, MAX_PROBS
from mtpc.methods.drafter import load_drafter
from mtpc.noise import counter_uniforms
from mtpc.parallel import part
from mtpc.parallel.borrow import borrow_nodes
from mtpc.parallel.compiled import has_compiler
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.parallel.part import ParallelPart
from mtpc.target_head.shared import SharedHead
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from sglang_mtpc.drafting import Drafting, DraftInputs, Drafts, Replay
from sglang_mtpc.shape import DraftShape
from sglang_mtpc.vocabulary_head import VocabularyHead
from tests.mtpc.parallel.trace import Trace
from tests.support.fake_graphs import record
from tests.support.random_hybrid import register_method
from tests.support.random_models import make_drafter
from tests.support.tiny_methods import EXAMPLES, tiny_target
from tests.support.tiny_models import make_part

CHAIN, TREE = DraftShape(5, 1, 5), DraftShape(4, 3, 12, 4)
SIZE, VOCABULARY = 64, 258  # of the random target


class Recorder:
    """Stands in for CUDA graphs, and counts replays."""

    def __init__(self) -> None:
        self.replayed = 0

    def __call__(self, call: Callable[[], Drafts]) -> tuple[Replay, Drafts]:
        replay, drafts = record(call)

        def counted() -> None:
            self.replayed += 1
            replay()

        return counted, drafts


def window_of(drafter: Path) -> ParallelPart:
    """The parallel part of a directory."""
    parallel = load_drafter(drafter).parallel
    assert parallel is not None
    return parallel


def inputs(rows: int, mode: Mode, copies: bool = False) -> DraftInputs:
    """Random requests; in a mixed batch every other one is greedy.  copies: every other one may copy."""
    temperature = torch.full((rows,), 0.0 if mode == "greedy" else 0.7)
    if mode == "mixed":
        temperature[::2] = 0.0
    states = torch.randn(rows, 1, SIZE, generator=torch.Generator().manual_seed(rows))
    tokens = torch.arange(rows)[:, None] * 7 % VOCABULARY
    batch = DraftInputs(states, tokens, temperature, torch.arange(rows) + 3, torch.arange(rows) * 3 + 1)
    if not copies:
        return batch
    chances = torch.full((rows, CHAIN.depth), 0.9) * (torch.arange(rows) % 2)[:, None]
    return batch._replace(copied=(tokens + torch.arange(CHAIN.depth)) % VOCABULARY, chances=chances)


def same(found: Drafts, expected: Drafts) -> bool:
    """Equal tokens and parents, and equal distributions but for rounding."""
    if isinstance(expected, TreeDraft):
        return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert isinstance(found, Draft)
    if expected.probs is None or found.probs is None:
        return torch.equal(found.tokens, expected.tokens) and expected.probs is found.probs
    return torch.equal(found.tokens, expected.tokens) and torch.allclose(found.probs, expected.probs, atol=1e-5)


def of_size(drafting: Drafting, batch: DraftInputs, mode: Mode, size: int) -> Drafts:
    """Drafts of a batch with its first row again and again behind it: a batch of another size may round otherwise."""
    rows = len(batch.tokens)
    whole = (
        None if each is None else torch.cat([each, each[:1].expand(size - rows, *each.shape[1:])]) for each in batch
    )
    drafts = drafting(DraftInputs(*whole), mode)
    return type(drafts)(*(None if each is None else each[:rows] for each in drafts))


def expected_chain(drafter: Path, batch: DraftInputs, row: int, drafts: int) -> Draft:
    """Return the reference implementation's draft of one request, with the uniforms of its seed and position."""
    loaded = load_drafter(drafter)
    session = ReferenceDrafter(
        loaded, SharedHead(torch.empty(0, SIZE), torch.empty(0, SIZE))
    )  # a window alone reads none
    one = slice(row, row + 1)
    hidden, temperature = batch.states[one], batch.temperature[one]
    if not temperature:
        return session.draft(hidden, batch.tokens[one], drafts)
    assert loaded.parallel is not None
    noise = counter_uniforms(batch.seeds[one], batch.positions[one], drafts)
    return session.draft(hidden, batch.tokens[one], drafts, temperature, noise)


@pytest.mark.parametrize("mode", ["greedy", "sampled", "mixed"])
@torch.inference_mode()
def test_chains_are_those_of_the_plain_loop(target: Path, tmp_path: Path, mode: Mode) -> None:
    """Each request's at its own temperature, from noise of its own seed and position, with its probabilities."""
    drafter = make_drafter(tmp_path / "hmm", target, "hmm")
    batch = inputs(6, mode)
    warm = batch.temperature > 0
    batch = batch._replace(temperature=batch.temperature * torch.linspace(0.5, 2.0, 6))
    found = Drafting(window_of(drafter), CHAIN)(batch, mode)
    assert isinstance(found, Draft)
    assert (found.probs is None) == (mode == "greedy")
    for row in range(6):
        expected = expected_chain(drafter, batch, row, CHAIN.depth)
        assert torch.equal(found.tokens[row], expected.tokens[0])
        if expected.probs is not None and found.probs is not None:
            torch.testing.assert_close(found.probs[row], expected.probs[0], atol=1e-5, rtol=1e-4)
            assert (found.probs[row].amax(-1) < 0.999).any()
        elif found.probs is not None:
            assert found.probs[row].argmax(-1).tolist() == expected.tokens[0].tolist()
            assert found.probs[row].sum(-1).tolist() == pytest.approx([1.0] * CHAIN.depth)
    assert warm.any() == (mode != "greedy")


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
@torch.inference_mode()
def test_trees_are_those_of_the_plain_loop(drafter: Path, mode: Mode) -> None:
    """Trees have the width and the depth of the shape, at each request's temperature."""
    batch, loaded = inputs(4, mode), load_drafter(drafter)
    found = Drafting(window_of(drafter), TREE)(batch, mode)
    depth, children, nodes, count = TREE
    for row in range(4):
        one = slice(row, row + 1)
        session = ReferenceDrafter(loaded, SharedHead(torch.empty(0, SIZE), torch.empty(0, SIZE)))
        heat = None if mode == "greedy" else batch.temperature[one]
        expected = session.draft_tree(batch.states[one], batch.tokens[one], nodes, heat, children, depth=depth)
        assert isinstance(found, TreeDraft)
        assert torch.equal(found.tokens[one], borrow_nodes(expected, count).tokens)
        assert torch.equal(found.parents[one], borrow_nodes(expected, count).parents)


class Certain(ParallelPart):
    """Its one token has a probability that rounding has put above 1."""

    max_drafts, given, leaf_shape = CHAIN.depth, 1, (CHAIN.depth, 1, VOCABULARY)
    vocab_size = VOCABULARY

    def shortened(self, num_drafts: int) -> Certain:
        return self

    def draft(self, known: Any, temperature: Any, noise: Any, num_drafts: int, *_: Any) -> Draft:
        probs = torch.zeros(len(known.tokens), num_drafts, VOCABULARY)
        probs[..., 3], probs[..., 4] = 1.0 + 1e-6, 0.25
        return Draft(torch.full(probs.shape[:2], 3), probs)

    def draft_tree(self, *_: Any, **__: Any) -> TreeDraft:
        raise NotImplementedError

    def log_probs(self, *_: Any, **__: Any) -> torch.Tensor:
        raise NotImplementedError

    def most_probable_tokens(self, *_: Any, **__: Any) -> torch.Tensor:
        raise NotImplementedError


def test_no_probability_is_above_one() -> None:
    found = Drafting(Certain(), CHAIN)(inputs(3, "sampled"), "sampled")
    assert isinstance(found, Draft) and found.probs is not None
    assert (found.probs[..., 3] == 1.0).all()
    assert (found.probs[..., 4] == 0.25).all()


@pytest.mark.parametrize("kind", ["chain", "tree", "chain that copies"])
@pytest.mark.parametrize("mode", ["greedy", "sampled", "mixed"])
def test_replays(drafter: Path, kind: str, mode: Mode) -> None:
    shape, copies = TREE if kind == "tree" else CHAIN, "copies" in kind
    eager = Drafting(window_of(drafter), shape)
    captured, recorder = Drafting(eager.parallel, shape, copies), Recorder()
    captured.capture([4, 1, 2], torch.zeros(4, 1, SIZE), recorder)
    for rows, size in ((3, 4), (1, 1), (4, 4), (2, 2), (3, 4)):  # three requests run in the graph of four
        batch = inputs(rows, mode, copies)
        assert same(captured(batch, mode), of_size(eager, batch, mode, size)), rows
    assert recorder.replayed == 5
    kept = {
        drafts.probs.data_ptr() for _, drafts in captured.graphs.values() if getattr(drafts, "probs", None) is not None
    }
    assert len(kept) == (kind != "tree")  # for all sizes
    batch = inputs(5, mode, copies)  # more than was captured
    assert same(captured(batch, mode), eager(batch, mode))
    assert recorder.replayed == 5


@pytest.mark.parametrize(
    "name", [name for name in EXAMPLES if name.startswith(("mtpc", "bytecircuit", "gumiho-", "medusa", "hybrid"))]
)
@torch.inference_mode()
def test_replays_of_every_window(name: str) -> None:
    """Including windows that follow an autoregressive part and read the states and tokens that it has read."""
    if name == "gumiho-eagle":
        pytest.skip("it has no window")
    register_method()  # from here on: fixtures of the session count on it
    drafter, head = EXAMPLES[name](), SharedHead.of(tiny_target())
    parallel, (autoregressive, rest) = drafter.parallel, drafter.split(drafter.config.max_drafts)
    assert parallel is not None
    go_on = partial(with_head_inputs, autoregressive=drafter.autoregressive, head=head) if parallel.reads_head else None
    eager, captured = (Drafting(parallel, DraftShape(rest, 1, rest), with_head_inputs=go_on) for _ in range(2))
    captured.capture([4, 2], torch.zeros(4, autoregressive + 1, head.embedding.shape[1]), record)
    for seed, rows in enumerate((3, 1, 4, 2, 4)):
        generator = torch.Generator().manual_seed(seed)
        known = torch.randn(rows, autoregressive + 1, head.embedding.shape[1], generator=generator)
        tokens = torch.randint(head.vocab_size, (rows, autoregressive + 1), generator=generator)
        batch = inputs(rows, "mixed")._replace(states=known, tokens=tokens)
        modes: tuple[Mode, ...] = ("mixed", "greedy")
        for mode in modes:
            assert same(captured(batch, mode), eager(batch, mode)), (seed, mode)


def test_the_vocabularies_of_a_batch_are_read_in_every_replay() -> None:
    """In SGLang's own graph of its draft loop."""
    rankings = Rankings(30, {"low": Ranking(tuple(range(9))), "high": Ranking(tuple(range(20, 8, -1)))})
    logits = UnionLogits(DraftVocabularies(rankings, VocabularySettings(size=7)), torch.randn(30, 8))
    numbers, states = torch.zeros(4, dtype=torch.int64), torch.randn(4, 8)
    replay, found = record(lambda: VocabularyHead(logits, numbers[:2])(states))
    for each in ((0, 1), (1, 1), (2, 0)):
        numbers[:2] = torch.tensor(each)
        states.normal_()
        replay()
        torch.testing.assert_close(found, VocabularyHead(logits, numbers[:2])(states))


def test_copying_changes_the_drafts_of_those_who_copy(drafter: Path) -> None:
    drafting = Drafting(window_of(drafter), CHAIN, copies=True)
    batch = inputs(6, "greedy", copies=True)
    assert batch.copied is not None
    alone, copied = drafting(inputs(6, "greedy"), "greedy").tokens, drafting(batch, "greedy").tokens
    assert torch.equal(copied[::2], alone[::2])
    assert torch.equal(copied[1::2], batch.copied[1::2])


@pytest.mark.skipif(not has_compiler(), reason="torch compiles with a C++ compiler: there is none")
@pytest.mark.thorough  # the servers of tests/engine_sglang draft compiled as well
@pytest.mark.parametrize("copies", [False, True])
def test_one_request_drafts_compiled_what_it_drafts_uncompiled(drafter: Path, copies: bool) -> None:
    eager = Drafting(window_of(drafter), CHAIN)
    compiled = Drafting(eager.parallel, CHAIN, copies)
    with torch.no_grad():
        compiled.compile_for_one(torch.zeros(1, 1, SIZE))
        modes: tuple[Mode, ...] = ("greedy", "sampled")  # one request is never mixed
        for mode in modes:
            for rows in (1, 2):
                batch = inputs(rows, mode, copies)
                assert same(compiled(batch, mode), eager(batch, mode)), (mode, rows)
    assert compiled.draft_one != eager.draft_one


def test_shapes(drafter: Path) -> None:
    chain = Drafting(window_of(drafter), CHAIN)
    drawn = chain(inputs(3, "sampled"), "sampled")
    assert isinstance(drawn, Draft) and drawn.probs is not None
    assert drawn.tokens.shape == (3, 5)
    assert drawn.probs.shape == (3, 5, VOCABULARY)
    assert drawn.probs.max() <= 1.0
    tree = Drafting(window_of(drafter), TREE)
    grown = tree(inputs(3, "sampled"), "sampled")
    assert isinstance(grown, TreeDraft)
    assert grown.tokens.shape == grown.parents.shape == (3, 12)


def test_noise_is_a_function_of_its_keys(drafter: Path) -> None:
    drafting = Drafting(window_of(drafter), DraftShape(7, 1, 7))
    batch = inputs(64, "sampled")
    assert same(drafting(batch, "sampled"), drafting(batch, "sampled"))
    for changed in (batch._replace(seeds=batch.seeds + 64), batch._replace(positions=batch.positions + 1)):
        assert not torch.equal(drafting(changed, "sampled").tokens, drafting(batch, "sampled").tokens)


def test_the_memory_of_the_graphs_is_told(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is added to the memory of SGLang's own draft graphs."""
    drafting = Drafting(window_of(make_drafter(tmp_path / "hmm", target, "hmm")), CHAIN)
    free = iter((5 * 2**30, 3 * 2**30))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (next(free), 0))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr("sglang_mtpc.drafting.graph_capture", nullcontext)
    monkeypatch.setattr(drafting, "capture", lambda *_: None)
    runner = SimpleNamespace(decode_cuda_graph_runner=SimpleNamespace(capture_bs=[1, 2]))
    graphs = {"draft_decode": 0.5}
    drafting.prepare(runner, torch.zeros(1, SIZE, device="meta"), graphs)
    assert graphs == {"draft_decode": 2.5}


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("mode", ["greedy", "sampled", "mixed"])
@torch.inference_mode()
def test_rows_in_parts_are_drafted_as_all_at_once(
    drafter: Path, mode: Mode, copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a place for what is stated and without."""
    drafting, batch = Drafting(window_of(drafter), CHAIN, copies), inputs(7, mode, copies)
    kept = torch.zeros(7, CHAIN.depth, VOCABULARY)
    expected = drafting.compute(batch, mode)
    monkeypatch.setattr(part, "MAX_PROBS", 3 * CHAIN.depth * VOCABULARY)
    for place in (None, kept):
        found = drafting.compute(batch, mode, place)
        assert same(found, expected)
        assert isinstance(found, Draft)
        assert found.probs is None or place is None or found.probs.data_ptr() == kept.data_ptr()


@pytest.mark.parametrize("mode", ["greedy", "mixed"])
def test_memory_of_a_draft_does_not_grow_with_the_batch(mode: Mode) -> None:
    """Beyond what is kept."""
    rows, depth, vocabulary = 512, 7, 152_000
    with torch.device("meta"):
        drafting = Drafting(make_part("ff", depth + 1, 1, 8, vocabulary), DraftShape(depth, 1, depth))
        zeros = torch.zeros(rows, dtype=torch.int64)
        batch = DraftInputs(torch.zeros(rows, 1, 8), zeros[:, None], torch.ones(rows), zeros, zeros)
        kept = torch.zeros(rows, depth, vocabulary)
    with torch.no_grad(), Trace() as trace:
        drafting.compute(batch, mode, kept)
    assert trace.peak <= BYTES_PER_PROB * MAX_PROBS
