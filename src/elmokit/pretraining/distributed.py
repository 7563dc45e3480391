"""Data-parallel training with torch.distributed, and with torchrun's elastic agent."""

import logging
import os
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from elmokit.errors import ConfigError, RankError
from elmokit.threads import find_device

Key = TypeVar("Key")
Value = TypeVar("Value")

# A rank that has sent nothing for so long is taken for lost, and the run ends.
_TIMEOUT = timedelta(minutes=30)
# A restarted run waits so long for the lock of its predecessor, whose machine may be the lost one:
# NFS keeps the locks of a client that is gone for 90 seconds.
_LOCK_SECONDS = 120.0
# How often ranks have been started, in the store in which they find each other.
_STARTS = "elmokit/starts"
_SECONDS_BETWEEN_LOOKS = 0.05


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
        with _lost_rank_errors():
            store, rank, size = next(rendezvous("env://", timeout=_TIMEOUT))
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=_new_store(store, rank, size),
                rank=rank,
                world_size=size,
                timeout=_TIMEOUT,
            )
        return cls(rank, size)

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that writes files and reports progress."""
        return self.rank == 0

    @property
    def lock_seconds(self) -> float:
        """How long to wait for the run's lock: torchrun may have restarted this process."""
        return _LOCK_SECONDS if "TORCHELASTIC_RUN_ID" in os.environ else 0.0

    def rows(self, batch_size: int) -> slice:
        """This rank's rows of a batch: as many as any other's, or one more."""
        if batch_size < self.size:
            raise ConfigError(
                f"batch_size is {batch_size}, expected at least {self.size}, the number of ranks: "
                "each needs a row of the batch"
            )
        start, stop = (rank * batch_size // self.size for rank in (self.rank, self.rank + 1))
        return slice(start, stop)

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace every rank's gradients with their sum over all ranks."""
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
        for grad, total in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(total.view_as(grad))

    def make_optimizer(
        self,
        kind: type[torch.optim.Optimizer],
        parameters: Any,
        *,
        shard: bool,
        **options: Any,
    ) -> torch.optim.Optimizer:
        """An optimizer; with `shard`, each rank keeps the state of its share of the parameters.

        That is ZeRO's first stage: a rank updates its share and sends it to the others.
        """
        if not shard or self.size == 1:
            return kind(parameters, **options)
        with warnings.catch_warnings():  # it uses parts of torch that are deprecated
            warnings.simplefilter("ignore", DeprecationWarning)
            from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415  (slow)

        # It warns at every step in which the encoder begins or ceases to be trained.
        logging.getLogger(ZeroRedundancyOptimizer.__module__).setLevel(logging.ERROR)
        return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, **options)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The state of all parameters as an optimizer of one process has it; on the first rank.

        Every rank must call this.
        """
        if hasattr(optimizer, "consolidate_state_dict"):  # its state is sharded
            with _lost_rank_errors():
                optimizer.consolidate_state_dict(to=0)
            if not self.is_first:
                return {}
        return optimizer.state_dict()

    def mean(self, numbers: list[float], *, weight: float) -> list[float]:
        """The mean of each number over all ranks, which have weights."""
        ranks = self._of_all((weight, numbers))
        total = sum(weight for weight, _ in ranks)
        columns = zip(*([w * number for number in row] for w, row in ranks), strict=True)
        return [sum(column) / total for column in columns]

    def union(self, values: Mapping[Key, Value]) -> dict[Key, Value]:
        """The entries of all ranks."""
        return {k: v for part in self._of_all(dict(values)) for k, v in part.items()}

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


def _new_store(store: Store, rank: int, size: int) -> Store:
    """A part of the store in which ranks find each other that only these ranks know.

    torchrun's agent keeps its store when it starts ranks again, and with it the addresses of those
    that are gone. So the first rank begins another part of it, and answers for the others that
    have announced themselves there. One that has announced itself in an old part finds that the
    answer is not for it, or that there is a new part, and announces itself again.
    """
    own_name = uuid.uuid4().hex
    if rank == 0:
        part = f"elmokit/{store.add(_STARTS, 1)}"
        names = [store.get(f"{part}/{other}") for other in range(1, size)]
        store.set(f"{part}/names", b" ".join(names).decode())
        return PrefixStore(part, store)
    until = time.monotonic() + _TIMEOUT.total_seconds()
    while time.monotonic() < until:
        start = store.add(_STARTS, 0)
        part = f"elmokit/{start}"
        store.set(f"{part}/{rank}", own_name)
        while time.monotonic() < until and start == store.add(_STARTS, 0):
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            if store.check([f"{part}/names"]):
                if own_name in store.get(f"{part}/names").decode().split():
                    return PrefixStore(part, store)
                break
    raise RuntimeError(f"no first rank in {_TIMEOUT.total_seconds() / 60:.0f} minutes")


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
