"""The backends of SGLang's own draft worker: which keys each draft of a chain sees, and who gets them at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sglang_cpu import draft_attention
from sglang_cpu.attention import attend
from sglang_cpu.draft_attention import DraftBackend

SLOTS = torch.randperm(60, generator=torch.Generator().manual_seed(0)).view(3, 20)
RUNNER = SimpleNamespace(
    device="cpu", req_to_token_pool=SimpleNamespace(req_to_token=SLOTS), token_to_kv_pool=SimpleNamespace(page_size=1)
)


def test_a_draft_sees_the_text_and_the_drafts_before_it() -> None:
    chain = DraftBackend(RUNNER, 4, 1)
    assert len(chain.attn_backends) == 3
    rows, lengths = [2, 0], [5, 9]
    batch = SimpleNamespace(
        batch_size=2, req_pool_indices=torch.tensor(rows), seq_lens=torch.tensor(lengths), out_cache_loc=None
    )
    chain.init_forward_metadata(batch)
    for step, backend in enumerate(chain.attn_backends):
        slots, visible = backend.forward_metadata
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            seen = slots.view(2, -1)[place][visible[place, 0]]
            assert seen.tolist() == SLOTS[row, : length + step + 1].tolist()


def drafted(length: int, steps: int, branches: int, page: int) -> list[list[int]]:
    """The positions of each branch's drafts in a request's table, counted out page by page as SGLang gives them."""
    if page == 1:
        return [[length + branch * steps + step for step in range(steps)] for branch in range(branches)]
    full, rest = divmod(length, page)
    first, positions = full * page, []
    for _ in range(branches):
        pages = 0
        while pages * page < rest + steps:
            pages += 1
        positions.append([first + rest + step for step in range(steps)])
        first += pages * page
    return positions


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("branches", [1, 2, 3])
def test_attention_of_a_draft_tree(page: int, branches: int) -> None:
    steps, rows, lengths, size = 3, [2, 0], [5, 9], 4
    table = torch.randperm(3 * 40, generator=torch.Generator().manual_seed(1)).view(3, 40)
    runner = SimpleNamespace(
        device="cpu",
        req_to_token_pool=SimpleNamespace(req_to_token=table),
        token_to_kv_pool=SimpleNamespace(page_size=page),
    )
    generator = torch.Generator().manual_seed(branches)
    keys, values = (torch.randn(120, 1, size, generator=generator) for _ in range(2))
    tree = DraftBackend(runner, steps, branches)
    tree.init_forward_metadata(
        SimpleNamespace(batch_size=2, req_pool_indices=torch.tensor(rows), seq_lens=torch.tensor(lengths))
    )
    for step, backend in enumerate(tree.attn_backends):
        query = torch.randn(2 * branches, 1, size, generator=generator)
        expected = []
        for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            for branch, own in enumerate(drafted(length, steps, branches, page if branches > 1 else 1)):
                seen = table[row, [*range(length), *own[: step + 1]]]
                weights = (keys[seen, 0] @ query[index * branches + branch, 0] * 0.5).softmax(0)
                expected.append(weights @ values[seen, 0])
        computed = attend(query, keys, values, backend.forward_metadata, 0.5)
        torch.testing.assert_close(computed[:, 0], torch.stack(expected))


class Factory:
    """Fake of SGLang's factory, with the two methods that are wrapped; each returns "SGLang's"."""

    def __init__(self, chosen: str, steps: int = 3, topk: int = 1) -> None:
        self.draft_attn_backend, self.draft_model_runner = chosen, RUNNER
        self.speculative_num_steps, self.topk = steps, topk

    def create_decode_backend(self) -> Any:
        return "SGLang's"

    def create_draft_extend_backend(self) -> Any:
        return "SGLang's"


@pytest.fixture
def installed() -> type[Factory]:
    """A class with the wrapped methods."""
    kind = type("Wrapped", (Factory,), dict(vars(Factory)))
    draft_attention.install(SimpleNamespace(DraftBackendFactory=kind))
    return kind


def test_where_sglang_has_no_backend(installed: type[Factory]) -> None:
    assert isinstance(installed("torch_native").create_decode_backend(), DraftBackend)
    assert installed("torch_native", steps=1).create_decode_backend() is None
    assert installed("torch_native").create_draft_extend_backend() is None
    assert installed("torch_native", topk=2).create_decode_backend().branches == 2


def test_all_others_stay_with_sglang(installed: type[Factory], monkeypatch: pytest.MonkeyPatch) -> None:
    for factory in (installed("intel_amx"), Factory("torch_native")):
        assert factory.create_decode_backend() == factory.create_draft_extend_backend() == "SGLang's"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kind = type("Untouched", (Factory,), dict(vars(Factory)))
    draft_attention.install(SimpleNamespace(DraftBackendFactory=kind))
    assert kind("torch_native").create_decode_backend() == "SGLang's"
