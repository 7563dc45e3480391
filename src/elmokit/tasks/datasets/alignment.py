"""Alignment of tokens with the raw text they were cut from, even if the tokenizer changed some."""

from collections.abc import Sequence
from itertools import chain

Offsets = tuple[int, int]  # the first character, and the one after the last

_AGREEING = 6  # so many characters that agree end a stretch that was changed
_LONGEST_CHANGE = 60  # characters of one changed stretch, at most


def align(words: Sequence[str], text: str) -> list[Offsets] | None:
    """Where each word starts and ends in a text, or None if the words are not from that text.

    White space may be anywhere. The tokenizer may have changed, swapped, added or dropped some
    characters (Moses writes curly quotes as straight ones). Such a stretch ends at the nearest
    point where both agree again, and its words share it. A word that was added has no characters.
    """
    positions = [position for position, character in enumerate(text) if not character.isspace()]
    text_characters = "".join(text[position] for position in positions)
    word_characters = "".join(chain.from_iterable(word.split() for word in words))
    stretches = _align_characters(word_characters, text_characters)
    if stretches is None:
        return None
    positions.append(len(text))
    aligned, start = [], 0
    for word in words:
        own = stretches[start : start + len("".join(word.split()))]
        start += len(own)
        own = [stretch for stretch in own if stretch[0] < stretch[1]] or own[:1]
        if not own:
            return None  # a word of white space
        first, end = own[0][0], own[-1][1]
        last_end = positions[end - 1] + 1 if end > first else positions[first]
        aligned.append((positions[first], last_end))
    return aligned


def words_overlapping(offsets: Sequence[Offsets], start: int, end: int) -> list[int]:
    """The words that share a character with text[start:end]."""
    return [word for word, own in enumerate(offsets) if own[0] < end and own[1] > start]


def _align_characters(ours: str, theirs: str) -> list[Offsets] | None:
    """For each character of `ours`, the stretch of `theirs` that corresponds to it."""
    stretches: list[Offsets] = []
    i = j = 0
    while i < len(ours) or j < len(theirs):
        if i < len(ours) and j < len(theirs) and ours[i] == theirs[j]:
            stretches.append((j, j + 1))
            i, j = i + 1, j + 1
            continue
        window = _LONGEST_CHANGE + _AGREEING
        changed = _changed_lengths(ours[i : i + window], theirs[j : j + window])
        if changed is None:
            return None
        own_length, other_length = changed
        for k in range(own_length):
            first = k * other_length // own_length
            end = max((k + 1) * other_length // own_length, min(first + 1, other_length))
            stretches.append((j + first, j + end))
        i, j = i + own_length, j + other_length
    return stretches


def _changed_lengths(ours: str, theirs: str) -> tuple[int, int] | None:
    """How many characters of each to skip, as few as possible, until both agree again."""
    for total in range(1, 2 * _LONGEST_CHANGE + 1):
        # Equal lengths first: one character replaced by another is the commonest change.
        for own in sorted(range(total + 1), key=lambda own: abs(2 * own - total)):
            other = total - own
            if own > min(len(ours), _LONGEST_CHANGE) or other > min(len(theirs), _LONGEST_CHANGE):
                continue
            if ours[own : own + _AGREEING] == theirs[other : other + _AGREEING]:
                return own, other
    return None
