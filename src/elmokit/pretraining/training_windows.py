"""The stream of training windows: batch_size rows of text, read side by side.

Ids are those of a corpus' lexicon: 0 is `<S>`, 1 is `</S>`. A sentence of n words makes n + 1 pairs
of an input and a target: `<S>` and the words against the words and `</S>`; backwards, `</S>` and
the reversed words against the reversed words and `<S>`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt

from elmokit.errors import ConfigError
from elmokit.model_config import Direction

Ids = npt.NDArray[np.int64]
Shuffle = Literal["sentences", "shards", "none"]

BEGIN, END = 0, 1


@dataclass(frozen=True)
class Window:
    """The inputs and targets of a step; both (batch_size, sequence_length)."""

    inputs: Ids
    targets: Ids

    @property
    def starts(self) -> npt.NDArray[np.bool_]:
        """Where a sentence starts: `<S>` and `</S>` are inputs nowhere else."""
        return self.inputs <= END

    def rows(self, rows: slice) -> "Window":
        return Window(self.inputs[rows], self.targets[rows])


class Position(TypedDict):
    """Where a stream is: the next sentence, and what its rows have left of theirs."""

    epoch: int
    shard: int
    sentence: int
    remaining: list[list[int]]
    last_ids: list[int]


class Stream:
    """An endless stream of windows of a corpus, in one direction.

    A row takes whole sentences, cut at the end of a window and continued in the next; rows take
    turns at one sequence of sentences, as in bilm-tf. Each epoch draws its own order from the seed:
    of the shards, and with `sentences` of the sentences in each.

    `part` is the number of this stream and of all streams that share the text. Each has as many
    shards of its own as any other; of those that are left, each reads its own sentences.
    """

    def __init__(
        self,
        shards: Sequence[Path],
        *,
        batch_size: int,
        sequence_length: int,
        direction: Direction = "forward",
        shuffle: Shuffle = "sentences",
        seed: int = 0,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        number, self._parts = part
        divided = len(shards) // self._parts * self._parts
        whole = [(shard, slice(None)) for shard in shards[number : divided : self._parts]]
        shared = [
            (shard, slice((number + turn) % self._parts, None, self._parts))
            for turn, shard in enumerate(shards[divided:])
        ]
        self._shards = whole + shared  # each with the stream's own sentences of it
        self._sequence_length, self._seed = sequence_length, seed
        self._direction, self._shuffle = direction, shuffle
        # The token that ends a sentence in this direction, and the one that starts it.
        self._end, self._start = (END, BEGIN) if direction == "forward" else (BEGIN, END)
        self._epoch = self._shard = self._sentence = 0
        self._remaining: list[Ids] = [np.empty(0, np.int64)] * batch_size
        self._last_ids: Ids = np.full(batch_size, self._end)
        self._sentences = self._read_sentences()

    def next_window(self) -> Window:
        targets = np.empty((len(self._remaining), self._sequence_length), np.int64)
        for row, row_targets in enumerate(targets):
            filled = 0
            remaining = self._remaining[row]
            while filled < self._sequence_length:
                if not len(remaining):
                    remaining = next(self._sentences)
                taken = remaining[: self._sequence_length - filled]
                row_targets[filled : filled + len(taken)] = taken
                filled += len(taken)
                remaining = remaining[len(taken) :]
            self._remaining[row] = remaining
        inputs = np.concatenate([self._last_ids[:, None], targets[:, :-1]], 1)
        inputs[inputs == self._end] = self._start
        self._last_ids = targets[:, -1].copy()
        return Window(inputs, targets)

    def skip(self, epochs: float) -> None:
        """Skip as few sentences as have so large a part of the text's predictions."""
        tokens = sum(
            len(np.load(path, mmap_mode="r")) / (own.step or 1) for path, own in self._shards
        )
        predictions = int(epochs * tokens)
        while predictions > 0:
            predictions -= len(next(self._sentences))

    @property
    def position(self) -> Position:
        """The position, for `seek` of another stream of the same corpus."""
        return Position(
            epoch=self._epoch,
            shard=self._shard,
            sentence=self._sentence,
            remaining=[ids.tolist() for ids in self._remaining],
            last_ids=self._last_ids.tolist(),
        )

    def seek(self, position: Position) -> None:
        """Continue at the position of another stream of the same corpus."""
        self._epoch, self._shard = position["epoch"], position["shard"]
        self._sentence = position["sentence"]
        self._remaining = [np.array(ids, np.int64) for ids in position["remaining"]]
        self._last_ids = np.array(position["last_ids"], np.int64)
        self._sentences = self._read_sentences()

    def _read_sentences(self) -> Iterator[Ids]:
        """Endless sentences, each with the token that ends it; the position moves along."""
        while True:
            order = self._order(len(self._shards), "shards", "sentences")
            is_empty = self._shard == self._sentence == 0
            while self._shard < len(order):
                for sentence in self._read_shard(*self._shards[order[self._shard]]):
                    is_empty = False
                    yield sentence
                self._shard, self._sentence = self._shard + 1, 0
            if is_empty and self._epoch == 0:
                raise ConfigError(
                    f"micro_batches is {self._parts}, more than the text has "
                    "sentences for; each micro-batch reads its own"
                )
            self._epoch, self._shard = self._epoch + 1, 0

    def _read_shard(self, path: Path, own_sentences: slice) -> Iterator[Ids]:
        ids = np.load(path, mmap_mode="r")
        ends = np.flatnonzero(ids == END) + 1
        starts = np.concatenate([[0], ends[:-1]])[own_sentences]
        ends = ends[own_sentences]
        order = self._order(len(ends), "sentences", salt=self._shard + 1)
        while self._sentence < len(order):
            index = order[self._sentence]
            self._sentence += 1
            sentence = ids[starts[index] : ends[index]].astype(np.int64)
            if self._direction == "backward":
                sentence = np.append(sentence[-2::-1], BEGIN)
            yield sentence

    def _order(self, count: int, *shuffled_by: Shuffle, salt: int = 0) -> Ids:
        """A random order if the setting `shuffle` is one of `shuffled_by`."""
        if self._shuffle not in shuffled_by:
            return np.arange(count)
        return np.random.default_rng([self._seed, self._epoch, salt]).permutation(count)
