"""Batches of sentences, and how sentences are grouped under a budget of tokens."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from elmokit.character_ids import CharacterIndexer, TokenIndexer
from elmokit.errors import InputError
from elmokit.tokenizers import split_on_whitespace
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, Ids

Item = TypeVar("Item")


@dataclass(frozen=True)
class Batch:
    """Sentences as ids, their boundaries included: each distinct word once, and where it stands.

    Example:
        batch = elmokit.Batch.from_sentences([["a", "cat"], ["cats"]], model.pretrained.indexer)
        layers, state = model.bilm(batch)  # layers: (layers, sentences, steps, dim)
    """

    chars: Tensor  # (types, ids of a word), row 0 is padding
    words: Tensor  # (sentences, steps), rows of `chars`; 0 is padding

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], indexer: TokenIndexer) -> "Batch":
        """A batch of the sentences, `<S>` before and `</S>` after each."""
        types, words = index_words([*check_sentences(sentences)])
        ids, _ = indexer.encode(types)
        chars = np.vstack([np.zeros_like(ids[:1]), ids])
        return cls(torch.from_numpy(chars), torch.from_numpy(words))

    @classmethod
    def from_ids(cls, ids: Tensor, indexer: CharacterIndexer) -> "Batch":
        """A batch of character ids without boundaries, (sentences, steps, max_characters)."""
        sentences, steps, max_characters = ids.shape
        num_characters = CharacterIndexer.NUM_CHARACTERS
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < num_characters:
            raise InputError(
                f"ids from {int(ids.min())} to {int(ids.max())}, expected 0 to {num_characters - 1}"
            )
        mask = (ids > 0).any(2)
        lengths = mask.sum(1)
        if not torch.equal(mask, torch.arange(steps, device=ids.device) < lengths[:, None]):
            raise InputError("ids: a padding word stands before a real one; pad at the end only")
        boundaries, _ = indexer.encode([SENTENCE_BEGIN, SENTENCE_END])
        types, rows = torch.cat(
            [
                ids.new_zeros(1, max_characters),
                torch.from_numpy(boundaries).to(ids),
                ids.reshape(-1, max_characters),
            ]
        ).unique(dim=0, return_inverse=True)  # sorted: the row of zeros comes first
        words = rows.new_zeros(sentences, steps + 2)
        words[:, 0] = rows[1]
        words[:, 1:-1] = rows[3:].view(sentences, steps)
        words[torch.arange(sentences, device=ids.device), lengths + 1] = rows[2]
        return cls(types, words)

    @property
    def mask(self) -> Tensor:  # (sentences, steps)
        """True where a word stands, boundaries included."""
        return self.words > 0

    @property
    def lengths(self) -> Tensor:  # (sentences,)
        """Words per sentence, boundaries included."""
        return self.mask.sum(1)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(self.chars.to(device), self.words.to(device))


def index_words(
    sentences: Sequence[Sequence[str]], *, boundaries: bool = True
) -> tuple[list[str], Ids]:
    """The distinct words of sentences, and where they stand: (sentences, steps).

    Words are counted from 1; 0 is padding. `<S>` and `</S>`, always the first two, are added
    before and after each sentence, or not without `boundaries`.
    """
    rows = {SENTENCE_BEGIN: 1, SENTENCE_END: 2}
    for word in dict.fromkeys(chain.from_iterable(sentences)):
        rows.setdefault(word, len(rows) + 1)

    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    words = np.zeros((len(sentences), lengths.max(initial=0) + 2), np.int64)
    words[:, 0] = rows[SENTENCE_BEGIN]
    inner = words[:, 1:-1]
    inner[np.arange(inner.shape[1]) < lengths[:, None]] = np.fromiter(
        map(rows.__getitem__, chain.from_iterable(sentences)), np.int64, lengths.sum()
    )
    if not boundaries:
        return [*rows], inner
    words[np.arange(len(sentences)), lengths + 1] = rows[SENTENCE_END]
    return [*rows], words


# Sentences of one length are looked for among those of so many batches.
_BATCHES_PER_WINDOW = 2


def token_windows(
    items: Iterable[Item], tokens_per_batch: int, num_words: Callable[[Item], int]
) -> Iterator[list[Item]]:
    """Consecutive items of about two batches' tokens, which `token_batches` then sorts by length.

    Items are taken from the iterable as they are needed. Two boundaries are added to the words.
    """
    window: list[Item] = []
    tokens = 0
    for item in items:
        window.append(item)
        tokens += num_words(item) + 2
        if tokens >= _BATCHES_PER_WINDOW * tokens_per_batch:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def token_batches(
    lengths: Sequence[int],
    tokens_per_batch: int,
    *,
    order: Sequence[int] | None = None,
    max_items: int | None = None,
) -> Iterator[list[int]]:
    """Indices of items that are computed together: at most so many tokens, padding included.

    An item that is longer than that is a batch by itself. The items are taken in the given order;
    without one, the longest first.
    """
    if order is None:
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batch: list[int] = []
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if batch and (longest * (len(batch) + 1) > tokens_per_batch or len(batch) == max_items):
            yield batch
            batch, longest = [], lengths[index]
        batch.append(index)
    if batch:
        yield batch


# Shuffled minibatches are of items that are sorted by length among those of so many batches.
_BATCHES_SORTED_TOGETHER = 50


def minibatches(
    lengths: Sequence[int], *, words: int, seed: Sequence[int] | None = None
) -> list[list[int]]:
    """Indices of items: at most `words` words a batch, padding included, or one longer item.

    With a seed, which alone decides the order, batches and items are shuffled.
    """
    if seed is None:
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        return [*token_batches(lengths, words, order=order)]
    random = np.random.default_rng(seed)
    order = random.permutation(len(lengths)).tolist()
    mean = max(1.0, sum(lengths) / max(1, len(lengths)))
    pool_size = max(1, int(_BATCHES_SORTED_TOGETHER * words / mean))
    batches: list[list[int]] = []
    for start in range(0, len(order), pool_size):
        pool = sorted(order[start : start + pool_size], key=lengths.__getitem__)
        batches += token_batches(lengths, words, order=pool)
    return [batches[number] for number in random.permutation(len(batches)).tolist()]


def check_sentences(sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """The words of each sentence; TypeError where something is not a string, by its position.

    What looks like a mistake, such as a string where a list of words is expected, warns once.
    """
    if isinstance(sentences, str):
        raise TypeError("sentences is one string, expected a list of lists of words")
    warned = False
    for index, sentence in enumerate(check_iterable(sentences, "sentences", "lists of words")):
        words, doubt = check_words(sentence, f"sentence {index}")
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
            f"{name} is {describe(sentence)}, expected a list of words{_advice_on(sentence)}"
        )
    words = list(to_python(sentence))
    for index, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(f"{name}, word {index} is {describe(word)}, expected a string")
    if len(words) == 1 and " " in words[0].strip():
        return words, (
            f"{name} is one word with spaces in it ({words[0][:60]!r}): it gets one vector. "
            "Pass a list of words, or give raw text to encode()"
        )
    return words, None


def check_texts(texts: Iterable[str | Sequence[str]]) -> Iterator[str | list[str]]:
    """Texts, raw or as lists of words; TypeError where something else stands, by its position."""
    if isinstance(texts, str):
        raise TypeError("texts is one string, expected a list of texts: [text]")
    for index, text in enumerate(check_iterable(texts, "texts", "a list of texts")):
        if isinstance(text, str):
            yield text
        elif isinstance(text, Iterable):
            yield check_words(text, f"text {index}")[0]
        else:
            raise TypeError(
                f"text {index} is {describe(text)}, expected a string or a list of words"
                f"{_advice_on(text)}"
            )


def check_iterable(values: Iterable[Item], name: str, expected: str) -> Iterable[Item]:
    """The values of a list, or of any other iterable; TypeError for what is not one."""
    is_table = hasattr(values, "columns") or hasattr(values, "column_names")  # pandas; Arrow
    if is_table or isinstance(values, Mapping):
        raise TypeError(
            f"{name} is a table (a {type(values).__name__}), expected {expected}; "
            "give one of its columns: table['text']"
        )
    values = to_python(values)
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} is {describe(values)}, expected {expected}")
    return values


def to_python(values: Iterable[Item]) -> Iterable[Item]:
    """The values as Python's objects: those of pyarrow's arrays are not strings."""
    to_pylist = getattr(values, "to_pylist", None)
    return to_pylist() if callable(to_pylist) else values


def _advice_on(value: object) -> str:
    """What to do about a value that stands for a missing one in tables."""
    nan = isinstance(value, float) and math.isnan(value)
    missing = nan or value is None or type(value).__name__ in ("NAType", "NaTType")  # of pandas
    return "; drop missing values, or fill them with empty ones" if missing else ""


def describe(value: object) -> str:
    """What a value is, for messages: None, an int (3), a Timestamp (…)."""
    if value is None:
        return "None"
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    shown = repr(value)
    return f"{article} {name} ({shown if len(shown) <= 80 else shown[:79] + '…'})"
