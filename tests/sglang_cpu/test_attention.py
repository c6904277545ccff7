"""Attention of a whole step against each request and each query on its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sglang_cpu import attention
from sglang_cpu.attention import StepLayout, attend

HEADS, KEY_HEADS, SIZE, VALUE_SIZE, SLOTS = 6, 2, 8, 5, 64
ROWS = torch.tensor([2, 0, 3])
BEFORE = torch.tensor([4, 1, 9])


def tables(width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries of `width` positions per request, key and value caches, and a table of slots.

    Unused slots hold 1e4, which would show in any result.
    """
    generator = torch.Generator().manual_seed(width)
    keys, values = torch.full((SLOTS, KEY_HEADS, SIZE), 1e4), torch.full((SLOTS, KEY_HEADS, VALUE_SIZE), 1e4)
    slots = torch.randperm(SLOTS, generator=generator)[:56].view(4, 14).int()
    for row, before in zip(ROWS.tolist(), BEFORE.tolist(), strict=True):
        used = slots[row, : before + width].long()
        keys[used] = torch.randn(len(used), KEY_HEADS, SIZE, generator=generator)
        values[used] = torch.randn(len(used), KEY_HEADS, VALUE_SIZE, generator=generator)
    query = torch.randn(len(ROWS) * width, HEADS, SIZE, generator=generator)
    return query, keys, values, slots


def one_by_one(query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, tree: Tensor, scaling: float) -> Tensor:
    """Softmax over what each query of each request and head may see."""
    width, found = tree.shape[1], []
    for index, (row, before) in enumerate(zip(ROWS.tolist(), BEFORE.tolist(), strict=True)):
        for place in range(width):
            own = [before + other for other in range(width) if tree[index, place, other]]
            seen = slots[row, [*range(before), *own]].long()
            for head in range(HEADS):
                key_head = head // (HEADS // KEY_HEADS)
                weights = (keys[seen, key_head] @ query[index * width + place, head] * scaling).softmax(0)
                found.append(weights @ values[seen, key_head])
    return torch.stack(found).view(-1, HEADS, VALUE_SIZE)


def random_tree(width: int) -> Tensor:
    """Bool [B, n, n]: each position sees itself, the first one, and some before it."""
    tree = torch.rand(len(ROWS), width, width, generator=torch.Generator().manual_seed(3)) < 0.5
    tree = tree.tril() | torch.eye(width).bool()
    tree[:, :, 0] = True
    return tree


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_step(width: int) -> None:
    query, keys, values, slots = tables(width)
    tree = random_tree(width)
    step = StepLayout.lay_out(slots, ROWS, BEFORE, tree)
    expected = one_by_one(query, keys, values, slots, tree, 0.3)
    torch.testing.assert_close(attend(query, keys, values, step, 0.3), expected)


def test_a_request_is_computed_as_without_the_others() -> None:
    query, keys, values, slots = tables(3)
    tree = random_tree(3)
    together = attend(query, keys, values, StepLayout.lay_out(slots, ROWS, BEFORE, tree), 0.3).view(len(ROWS), 3, -1)
    for row in range(len(ROWS)):
        step = StepLayout.lay_out(slots, ROWS[row : row + 1], BEFORE[row : row + 1], tree[row : row + 1])
        alone = attend(query[row * 3 : row * 3 + 3], keys, values, step, 0.3)
        torch.testing.assert_close(alone.reshape(3, -1), together[row], rtol=0, atol=1e-6)


def test_in_bfloat16_the_length_of_the_others_makes_hardly_a_difference() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(600, KEY_HEADS, 64, generator=generator).bfloat16() for _ in range(2))
    slots = torch.randperm(600, generator=generator).view(2, 300).int()
    tree, different = torch.ones(2, 4, 4).tril().bool(), []
    for length in range(20, 280, 13):
        query = torch.randn(8, HEADS, 64, generator=generator).bfloat16()
        rows, before = torch.arange(2), torch.tensor([20, length])
        together = attend(query, keys, values, StepLayout.lay_out(slots, rows, before, tree), None)[:4]
        alone = attend(query[:4], keys, values, StepLayout.lay_out(slots, rows[:1], before[:1], tree[:1]), None)
        different.append((together != alone).float().mean())
    assert torch.stack(different).mean() < 0.001


class Backend:
    """Fake of SGLang's backend, with the methods that are wrapped."""

    def __init__(self, slots: Tensor) -> None:
        self.req_to_token_pool = SimpleNamespace(req_to_token=slots)
        self.forward_metadata: Any = "not yet"

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Prepare a step."""

    def _run_sdpa_forward_decode(self, query: Tensor, output: Tensor, *rest: Any, **more: Any) -> str:
        return "one by one"

    _run_sdpa_forward_extend = _run_sdpa_forward_decode


def batch(mode: str, tree: Tensor | None = None) -> Any:
    """What is asked of SGLang's ForwardBatch."""
    modes = SimpleNamespace(
        is_decode=lambda: mode == "decode",
        is_target_verify=lambda: mode == "verify",
        is_draft_extend_v2=lambda: mode == "draft extend",
    )
    width = 1 if tree is None else tree.shape[1]
    spec_info = None if tree is None else SimpleNamespace(draft_token_num=width, custom_mask=tree.flatten())
    lengths = BEFORE + width * (mode != "verify")  # SGLang counts a token that is decoded, but no drafts
    return SimpleNamespace(
        forward_mode=modes,
        batch_size=3,
        req_pool_indices=ROWS,
        seq_lens=lengths,
        spec_info=spec_info,
        input_ids=torch.zeros(3 * width),
    )


@pytest.fixture
def installed() -> type[Backend]:
    """A class with the wrapped methods."""
    kind = type("Wrapped", (Backend,), dict(vars(Backend)))
    attention.install(SimpleNamespace(TorchNativeAttnBackend=kind))
    return kind


@pytest.mark.parametrize(("mode", "width"), [("decode", 1), ("verify", 4), ("draft extend", 4)])
def test_steps_are_computed_together(installed: type[Backend], mode: str, width: int) -> None:
    query, keys, values, slots = tables(width)
    tree = random_tree(width) if mode == "verify" else torch.ones(3, width, width).tril().bool()
    backend, output = installed(slots), torch.empty(len(query), HEADS, VALUE_SIZE)
    backend.init_forward_metadata(batch(mode, tree))
    run = backend._run_sdpa_forward_decode if mode == "decode" else backend._run_sdpa_forward_extend
    assert run(query, output, keys, values, slots, scaling=0.3, is_cross_attn=False) is output
    torch.testing.assert_close(output, one_by_one(query, keys, values, slots, tree, 0.3))


def test_prompts_and_other_attention_stay_with_sglang(installed: type[Backend]) -> None:
    query, keys, values, slots = tables(1)
    backend, output = installed(slots), torch.empty(len(query), HEADS, VALUE_SIZE)
    backend.init_forward_metadata(batch("extend"))
    assert backend._run_sdpa_forward_extend(query, output, keys, values, scaling=0.3) == "one by one"
    backend.init_forward_metadata(batch("decode"))
    for more in ({"is_cross_attn": True}, {"sliding_window_size": 7}):
        assert backend._run_sdpa_forward_decode(query, output, keys, values, scaling=0.3, **more) == "one by one"


def test_nothing_is_wrapped_where_a_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kind = type("Untouched", (Backend,), {})
    attention.install(SimpleNamespace(TorchNativeAttnBackend=kind))
    assert kind._run_sdpa_forward_extend is Backend._run_sdpa_forward_extend
