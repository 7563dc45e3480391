"""Parts of a corpus become a store when all are there: what a build asks of where it builds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elmokit.search.passages import Passage, Row
from elmokit.search.recipe import Recipe
from elmokit.whitening import Whitening

HalfVectors = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Kept:
    """How much of a corpus is kept already, and the text of its last passage."""

    passages: int
    vectors: int
    last_text: str


class Site(Protocol):
    """Where an index is being made, by one process at a time.

    A part that was kept outlives a kill; nothing is an index before it is finished.
    """

    @property
    def name(self) -> str:
        """What messages call it; no secret is in it."""

    def kept(self) -> Kept:
        """What is there already."""

    def keep(self, passages: Sequence[Passage], rows: Sequence[Row], vectors: HalfVectors) -> None:
        """Keep a part: passages, and the vectors of what stands in them, before any whitening."""

    def parts(self) -> Iterator[HalfVectors]:
        """The vectors of each part, (rows, dim)."""

    def finish(self, recipe: Recipe, whitening: Whitening) -> None:
        """Make the store of all parts."""

    def remove(self) -> None:
        """Leave nothing."""
