"""Mentions become what each two have in common; chances of antecedents become groups."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.tasks.data.example import Document
from elmokit.tasks.lexicon import key_of

Mention = tuple[int, int]  # its first and last words

_BUCKETS = torch.tensor([1, 2, 3, 4, 5, 8, 16, 32, 64])
DISTANCES = len(_BUCKETS) + 1
SPELLINGS = 4


def distances(count: int) -> Tensor:  # (count, count), of 0 to DISTANCES - 1
    """How many mentions each is after each, roughly."""
    place = torch.arange(count)
    return torch.bucketize((place[:, None] - place).clamp(min=0), _BUCKETS)


def spelled_alike(document: Document, mentions: Sequence[Mention]) -> Tensor:
    """For each two mentions 3 if they are the same words, 2 if they end in the same word, 1 if one
    has the last word of the other, else 0: (mentions, mentions).

    No name of a new text was learnt from; that two are the same name must be seen.
    """
    words = [key_of(word) for sentence in document.sentences for word in sentence]
    texts = [tuple(words[first : last + 1]) for first, last in mentions]
    ends = [text[-1] for text in texts]
    number = {word: place for place, word in enumerate(dict.fromkeys(ends))}
    has = torch.zeros(len(mentions), len(number), dtype=torch.bool)
    for row, text in zip(has, texts, strict=True):
        row[[number[word] for word in text if word in number]] = True
    has = has[:, [number[word] for word in ends]]  # whether one has the last word of the other
    return (has | has.t()).long() + _same(ends) + _same(texts)


def _same(keys: Sequence[object]) -> Tensor:  # (keys, keys)
    """Whether each two are the same."""
    number = {key: place for place, key in enumerate(keys)}
    numbers = torch.tensor([number[key] for key in keys])
    return numbers[:, None] == numbers


def group(chances: Sequence[Sequence[float]], places: Sequence[Sequence[int]]) -> list[list[int]]:
    """Mentions, by number, that stand for the same; each group has two or more.

    A row of `chances` is that of no antecedent, and those of the mentions in `places`. As in
    learning any mention of a group will do, so what speaks for each of them is added up.
    """
    first = list(range(len(chances)))  # the first mention of each one's group
    for number, ((none, *each), earlier) in enumerate(zip(chances, places, strict=True)):
        if none > 0.5:  # it is likelier that there was no mention before than any
            continue
        speaks: dict[int, float] = {}
        for place, chance in zip(earlier, each, strict=True):
            speaks[first[place]] = speaks.get(first[place], 0.0) + chance
        first[number] = max(speaks, key=speaks.__getitem__)
    groups: dict[int, list[int]] = {}
    for number, place in enumerate(first):
        groups.setdefault(place, []).append(number)
    return [found for found in groups.values() if len(found) > 1]
