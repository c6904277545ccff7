"""A small head that ranks share out; each rank is a thread, and they exchange by gloo."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from mtpc.target_head.rows import Ranks

VOCAB, SIZE, COUNT = 21, 8, 2
SHARD = 12  # rows of a rank: the last ones fill up
T = TypeVar("T")
HEAD = torch.randn(VOCAB, SIZE, generator=torch.Generator().manual_seed(0))


def on_ranks(compute: Callable[[Tensor, Ranks], T], count: int = COUNT) -> list[T]:
    """What each rank makes of its shard and the ranks."""
    store = dist.HashStore()

    def run(number: int) -> T:
        group = dist.ProcessGroupGloo(store, number, count, timedelta(seconds=60))

        def gather(tensor: Tensor) -> Tensor:
            parts = [torch.empty_like(tensor) for _ in range(count)]
            group.allgather([parts], [tensor.contiguous()]).wait()
            return torch.cat(parts, -1)

        padded = torch.cat([HEAD, torch.full((count * SHARD - VOCAB, SIZE), torch.nan)])
        return compute(padded[number * SHARD : (number + 1) * SHARD], Ranks(number, count, gather))

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))
