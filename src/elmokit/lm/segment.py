"""A window becomes rows that are read step by step: its lanes, cut where they start afresh."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """The rows of a window, longest first, and which lanes they belong to.

    A lane that starts afresh in the middle of a window goes on as another row, from zero: so the
    readers need to know nothing of it.
    """

    tokens: Tensor  # (tokens,), places in the flattened window, step after step
    sizes: list[int]  # how many rows have a word at each step
    lanes: Tensor  # (rows,), the lane of each row
    fresh: Tensor  # (rows,), whether it starts from zero
    last: Tensor  # (lanes,), the row that each lane ends with

    @classmethod
    def of(cls, resets: npt.NDArray[np.bool_]) -> "Segments":
        """The rows of lanes that start afresh at those places, (lanes, steps)."""
        lanes, steps = resets.shape
        cuts = resets.copy()
        cuts[:, 0] = True
        begins = np.flatnonzero(cuts)
        lengths = np.diff(np.append(begins, lanes * steps))
        order = np.argsort(-lengths, kind="stable")
        sizes = (lengths > np.arange(steps)[:, None]).sum(1)
        sizes = sizes[sizes > 0]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        begins = begins[order]
        tokens = np.concatenate([begins[:size] + step for step, size in enumerate(sizes)])
        ends = np.searchsorted(np.flatnonzero(cuts), np.arange(1, lanes + 1) * steps) - 1
        return cls(
            torch.from_numpy(tokens),
            sizes.tolist(),
            torch.from_numpy(begins // steps),
            torch.from_numpy(resets.flatten()[begins]),
            torch.from_numpy(place[ends]),
        )

    def to(self, device: torch.device) -> "Segments":
        """The same rows on a device."""
        return Segments(
            self.tokens.to(device),
            self.sizes,
            self.lanes.to(device),
            self.fresh.to(device),
            self.last.to(device),
        )
