"""Data-parallel training with torch.distributed."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from elmokit.errors import ConfigError, RankError
from elmokit.threads import find_device

# A rank that has not been heard of for so long is lost, and the run ends.
_PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True)
class Ranks:
    """This process among those of a run; alone, it is rank 0 of 1."""

    rank: int = 0
    size: int = 1

    @staticmethod
    def device(name: str | torch.device) -> torch.device:
        """Where this process computes: of several on one machine, each on a GPU of its own."""
        device = find_device(name)
        if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
            return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        return device

    @classmethod
    def join(cls, device: torch.device) -> "Ranks":
        """What torchrun says of this process; without torchrun, it is alone."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_PATIENCE)
        return cls(dist.get_rank(), size)

    @property
    def first(self) -> bool:
        """Whether this rank is the one that writes and speaks."""
        return self.rank == 0

    def share(self, lanes: int) -> slice:
        """This rank's lanes."""
        if lanes % self.size:
            raise ConfigError(
                f"batch_size is {lanes}, expected a multiple of {self.size}, the number of ranks"
            )
        each = lanes // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Make every rank's gradients the mean of all."""
        if self.size == 1:
            return
        grads = []
        for parameter in parameters:  # one that a rank had no use for takes part as well
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            grads.append(parameter.grad)
        whole = torch.cat([grad.flatten() for grad in grads])
        with _hearing_all():
            dist.all_reduce(whole)
        whole.div_(self.size)
        for grad, mean in zip(grads, whole.split([g.numel() for g in grads]), strict=True):
            grad.copy_(mean.view_as(grad))

    def mean(self, numbers: list[float]) -> list[float]:
        """The mean of each number over all ranks."""
        if self.size == 1:
            return numbers
        every: list[Any] = [None] * self.size
        with _hearing_all():
            dist.all_gather_object(every, numbers)
        return [sum(column) / self.size for column in zip(*every, strict=True)]

    def gather(self, part: Tensor, dim: int) -> Tensor:
        """The parts of all ranks, one after the other."""
        if self.size == 1:
            return part
        parts = [torch.empty_like(part) for _ in range(self.size)]
        with _hearing_all():
            dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, dim)

    def told_by_first(self, told: Any) -> Any:
        """What the first rank says."""
        if self.size == 1:
            return told
        box = [told]
        with _hearing_all():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def leave(self) -> None:
        """The run is over."""
        if self.size > 1:
            dist.destroy_process_group()


@contextmanager
def _hearing_all() -> Iterator[None]:
    """Say in a sentence that another rank was lost: torch raises a RuntimeError, whatever it is."""
    try:
        yield
    except RuntimeError as error:
        raise RankError(
            f"another rank was lost ({str(error).splitlines()[0]}); the last checkpoint is whole: "
            "run the same command again"
        ) from None
