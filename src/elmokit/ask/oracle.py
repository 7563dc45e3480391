"""Rows of words become what the top of a reader says of the next one, and that probabilities."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.config import Direction
from elmokit.errors import InputError
from elmokit.model.bilm import State
from elmokit.reading import Reading
from elmokit.text.batch import PlacedWords, place_words
from elmokit.text.vocabulary import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN, Vocabulary

# The mark that a reader starts a sentence with, and the one that it comes to in the end.
START: dict[Direction, str] = {"forward": SENTENCE_BEGIN, "backward": SENTENCE_END}
END: dict[Direction, str] = {"forward": SENTENCE_END, "backward": SENTENCE_BEGIN}


class Oracle:
    """A reading with its softmax and the vocabulary that gives the softmax's rows their names."""

    def __init__(self, reading: Reading) -> None:
        pretrained = reading.pretrained
        if pretrained.model.softmax is None:
            raise InputError(
                "the model has no softmax, so it has vectors but no probabilities; the published "
                "English files leave it out. Take a folder of elmo pretrain, or an HDF5 file with "
                "softmax/W and softmax/b"
            )
        if pretrained.vocabulary is None:
            raise InputError(
                "the model has a softmax, but no vocabulary that names its rows; put the vocab.txt "
                "that it was trained with beside the weights"
            )
        for mark in (SENTENCE_BEGIN, SENTENCE_END):
            if mark not in pretrained.vocabulary:
                raise InputError(
                    f"the vocabulary has no {mark}, which a reader comes to at the end of a "
                    "sentence; is it the vocabulary of this model?"
                )
        self.reading = reading
        self.softmax = pretrained.model.softmax
        self.vocabulary: Vocabulary = pretrained.vocabulary
        self.directions = reading.bilm.config.directions

    def check_direction(self, direction: Direction, what: str) -> None:
        """Refuse what needs a reader that the model does not have."""
        if direction not in self.directions:
            raise InputError(
                f"{what} needs a {direction} reader, but the model has only a "
                f"{self.directions[0]} one"
            )

    def read(
        self, placed: PlacedWords, state: State | None, directions: Sequence[Direction]
    ) -> tuple[dict[Direction, Tensor], State]:
        """What the top layer says after each word, (rows, steps, dim) a direction; and the state.

        A row stands in the order of the text; the backward reader begins at its end.
        """
        config = self.reading.bilm.config
        said, after = self.reading.read(
            placed, state, layers=(config.layers,), directions=directions
        )
        return dict(zip(directions, said[0].split(config.dim, 2), strict=True)), after

    def read_on(
        self, rows: Sequence[Sequence[str]], state: State | None, direction: Direction
    ) -> tuple[Tensor, State]:
        """What the top of one reader says when it has read rows of equal length, and the state."""
        said, after = self.read(place_words(rows, marked=False), state, [direction])
        return said[direction][:, -1 if direction == "forward" else 0], after  # (rows, dim)

    def log_probabilities(self, said: Tensor) -> Tensor:  # (rows, dim) -> (rows, words)
        """The logarithm of the probability of each word of the vocabulary."""
        with self.reading.computing():
            found: Tensor = self.softmax(said)
        return found

    def log_likelihood(
        self, said: Tensor, targets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of the probability of one word each, (tokens, dim) and (tokens,)."""
        with self.reading.computing():
            ids = torch.from_numpy(targets).to(said.device)
            return self.softmax.log_likelihood(said, ids).double().cpu().numpy()

    def ids(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """The rows of words in the softmax, that of `<UNK>` for words that have none."""
        ids = self.vocabulary.ids(words)
        if (ids < 0).any():
            word = words[int((ids < 0).argmax())]
            raise InputError(
                f"{word!r} is not in the vocabulary, which has no {UNKNOWN} to stand for it; "
                "its probability cannot be told"
            )
        return ids

    def rows_of(self, words: Sequence[str]) -> list[int]:
        """The rows of those of the words that have one."""
        return [int(row) for row in self.vocabulary.ids([w for w in words if w in self.vocabulary])]
