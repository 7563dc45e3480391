"""Data-parallel training with torch.distributed."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from elmokit.errors import ConfigError, RankError
from elmokit.threads import find_device

Value = TypeVar("Value")

# A rank that has sent nothing for so long is taken for lost, and the run ends.
_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class ProcessGroup:
    """The rank of this process among those of a run; a single process is rank 0 of 1."""

    rank: int = 0
    size: int = 1

    @staticmethod
    def device(name: str | torch.device) -> torch.device:
        """The device of this process; several processes on one machine have a GPU each."""
        device = find_device(name)
        if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
            return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        return device

    @classmethod
    def join(cls, device: torch.device) -> "ProcessGroup":
        """The group that torchrun started this process in; a group of one without torchrun."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
        return cls(dist.get_rank(), size)

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that writes files and reports progress."""
        return self.rank == 0

    def rows(self, batch_size: int) -> slice:
        """This rank's rows of a batch."""
        if batch_size % self.size:
            raise ConfigError(
                f"batch_size is {batch_size}, expected a multiple of {self.size}, the number of "
                "ranks"
            )
        rows_per_rank = batch_size // self.size
        return slice(self.rank * rows_per_rank, (self.rank + 1) * rows_per_rank)

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace every rank's gradients with their mean over all ranks."""
        if self.size == 1:
            return
        grads = []
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:  # not used by this rank, but perhaps by another
                    parameter.grad = torch.zeros_like(parameter)
                grads.append(parameter.grad)
        flat = torch.cat([grad.flatten() for grad in grads])
        with _lost_rank_errors():
            dist.all_reduce(flat)
        flat.div_(self.size)
        for grad, mean in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(mean.view_as(grad))

    def mean(self, numbers: list[float]) -> list[float]:
        """The mean of each number over all ranks."""
        return [sum(column) / self.size for column in zip(*self._of_all(numbers), strict=True)]

    def gather(self, part: Tensor, dim: int) -> Tensor:
        """The tensors of all ranks, concatenated on the CPU."""
        return torch.cat(self._of_all(part.cpu()), dim)

    def broadcast(self, value: Value) -> Value:
        """The first rank's value."""
        return self._of_all(value)[0]

    def _of_all(self, value: Value) -> list[Value]:
        """The value of each rank."""
        values = [value] * self.size
        if self.size > 1:
            with _lost_rank_errors():
                dist.all_gather_object(values, value)
        return values

    def close(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()


@contextmanager
def _lost_rank_errors() -> Iterator[None]:
    """Turn torch's RuntimeError, which it raises when a rank is lost, into a RankError."""
    try:
        yield
    except RuntimeError as error:
        raise RankError(
            f"another rank was lost ({str(error).splitlines()[0]}); the last checkpoint is "
            "unharmed: run the same command again"
        ) from None
