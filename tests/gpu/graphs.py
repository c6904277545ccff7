"""Row: drafts of every draft method in CUDA graphs, replayed with other requests; nothing waits for the device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from mtpc.cuda_graph import capture_graph
from mtpc.lab.evaluation.reference import ReferenceDrafter
from tests.gpu.running import NotRunError, Run
from tests.gpu.waiting import Waits
from tests.gpu.whole import Batch, Drafts, differing, examples
from tests.support.fake_graphs import record as record_fake

SIZES, ON_CPU, REPLAYS = (1, 3, 17), (3,), 3
LIKE_THE_CPU = 0.99  # of all tokens, at least: products are summed in another order


@torch.inference_mode()
def replayed(run: Run) -> str:
    """On a CPU in `tests.support.fake_graphs`."""
    sizes = SIZES if run.on_gpu else ON_CPU
    graphs, tokens, unlike = 0, 0, 0.0
    for name, example in examples(run.device):
        for way, draft in example.ways().items():
            for rows in sizes:
                buffers = Batch.random(rows, 0, *example.sizes, run.device)

                def call(draft: Callable[[Batch], Drafts] = draft, buffers: Batch = buffers) -> Drafts:
                    return draft(buffers)

                replay, made = (capture_graph if run.on_gpu else record_fake)(call)
                for seed in range(1, REPLAYS + 1):
                    batch = Batch.random(rows, seed, *example.sizes, run.device)
                    buffers.take(batch)
                    replay()
                    share = differing(made, draft(batch))
                    assert not share, f"{name}, {way} of {rows}: {share:.1%} of a replay's tokens are not the call's"
                    tokens += made.tokens.numel()
                graphs += 1
    if run.on_gpu:
        unlike = unlike_the_cpu(run.device)
        assert unlike < 1 - LIKE_THE_CPU, f"{unlike:.1%} of the tokens are not those that a CPU drafts"
    end = f", {unlike:.2%} not as on the CPU" if run.on_gpu else ""
    return f"{graphs} graphs, {REPLAYS} replays each, {tokens} tokens: all as called{end}"


def unlike_the_cpu(device: torch.device) -> float:
    """The share of tokens of chains that this device drafts and a CPU does not."""
    found = []
    for (_, here), (_, there) in zip(examples(device), examples(torch.device("cpu")), strict=True):
        for seed in range(10):
            mine = here.chain(Batch.random(17, seed, *here.sizes, device)).tokens.cpu()
            expected = there.chain(Batch.random(17, seed, *there.sizes, torch.device("cpu"))).tokens
            found.append((mine != expected).float().mean())
    return float(torch.stack(found).mean())


@contextmanager
def nothing_waits() -> Iterator[None]:
    """What waits for the device raises an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@torch.inference_mode()
def unwaiting(run: Run) -> str:
    """Drafts outside of graphs, once each has been made."""
    if not run.on_gpu:
        raise NotRunError("nothing waits for a device without a GPU")
    found = False
    try:
        with nothing_waits():
            torch.ones(1, device=run.device).item()
    except RuntimeError:
        found = True
    assert found, "the control: reading a value did not raise an error"
    control = Waits()
    control.count()
    with control:
        ReferenceDrafter._mode(None, torch.ones(1, device=run.device))  # type: ignore[arg-type]
    assert inspect.getfile(ReferenceDrafter) in str(control.found), "the control: a line that waits was not found"
    drafts = 0
    for name, example in examples(run.device):
        batch = Batch.random(3, 0, *example.sizes, run.device)
        for way, draft in example.ways().items():
            draft(batch)
            try:
                with nothing_waits():
                    draft(batch)
            except RuntimeError as error:
                raise AssertionError(f"{name}, {way}: {error}") from error
            drafts += 1
    return f"{drafts} drafts"
