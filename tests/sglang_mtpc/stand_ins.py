"""What SGLang's workers read of a batch, without SGLang's scheduler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from mtpc.draft import Draft, TreeDraft
from mtpc.draft_length.budget import DraftBudget
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc.draft_lengths import WorkerLengths
from sglang_mtpc.shape import DraftShape

CHANCES, VOCAB = torch.tensor([0.7, 0.9, 0.8, 0.6, 0.5, 0.4]), 258


class PlainRequest:
    """What is read of SGLang's ``Req``, which like this is equal to itself alone."""

    def __init__(self, **custom: Any) -> None:
        self.sampling_params = SimpleNamespace(custom_params=custom or None)


class Texts(WorkerLengths):
    """Every other request would go on with 1, 2, 3 and so on; the others have nothing to copy."""

    def __init__(self, tokens: int = 3, steps: int = 0, drafts: int = 6) -> None:
        shape = DraftShape(drafts, 1, drafts)
        super().__init__(CopyTable(), torch.device("cpu"), DraftBudget(tokens, steps), shape, None, True, 99)

    def begin(self, requests: Any, greedy: bool = True) -> None:
        self.count = len(requests)

    def copied(self, drafts: int) -> Copied:
        copies = (torch.arange(self.count) % 2)[:, None]
        tokens = torch.arange(1, drafts + 1).repeat(self.count, 1)
        return Copied(tokens * copies, CHANCES[:drafts] * copies)


def built_of(draft: Draft | TreeDraft) -> Any:
    """What is read of SGLang's ``EagleVerifyInput``."""
    rows, drafts = draft.tokens.shape
    tokens, probs = torch.cat([torch.full((rows, 1), 7), draft.tokens], 1), getattr(draft, "probs", None)
    return SimpleNamespace(draft_token=tokens.flatten(), draft_token_num=drafts + 1, draft_probs=probs)


def batch_of(rows: int, mode: str, hidden: torch.Tensor | None = None) -> tuple[Any, torch.Tensor]:
    """What is read of SGLang's ``ScheduleBatch``, whose first drafts have been made, and which rows are greedy."""
    greedy = torch.full((rows,), mode == "greedy") | ((torch.arange(rows) % 4 > 2) & (mode == "mixed"))
    info = SimpleNamespace(
        temperatures=torch.ones(rows, 1),
        top_ks=torch.where(greedy, 1, 1 << 30),
        is_all_greedy=bool(greedy.all()),
        is_any_greedy=bool(greedy.any()),
        sampling_seed=None,
    )
    probs = torch.randn(VOCAB, generator=torch.Generator().manual_seed(3)).softmax(-1).repeat(rows, 1)
    draft_input = SimpleNamespace(
        draft_probs=probs,
        topk_index=probs.argmax(1, keepdim=True),
        topk_p=probs.amax(1, keepdim=True),
        hidden_states=hidden,
        bonus_tokens=torch.arange(rows) % VOCAB,
    )
    reqs, lengths = [PlainRequest() for _ in range(rows)], torch.full((rows,), 9)
    return SimpleNamespace(spec_info=draft_input, sampling_info=info, reqs=reqs, seq_lens=lengths), greedy
