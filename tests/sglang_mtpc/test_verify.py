"""The core's rules in SGLang's place: its three tensors, its filters, mixed batches, and when they are used at all."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.speculative.eagle_utils import TreeMaskMode, build_tree_kernel_efficient
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mtpc.draft import Draft, TreeDraft
from mtpc.draft_model.part import LazyDraft
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.verify.filters import filtered
from sglang_mtpc import verify
from sglang_mtpc.links import chain_links, tree_links
from tests.mtpc.parallel.trace import Trace

V, ALL = 6, 1 << 30
CHAIN = Draft(torch.tensor([[1, 2, 3]]), torch.full((1, 3, V), 1 / V))
#        root -> 1 -> 3 -> 5;  root -> 2 -> 3;  numbers are tokens
TREE = TreeDraft(torch.tensor([[1, 2, 3, 3, 5]]), torch.tensor([[-1, -1, 0, 1, 2]]), torch.zeros(1, 5))


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor parallelism; any top-k below the number of tokens is a small one."""
    monkeypatch.setattr(verify, "get_parallel", lambda: SimpleNamespace(tp_group=SimpleNamespace(world_size=1)))
    monkeypatch.setattr(verify, "SHARE", 1)
    sampling(monkeypatch, "pytorch")


def sampling(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """What samples of requests without drafts."""
    kernel = SimpleNamespace(sampling_backend=backend)
    monkeypatch.setattr(verify, "get_exec", lambda: SimpleNamespace(kernel=kernel))


def batch_of(
    temperatures: list[float],
    top_k: list[int] | None = None,
    top_p: list[float] | None = None,
    min_p: list[float] | None = None,
    seed: Tensor | None = None,
) -> Any:
    """A batch with the parts of SGLang's that the rules read."""
    rows = len(temperatures)
    info = SimpleNamespace(
        temperatures=torch.tensor(temperatures)[:, None],
        top_ks=torch.tensor(top_k or [ALL] * rows),
        top_ps=torch.tensor(top_p or [1.0] * rows),
        min_ps=torch.tensor(min_p or [0.0] * rows),
        need_top_k_sampling=top_k is not None,
        need_top_p_sampling=top_p is not None,
        need_min_p_sampling=min_p is not None,
        is_all_greedy=False,
        sampling_seed=seed,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
    )
    reqs = [SimpleNamespace(sampling_params=SimpleNamespace(top_k=limit)) for limit in info.top_ks.tolist()]
    return SimpleNamespace(sampling_info=info, seq_lens=torch.arange(rows) + 9, reqs=reqs)


def built(drafts: Draft | TreeDraft | LazyDraft, rows: int, depth: int) -> Any:
    """These drafts for each request, as SGLang's own tree builder puts them into a verification input."""
    nodes = drafts.tokens.shape[1]
    tokens = drafts.tokens.expand(rows, nodes)
    if isinstance(drafts, TreeDraft):
        children, probs = 2, None
        links = tree_links(drafts.parents.expand(rows, nodes), children)
    else:
        children, links = 1, chain_links(rows, nodes, torch.device("cpu"))
        probs = drafts.probs.expand(rows, -1, -1) if isinstance(drafts.probs, Tensor) else drafts.probs
    pending = torch.full((rows,), V - 1)
    _, _, _, child, sibling, draft_token = build_tree_kernel_efficient(
        pending, links.parents, links.selected, tokens, pending, 0, children, nodes, nodes + 1, TreeMaskMode.QLEN_ONLY
    )
    return SimpleNamespace(
        draft_token=draft_token,
        draft_token_num=nodes + 1,
        retrieve_next_token=child,
        retrieve_next_sibling=sibling,
        draft_probs=probs,
        spec_steps=depth,
    )


def verdict(
    drafts: Draft | TreeDraft | LazyDraft, batch: Any, logits: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Through `sample_and_verify`, with SGLang's own rule giving nonsense."""
    output = SimpleNamespace(next_token_logits=logits.flatten(0, 1))
    given = built(drafts, len(batch.seq_lens), depth)
    return verify.sample_and_verify(lambda *_: None, given, batch, output)  # type: ignore[no-any-return]


@pytest.mark.parametrize("drafts", [CHAIN, TREE], ids=["chain", "tree"])
def test_what_is_verified_is_read_off_sglangs_input(drafts: Draft | TreeDraft) -> None:
    read = verify.read_drafts(built(drafts, 2, 3))
    assert read.tokens.tolist() == drafts.tokens.expand(2, -1).tolist()
    parents = drafts.parents if isinstance(drafts, TreeDraft) else torch.tensor([[-1, 0, 1]])
    assert read.parents.tolist() == parents.expand(2, -1).tolist()
    assert (read.probs is None) == isinstance(drafts, TreeDraft)


def test_a_node_that_sglang_left_without_a_parent_is_never_accepted() -> None:
    given = built(TREE, 1, 3)
    given.retrieve_next_sibling[0, 1] = -1  # nobody names the root's second child, the token 2, any more
    read = verify.read_drafts(given)
    assert read.tokens.tolist() == [[1, -1, 3, 3, 5]]
    output = SimpleNamespace(next_token_logits=certain([2, 0, 0, 0, 0, 0]).flatten(0, 1))
    _, lengths, _ = verify.sample_and_verify(lambda *_: None, given, batch_of([1.0]), output)
    assert lengths.tolist() == [1]


def test_chains_without_stated_distributions_are_verified_by_the_target_alone() -> None:
    unstated = verdict(Draft(CHAIN.tokens, None), batch_of([1.0] * 2), certain([1, 2, 3, 4], [1, 0, 3, 4]), 3)
    assert unstated[1].tolist() == [4, 2]


def certain(*rows: list[int]) -> Tensor:
    """Logits [B, n, V] of a target that has one possible token at each place."""
    return (torch.nn.functional.one_hot(torch.tensor(rows), V).float() - 1) * 1000


def test_chain_as_sglang_wants_it() -> None:
    logits = certain([1, 2, 3, 4], [1, 2, 0, 4], [0, 2, 3, 4])
    predicted, lengths, nodes = verdict(CHAIN, batch_of([1.0] * 3), logits, 3)
    assert lengths.tolist() == [4, 3, 1]
    assert nodes.tolist() == [[0, 1, 2, 3], [4, 5, 6, -1], [8, -1, -1, -1]]
    emitted = [[predicted[node].item() for node in row if node >= 0] for row in nodes.tolist()]
    assert emitted == [[1, 2, 3, 4], [1, 2, 0], [0]]
    assert predicted.dtype == lengths.dtype == nodes.dtype == torch.int32
    assert predicted.shape == (12,)


def test_tree_as_sglang_wants_it() -> None:
    # The target's tokens at the root and after each of the five nodes.
    logits = certain([1, 3, 0, 5, 0, 4], [2, 0, 3, 0, 4, 0], [1, 4, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0])
    predicted, lengths, nodes = verdict(TREE, batch_of([0.5] * 4), logits, 3)
    assert lengths.tolist() == [4, 3, 2, 1]
    assert nodes.tolist() == [[0, 1, 3, 5], [6, 8, 10, -1], [12, 13, -1, -1], [18, -1, -1, -1]]
    emitted = [[predicted[node].item() for node in row if node >= 0] for row in nodes.tolist()]
    assert emitted == [[1, 3, 5, 4], [2, 3, 4], [1, 4], [0]]


@pytest.mark.parametrize("drafts", [CHAIN, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.4}], ids=str)
def test_first_token_has_the_filtered_distribution_of_the_target(
    drafts: Draft | TreeDraft, filters: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    rows, nodes = 4000, drafts.tokens.shape[1]
    logits = torch.tensor([0.1, 1.4, 1.2, -0.3, 0.9, 0.0])
    batch = batch_of([0.7] * rows, **{name: [value] * rows for name, value in filters.items()})
    if isinstance(drafts, Draft):  # drawn from what they claim
        drafts = Draft(torch.randint(V, (rows, nodes)), torch.full((rows, nodes, V), 1 / V))
    predicted, _, _ = verdict(drafts, batch, logits.expand(rows, nodes + 1, V), 3)
    info = batch.sampling_info
    target = filtered((logits.double() / 0.7).softmax(-1)[None], info.top_ks[:1], info.top_ps[:1], info.min_ps[:1])
    counts = Counter(predicted.view(rows, -1)[:, 0].tolist())
    assert chi_square(counts, dict(enumerate(target[0].tolist()))).p > 1e-4


@pytest.mark.parametrize(
    ("backend", "min_p", "kept"),
    [
        ("pytorch", None, [0.4, 0.3, 0.2]),  # 0.2 comes after 0.7 of all
        ("pytorch", 0.6, [0.4, 0.3, 0.0]),
        ("flashinfer", None, [0.4, 0.3, 0.2]),
        ("flashinfer", 0.1, [0.4, 0.3, 0.0]),  # but after 7 / 9 of what top-k leaves, where min-p is asked as well
    ],
)
@pytest.mark.parametrize("drafts", [CHAIN, TREE], ids=["chain", "tree"])
def test_what_a_request_without_drafts_may_say(
    monkeypatch: pytest.MonkeyPatch, drafts: Draft | TreeDraft, backend: str, min_p: float | None, kept: list[float]
) -> None:
    """The law of SGLang's ``Sampler``: at once, or in turn where FlashInfer samples and any request has a min-p."""
    monkeypatch.setattr(verify, "is_cuda", lambda: backend == "flashinfer")
    sampling(monkeypatch, backend)
    torch.manual_seed(0)
    rows, nodes = 4000, drafts.tokens.shape[1]
    logits = torch.tensor([0.4, 0.3, 0.2, 0.07, 0.02, 0.01]).log()
    batch = batch_of([1.0] * rows, [3] * rows, [0.75] * rows, None if min_p is None else [min_p] * rows)
    if isinstance(drafts, Draft):
        drafts = Draft(torch.randint(V, (rows, nodes)), torch.full((rows, nodes, V), 1 / V))
    predicted, _, _ = verdict(drafts, batch, logits.expand(rows, nodes + 1, V), 3)
    counts = Counter(predicted.view(rows, -1)[:, 0].tolist())
    law = {token: probability / sum(kept) for token, probability in enumerate(kept) if probability}
    assert counts.keys() == law.keys()
    assert chi_square(counts, law).p > 1e-4


class Known:
    """One token of each request, drawn from known distributions [B, V]; after it token 0 is certain."""

    def __init__(self, probs: Tensor, tokens: Tensor) -> None:
        self.probs, self.stated = probs, probs.gather(1, tokens[:, None])

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        return torch.where(positions == 0, self.probs[rows, tokens], (tokens == 0).double())


@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.4}], ids=str)
def test_lazy_distributions_are_verified_in_parts(filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests differ in what they draft; as a control they state too much for some tokens."""
    monkeypatch.setattr(verify, "PART_ON_CPU", 700 * 3 * V)
    generator, rows = torch.Generator().manual_seed(0), 4000
    logits = torch.tensor([0.1, 1.4, 1.2, -0.3, 0.9, 0.0])
    batch = batch_of([0.7] * rows, **{name: [value] * rows for name, value in filters.items()})
    batch.sampling_info.sampling_seed = torch.arange(rows)
    probs = torch.rand(rows, V, generator=generator, dtype=torch.float64) ** 4
    probs /= probs.sum(1, keepdim=True)
    tokens = torch.multinomial(probs, 1, generator=generator)
    info = batch.sampling_info
    target = filtered((logits.double() / 0.7).softmax(-1)[None], info.top_ks[:1], info.top_ps[:1], info.min_ps[:1])
    for stated, honest in ((probs, True), ((probs * torch.arange(1, V + 1)).double(), False)):
        lazy = Known(stated, tokens[:, 0])
        drafts = LazyDraft(torch.cat([tokens, torch.zeros_like(tokens)], 1), lazy)
        predicted, lengths, _ = verdict(drafts, batch, logits.expand(rows, 3, V), 2)
        value = chi_square(Counter(predicted.view(rows, -1)[:, 0].tolist()), dict(enumerate(target[0].tolist()))).p
        assert value > 1e-4 if honest else value < REJECT_BELOW
        assert {*lengths.tolist()} == ({1, 2} if filters else {1, 2, 3})  # filters leave token 0 out
        if honest:
            accepted = torch.minimum(probs, target).sum(1).mean()
            assert float((lengths > 1).double().mean()) == pytest.approx(float(accepted), abs=0.03)
            kept = lengths[lengths > 1] == 3  # of what fills a draft, q is 1
            assert float(kept.double().mean()) == pytest.approx(float(target[0, 0]), abs=0.04)


def test_sglangs_own_rule_does_not_verify_lazy_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "is_cuda", lambda: True)
    lazy = Known(torch.eye(V).double()[[3]], torch.tensor([3]))
    verified = verdict(LazyDraft(torch.tensor([[3, 0]]), lazy), batch_of([1.0]), certain([3, 0, 5]), 2)
    assert verified[0].tolist() == [3, 0, 5] and verified[1].tolist() == [3]


def test_greedy_rows_of_a_mixed_batch_stay_greedy() -> None:
    logits = torch.tensor([0.0, 0.1, 0.3, 0.3, 0.2, 0.1]).expand(200, 4, V)
    batch = batch_of([1.0] * 200, top_k=[1, ALL] * 100)
    predicted, _, _ = verdict(CHAIN, batch, logits, 3)
    first = predicted.view(200, 4)[:, 0]
    assert (first[::2] == 2).all()
    assert len(set(first[1::2].tolist())) > 1


def test_seeds_repeat() -> None:
    logits = torch.zeros(2, 4, V)
    once, again, other = (
        verdict(CHAIN, batch_of([1.0] * 2, seed=torch.tensor([3, seed])), logits, 3)[0].view(2, 4) for seed in (4, 4, 5)
    )
    assert torch.equal(once, again)
    assert torch.equal(once[0], other[0])
    assert not torch.equal(once[1], other[1])


TOP_K, TOP_P, MIN_P = {"top_k": [3]}, {"top_p": [0.5]}, {"min_p": [0.1]}


@pytest.mark.parametrize(
    ("greedy", "cuda", "filters", "ours"),
    [
        (True, False, {}, False),
        (True, True, TOP_K | TOP_P | MIN_P, False),
        (False, True, {}, False),
        (False, True, TOP_K, False),
        (False, True, TOP_P, False),
        (False, True, TOP_K | TOP_P, True),
        (False, True, MIN_P, True),
        (False, False, {}, True),
    ],
)
def test_sglangs_rule_stands_where_it_is_right(
    monkeypatch: pytest.MonkeyPatch, greedy: bool, cuda: bool, filters: dict[str, Any], ours: bool
) -> None:
    monkeypatch.setattr(verify, "is_cuda", lambda: cuda)
    batch, given = batch_of([1.0], **filters), built(CHAIN, 1, 3)
    batch.sampling_info.is_all_greedy = greedy
    output = SimpleNamespace(next_token_logits=torch.zeros(4, V))
    found = verify.sample_and_verify(lambda *_: "SGLang's", given, batch, output)
    assert (found != "SGLang's") == ours


@pytest.mark.parametrize("cuda", [False, True])
def test_a_verdict_of_sglangs_that_is_replaced_is_the_cheap_one_of_greedy_requests(
    monkeypatch: pytest.MonkeyPatch, cuda: bool
) -> None:
    """What it puts into the logits counts all the same."""
    monkeypatch.setattr(verify, "is_cuda", lambda: cuda)
    batch, given = batch_of([1.0], **TOP_K, **TOP_P), built(CHAIN, 1, 3)
    output, asked = SimpleNamespace(next_token_logits=torch.zeros(4, V)), []

    def sglangs(built: Any, batch: Any, output: Any) -> None:
        asked.append(batch.sampling_info.is_all_greedy)
        output.next_token_logits.copy_(certain([1, 2, 0, 0])[0])  # as a grammar may

    predicted, lengths, _ = verify.sample_and_verify(sglangs, given, batch, output)
    assert asked == [True]
    assert not batch.sampling_info.is_all_greedy
    assert lengths.tolist() == [3]
    assert predicted[:3].tolist() == [1, 2, 0]


@pytest.mark.parametrize("backend", ["pytorch", "flashinfer"])
@pytest.mark.parametrize("drafts", [CHAIN, TREE], ids=["chain", "tree"])
def test_among_the_tokens_of_a_top_k_verdicts_are_those_among_all(
    drafts: Draft | TreeDraft, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token by token, also with equal logits, and in one batch with requests without a top-k."""
    sampling(monkeypatch, backend)
    rows, places = 400, drafts.tokens.shape[1] + 1
    logits = torch.randint(-2, 3, (rows, places, V), generator=torch.Generator().manual_seed(3)).float()
    top_k, top_p, min_p = [1, 2, 3, 5] * 100, [1.0, 0.6, 0.35] * 133 + [0.0], [0.0, 0.0, 0.2, 0.0, 1.0] * 80
    found = []
    for most, part in ((V, rows), (2, 1), (0, rows)):  # among few, some requests among few, among all
        monkeypatch.setattr(verify, "TOP_K", most)
        monkeypatch.setattr(verify, "PART_ON_CPU", part * places * V)
        batch = batch_of([0.5, 0.8, 1.3, 2.0] * (rows // 4), top_k, top_p, min_p, seed=torch.arange(rows))
        found.append(verdict(drafts, batch, logits, 3))
    for other in found[1:]:
        assert all(torch.equal(one, another) for one, another in zip(found[0], other, strict=True))


@pytest.mark.parametrize("filters", [{"top_k": [20] * 3, "top_p": [0.8] * 3}, {"min_p": [0.1] * 3}], ids=str)
def test_no_vocabulary_is_sorted_where_a_few_columns_do(filters: dict[str, Any]) -> None:
    class Sorted(TorchDispatchMode):
        longest = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "sort" in str(func):
                self.longest = max(self.longest, args[0].shape[-1])
            return func(*args, **(kwargs or {}))

    output = SimpleNamespace(next_token_logits=torch.randn(12, 500))
    given = built(Draft(CHAIN.tokens, None), 3, 3)
    with Sorted() as found:
        verify.sample_and_verify(lambda *_: None, given, batch_of([0.8] * 3, **filters), output)
    assert found.longest <= 20


def test_every_rank_takes_the_verdict_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [torch.full((12,), 4), torch.full((3,), 2), torch.full((3, 4), 1)]

    class Group:
        world_size = 2

        def broadcast(self, tensor: Tensor, src: int) -> None:
            assert src == 0
            tensor.copy_(first.pop(0))

    monkeypatch.setattr(verify, "get_parallel", lambda: SimpleNamespace(tp_group=Group()))
    predicted, lengths, nodes = verdict(CHAIN, batch_of([1.0] * 3), torch.zeros(3, 4, V), 3)
    assert not first
    assert (predicted == 4).all()
    assert (lengths == 2).all()
    assert (nodes == 1).all()


@pytest.mark.parametrize("drafts", [CHAIN, TREE], ids=["chain", "tree"])
def test_a_large_batch_is_judged_in_parts(drafts: Draft | TreeDraft, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are those of the whole batch, in the memory of a part."""
    rows, places = 40, drafts.tokens.shape[1] + 1
    logits = torch.randn(rows, places, V, generator=torch.Generator().manual_seed(2))
    parameters = [0.5, 0.8, 1.3, 2.0] * (rows // 4), [3, 5] * (rows // 2), [0.9] * rows, [0.0, 0.1] * (rows // 2)
    batch = batch_of(*parameters, seed=torch.arange(rows))
    whole = verdict(drafts, batch, logits, 3)
    given, output = built(drafts, rows, 3), SimpleNamespace(next_token_logits=logits.flatten(0, 1))
    peaks = []
    for size in (rows, 7):
        monkeypatch.setattr(verify, "PART_ON_CPU", size * places * V)
        with Trace() as trace:
            found = verify.sample_and_verify(lambda *_: None, given, batch, output)
        assert all(torch.equal(one, other) for one, other in zip(found, whole, strict=True))
        peaks.append(trace.peak)
    assert peaks[1] < peaks[0] / 2
