"""Words become the places in the text that they were cut from, even where they were changed."""

from collections.abc import Sequence
from itertools import chain

Place = tuple[int, int]  # the first character, and the one after the last

_SURE = 6  # so many characters that agree end a stretch that was changed
_FURTHEST = 60  # characters that may be changed in one stretch


def align(words: Sequence[str], text: str) -> list[Place] | None:
    """Where each word starts and ends in a text, or None where the words are not of that text.

    White space may stand anywhere. A tokeniser may have changed, swapped, added or left out some
    characters (Moses makes curly quotes plain): then the nearest place where both agree again ends
    the stretch, and its words share it. A word that was added has a place without characters.
    """
    at = [place for place, character in enumerate(text) if not character.isspace()]
    there = "".join(text[place] for place in at)
    here = "".join(chain.from_iterable(word.split() for word in words))
    places = _places(here, there)
    if places is None:
        return None
    at.append(len(text))
    aligned, start = [], 0
    for word in words:
        own = places[start : start + len("".join(word.split()))]
        start += len(own)
        own = [place for place in own if place[0] < place[1]] or own[:1]
        if not own:
            return None  # a word of white space
        first, end = own[0][0], own[-1][1]
        aligned.append((at[first], at[end - 1] + 1 if end > first else at[first]))
    return aligned


def _places(here: str, there: str) -> list[Place] | None:
    """For each character of `here`, the stretch of `there` that it stands for."""
    places: list[Place] = []
    i = j = 0
    while i < len(here) or j < len(there):
        if i < len(here) and j < len(there) and here[i] == there[j]:
            places.append((j, j + 1))
            i, j = i + 1, j + 1
            continue
        changed = _changed(here[i : i + _FURTHEST + _SURE], there[j : j + _FURTHEST + _SURE])
        if changed is None:
            return None
        ours, theirs = changed
        for k in range(ours):
            first, end = k * theirs // ours, (k + 1) * theirs // ours
            places.append((j + first, j + max(end, min(first + 1, theirs))))
        i, j = i + ours, j + theirs
    return places


def _changed(here: str, there: str) -> tuple[int, int] | None:
    """How many characters of each go by before both agree again, as few as can be."""
    for total in range(1, 2 * _FURTHEST + 1):
        # From the middle: a character for a character is what happens most.
        for ours in sorted(range(total + 1), key=lambda ours: abs(2 * ours - total)):
            theirs = total - ours
            if ours > min(len(here), _FURTHEST) or theirs > min(len(there), _FURTHEST):
                continue
            if here[ours : ours + _SURE] == there[theirs : theirs + _SURE]:
                return ours, theirs
    return None
