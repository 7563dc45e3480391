"""Chunks between spaces become words as Moses cuts them, each distinct chunk cut once."""

import re
from collections.abc import Callable
from dataclasses import dataclass

Words = list[str] | None  # None: only Moses can tell, from the whole sentence


@dataclass(frozen=True)
class Marks:
    """What Moses' rules for a language say of characters and words."""

    letters: str  # and digits, as the inside of a [class]
    small: frozenset[str]
    abbreviations: frozenset[str]  # that keep their stop
    before_numbers: frozenset[str]  # that keep it before a number
    stops_enter_quotes: bool  # `".` becomes `."`, as in English
    stops_leave_quotes: bool  # `."` becomes `".`, as in German, if something follows


class Chunks:
    """A sentence becomes the words of its chunks, where these do not depend on one another.

    Few of Moses' rules look across a space. A chunk to which they could apply leaves its sentence
    to Moses. The words of any other depend on the chunk alone, unless it is the last, which rules
    see by the end of the text, or ends in a full stop: then also on whether the next begins with
    a small letter or a digit. So a chunk has the words that Moses gives it between two words of no
    interest; they are kept, and most chunks are so plain that Moses need not be asked.
    """

    # Moses pulls these to what stands before them, or takes the space before them with them.
    _JOINING = frozenset(")%:;.!?,'`´‘‚’…")
    _NORMAL = str.maketrans({**dict.fromkeys("„“”«»", '"'), "–": "-", "—": " - "})
    _KEPT, _LONGEST_KEPT = 2**17, 64  # chunks, characters

    def __init__(self, moses: Callable[[str], list[str]], marks: Marks) -> None:
        self._moses, self._marks = moses, marks
        self._inner: dict[str, Words] = {}
        self._last: dict[str, Words] = {}
        self._plain = re.compile(r"([^\s\0-\37.,'`´‘‚’…]+)([,.]?)")
        self._word = re.compile(rf"[{marks.letters}\-]+|\S")
        self._lettered = re.compile(rf"[{marks.letters}\-]")
        self._unsure = re.compile(
            r"""[\0-\37]|^\s|\s$|\($|^["„“”«»][,.]"""
            + (rf"|\.[^{marks.letters}]+$" if marks.stops_leave_quotes else "")
        )

    def words(self, sentence: str) -> Words:
        """The words of a sentence, or None where only Moses can tell."""
        chunks = sentence.split(" ")
        inner, words = self._inner, list[str]()
        for place, chunk in enumerate(chunks[:-1], 1):
            key = f"{chunk} {self._start_of(chunks[place])}" if chunk[-1:] == "." else chunk
            try:
                found = inner[key]
            except KeyError:
                found = self._keep(inner, key, self._cut(*key.split(" ")))
            if found is None:
                return None
            words += found
        try:
            found = self._last[chunks[-1]]
        except KeyError:
            found = self._keep(self._last, chunks[-1], self._cut(chunks[-1], ""))
        return None if found is None else words + found

    def _start_of(self, chunk: str) -> str:
        """A word that the rules for a full stop before it cannot tell from this chunk."""
        if chunk[:1] in self._marks.small:
            return "a"
        return "0" if "0" <= chunk[:1] <= "9" else "A"

    def _keep(self, kept: dict[str, Words], key: str, words: Words) -> Words:
        if len(kept) >= self._KEPT:
            kept.clear()
        if len(key) <= self._LONGEST_KEPT:
            kept[key] = words
        return words

    def _cut(self, chunk: str, following: str = "A") -> Words:
        """The words of a chunk before such a word, or before nothing."""
        if not chunk or chunk[0] in self._JOINING or self._unsure.search(chunk):
            return None
        if (plain := self._plain.fullmatch(chunk)) and "MULTI" not in chunk:  # DOTMULTI is ...
            return self._cut_plain(plain[1].translate(self._NORMAL), plain[2], following)
        if following:
            return self._moses(f"A {chunk} {following}")[1:-1]
        return self._moses(f"A {chunk}")[1:]

    def _cut_plain(self, body: str, end: str, following: str) -> list[str]:
        """The words of a chunk without stop, comma or apostrophe but at its end.

        A run of letters, digits and hyphens is a word, and so is every other character.
        """
        after: list[str] = []
        if end and body[-1] == '"' and self._marks.stops_enter_quotes:
            body, after, following = body[:-1], ['"'], '"'
        words: list[str] = self._word.findall(body)
        if end == "." and not body[-1].isspace() and self._keeps_stop(words[-1], following):
            words[-1] += end
        elif end:
            words.append(end)
        return words + after

    def _keeps_stop(self, word: str, following: str) -> bool:
        """Whether `word.` stays one word; of what has no letters it never does."""
        return self._lettered.match(word) is not None and (
            word in self._marks.abbreviations
            or following == "a"
            or (following == "0" and word in self._marks.before_numbers)
        )
