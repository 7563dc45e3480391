"""The stream of training windows: batch_size texts read side by side.

Ids are those of a corpus' lexicon: 0 is `<S>`, 1 is `</S>`. A sentence of n words makes n + 1 pairs
of what is read and what is to be predicted: `<S>` and the words against the words and `</S>`;
backwards, `</S>` and the reversed words against the reversed words and `<S>`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt

from elmokit.config import Direction

Ids = npt.NDArray[np.int64]
Shuffle = Literal["sentences", "shards", "none"]

BEGIN, END = 0, 1


@dataclass(frozen=True)
class Window:
    """What each lane reads next, and what it is to predict; both (lanes, steps)."""

    inputs: Ids
    targets: Ids

    @property
    def starts(self) -> npt.NDArray[np.bool_]:
        """Where a sentence begins: at a mark, which is never read elsewhere."""
        return self.inputs <= END

    def lanes(self, part: slice) -> "Window":
        """Some of the lanes."""
        return Window(self.inputs[part], self.targets[part])


class Position(TypedDict):
    """Where a stream stands: how many sentences it has taken, and what its lanes hold of them."""

    epoch: int
    shard: int
    sentence: int
    left: list[list[int]]
    read: list[int]


class Stream:
    """Windows of a corpus without end, in one direction.

    A lane takes whole sentences, cut at the window's edge and continued in the next; lanes take
    turns at one row of sentences, as in bilm-tf. Each epoch draws its own order from the seed:
    of the shards, and with `sentences` of the sentences in each.
    """

    def __init__(
        self,
        shards: Sequence[Path],
        *,
        lanes: int,
        steps: int,
        direction: Direction = "forward",
        shuffle: Shuffle = "sentences",
        seed: int = 0,
    ) -> None:
        self._shards, self._steps, self._seed = list(shards), steps, seed
        self._direction, self._shuffle = direction, shuffle
        # The mark that ends a sentence in this direction, and the one it begins with.
        self._last, self._first = (END, BEGIN) if direction == "forward" else (BEGIN, END)
        self._epoch = self._shard = self._sentence = 0
        self._left: list[Ids] = [np.empty(0, np.int64)] * lanes
        self._read: Ids = np.full(lanes, self._last)
        self._sentences = self._run()

    def window(self) -> Window:
        """The next window."""
        targets = np.empty((len(self._left), self._steps), np.int64)
        for lane, row in enumerate(targets):
            filled = 0
            left = self._left[lane]
            while filled < self._steps:
                if not len(left):
                    left = next(self._sentences)
                taken = left[: self._steps - filled]
                row[filled : filled + len(taken)] = taken
                filled += len(taken)
                left = left[len(taken) :]
            self._left[lane] = left
        inputs = np.concatenate([self._read[:, None], targets[:, :-1]], 1)
        inputs[inputs == self._last] = self._first
        self._read = targets[:, -1].copy()
        return Window(inputs, targets)

    def pass_over(self, predictions: int) -> None:
        """Leave out the next sentences: as few as hold so many predictions."""
        while predictions > 0:
            predictions -= len(next(self._sentences))

    @property
    def position(self) -> Position:
        """Where it stands, for another stream of the same corpus to go on from."""
        return Position(
            epoch=self._epoch,
            shard=self._shard,
            sentence=self._sentence,
            left=[left.tolist() for left in self._left],
            read=self._read.tolist(),
        )

    def seek(self, position: Position) -> None:
        """Go on where another stream of the same corpus stood."""
        self._epoch, self._shard = position["epoch"], position["shard"]
        self._sentence = position["sentence"]
        self._left = [np.array(left, np.int64) for left in position["left"]]
        self._read = np.array(position["read"], np.int64)
        self._sentences = self._run()

    def _run(self) -> Iterator[Ids]:
        """Sentences without end, each with the mark that ends it; the position moves along."""
        while True:
            order = self._order(len(self._shards), "shards", "sentences")
            while self._shard < len(order):
                yield from self._run_shard(self._shards[order[self._shard]])
                self._shard, self._sentence = self._shard + 1, 0
            self._epoch, self._shard = self._epoch + 1, 0

    def _run_shard(self, path: Path) -> Iterator[Ids]:
        ids = np.load(path, mmap_mode="r")
        ends = np.flatnonzero(ids == END) + 1
        begins = np.concatenate([[0], ends[:-1]])
        order = self._order(len(ends), "sentences", salt=self._shard + 1)
        while self._sentence < len(order):
            place = order[self._sentence]
            self._sentence += 1
            sentence = ids[begins[place] : ends[place]].astype(np.int64)
            if self._direction == "backward":
                sentence = np.append(sentence[-2::-1], BEGIN)
            yield sentence

    def _order(self, count: int, *ways: Shuffle, salt: int = 0) -> Ids:
        if self._shuffle not in ways:
            return np.arange(count)
        return np.random.default_rng([self._seed, self._epoch, salt]).permutation(count)
