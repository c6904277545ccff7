"""The processes of one training, one for each device, as torchrun starts them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from mtpc.errors import MTPCError

WAIT = timedelta(hours=1)  # until the others are at the same point: loading a target takes minutes


@dataclass(frozen=True)
class Processes:
    """This process among all that train the same models on parts of the same batches.

    Each process holds the models and the target. All call the same methods in the same order. Sums are equal in all, so
    the models stay equal as well.

    Attributes:
        rank: Number of this process.
        count: Number of processes.
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def started(cls) -> Processes:
        """Return the processes that `start_processes` has joined, or this one alone."""
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes."""
        return self.rank == 0

    def takes(self, number: int) -> bool:
        """Return whether this process computes the example with this number in its update."""
        return number % self.count == self.rank

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first process."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace the gradient of each parameter by its sum over the processes.

        A process without examples has no gradients. A parameter without a gradient in any process keeps none.
        """
        if self.count == 1:
            return
        parameters = list(parameters)
        used = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        for parameter, is_used in zip(parameters, used.tolist(), strict=True):
            if is_used:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.contiguous()
                dist.all_reduce(gradient)
                parameter.grad = gradient

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the processes of a tensor on the CPU."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def largest(self, value: float) -> float:
        """Return the largest of the processes' numbers."""
        values = torch.tensor(value, dtype=torch.float64)
        if self.count > 1:
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return values.item()


def start_processes() -> None:
    """Join the processes of torchrun, which started this one, and take a GPU where there are GPUs.

    Raises:
        MTPCError: There are more processes than GPUs.
    """
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", timeout=WAIT)
        return
    here, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if here > gpus:
        raise MTPCError(
            f"torchrun started {here} processes on a machine with {gpus} GPUs; use --nproc-per-node {gpus} or fewer."
        )
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=WAIT)


def end_processes() -> None:
    """Leave the processes of torchrun; this process continues alone."""
    if dist.is_initialized():
        dist.destroy_process_group()
