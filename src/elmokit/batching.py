"""Batches of sentences, and how sentences are grouped under a budget of tokens."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.tokenizers import split_on_whitespace
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, CharacterIndexer, Ids, TokenIndexer


@dataclass(frozen=True)
class Batch:
    """Sentences as ids, their boundaries included. Row 0 of `chars` and place 0 are padding."""

    chars: Tensor  # (types, width)
    words: Tensor  # (sentences, steps)

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], alphabet: TokenIndexer) -> "Batch":
        """A batch of the sentences, `<S>` before and `</S>` after each."""
        placed = place_words([*check_sentences(sentences)])
        rows, _ = alphabet.encode(placed.types)
        chars = np.vstack([np.zeros((1, alphabet.max_characters), np.int64), rows])
        return cls(torch.from_numpy(chars), torch.from_numpy(placed.words))

    @classmethod
    def from_ids(cls, ids: Tensor, alphabet: CharacterIndexer) -> "Batch":
        """A batch of character ids without boundaries, (sentences, steps, width); 0 is padding."""
        sentences, steps, width = ids.shape
        if (
            ids.numel()
            and not 0 <= int(ids.min()) <= int(ids.max()) < CharacterIndexer.NUM_CHARACTERS
        ):
            raise InputError(
                f"ids from {int(ids.min())} to {int(ids.max())}, "
                f"expected 0 to {CharacterIndexer.NUM_CHARACTERS - 1}"
            )
        real = (ids > 0).any(2)
        lengths = real.sum(1)
        if not torch.equal(real, torch.arange(steps, device=ids.device) < lengths[:, None]):
            raise InputError("ids: a padding word stands before a real one; pad at the end only")
        marks, _ = alphabet.encode([SENTENCE_BEGIN, SENTENCE_END])
        types, places = torch.cat(
            [
                ids.new_zeros(1, width),
                torch.from_numpy(marks).to(ids),
                ids.reshape(-1, width),
            ]
        ).unique(dim=0, return_inverse=True)  # sorted: the row of zeros comes first
        words = places.new_zeros(sentences, steps + 2)
        words[:, 0] = places[1]
        words[:, 1:-1] = places[3:].view(sentences, steps)
        words[torch.arange(sentences, device=ids.device), lengths + 1] = places[2]
        return cls(types, words)

    @property
    def mask(self) -> Tensor:  # (sentences, steps)
        """True where a word stands, boundaries included."""
        return self.words > 0

    @property
    def lengths(self) -> Tensor:  # (sentences,)
        """Words a sentence, boundaries included."""
        return self.mask.sum(1)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(self.chars.to(device), self.words.to(device))


@dataclass(frozen=True)
class PlacedWords:
    """Distinct words, and where they stand: `types[place - 1]`; place 0 is padding."""

    types: list[str]
    words: Ids  # (sentences, steps)


def place_words(sentences: Sequence[Sequence[str]], *, marked: bool = True) -> PlacedWords:
    """Each distinct word once, `<S>` and `</S>` first and second, and the places of all.

    Where sentences are not `marked`, the boundaries stand only where the sentences have them.
    """
    places = {SENTENCE_BEGIN: 1, SENTENCE_END: 2}
    for word in dict.fromkeys(chain.from_iterable(sentences)):
        places.setdefault(word, len(places) + 1)

    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    words = np.zeros((len(sentences), lengths.max(initial=0) + 2), np.int64)
    words[:, 0] = places[SENTENCE_BEGIN]
    inner = words[:, 1:-1]
    inner[np.arange(inner.shape[1]) < lengths[:, None]] = np.fromiter(
        map(places.__getitem__, chain.from_iterable(sentences)), np.int64, lengths.sum()
    )
    if not marked:
        return PlacedWords(list(places), inner)
    words[np.arange(len(sentences)), lengths + 1] = places[SENTENCE_END]
    return PlacedWords(list(places), words)


def check_sentences(sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """The words of each sentence; TypeError where something is not a string, by its place.

    What may be a mistake, a whole sentence where words were expected, warns once.
    """
    if isinstance(sentences, str):
        raise TypeError("sentences is one string, expected a list of lists of words")
    warned = False
    for place, sentence in enumerate(sentences):
        words, doubt = check_words(sentence, f"sentence {place}")
        if doubt and not warned:
            warnings.warn(doubt, stacklevel=3)
            warned = True
        yield words


def check_words(sentence: Sequence[str], name: str) -> tuple[list[str], str | None]:
    """The words of a sentence, and a doubt about them, if there is one."""
    if isinstance(sentence, str):
        return split_on_whitespace(sentence), (
            f"{name} is one string, not a list of words: it is split at its spaces. "
            "Pass a list of words, or give raw text to encode()"
        )
    if not isinstance(sentence, Iterable):
        raise TypeError(
            f"{name} is a {type(sentence).__name__} ({sentence!r}), expected a list of words"
        )
    words = list(sentence)
    for place, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(
                f"{name}, word {place} is a {type(word).__name__} ({word!r}), expected a string"
            )
    if len(words) == 1 and " " in words[0].strip():
        return words, (
            f"{name} is one word with spaces in it ({words[0][:60]!r}): it gets one vector. "
            "Pass a list of words, or give raw text to encode()"
        )
    return words, None


# So many batches are planned together: enough to find sentences of one length.
_BATCHES_PER_WINDOW = 2


Sentence = TypeVar("Sentence")


def in_windows(
    sentences: Iterable[Sentence], tokens_per_batch: int, words: Callable[[Sentence], int]
) -> Iterator[list[Sentence]]:
    """Runs of sentences that are planned together; `words` counts a sentence's words."""
    window: list[Sentence] = []
    tokens = 0
    for sentence in sentences:
        window.append(sentence)
        tokens += words(sentence) + 2
        if tokens >= _BATCHES_PER_WINDOW * tokens_per_batch:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def in_batches(window: list[list[str]], tokens_per_batch: int) -> Iterator[list[int]]:
    """Places of sentences of about one length, as many together as the budget allows."""
    longest_first = sorted(range(len(window)), key=lambda place: -len(window[place]))
    start = 0
    while start < len(window):
        longest = len(window[longest_first[start]]) + 2
        count = max(1, tokens_per_batch // longest)
        yield longest_first[start : start + count]
        start += count
