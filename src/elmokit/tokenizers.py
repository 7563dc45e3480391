"""Tokenizers: raw text to sentences of words, each by the name that is stored with a model."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from sacremoses import MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from elmokit.errors import ConfigError


class Tokenizer(Protocol):
    """A way to cut raw text."""

    def tokenize(self, sentence: str) -> list[str]:
        """The words of one sentence."""

    def split_sentences(self, text: str) -> list[str]:
        """The sentences of a text, still as strings."""


@lru_cache
def get_tokenizer(name: str) -> Tokenizer:
    """The splitter of that name."""
    check_tokenizer(name)
    if name == "spaces":
        return WhitespaceTokenizer()
    if name == "characters":
        return CharacterTokenizer()
    from elmokit.tokenizers import MosesSplitter  # noqa: PLC0415  (half a second, rarely needed)

    return MosesSplitter(name.removeprefix("moses").removeprefix("-") or "en")


def check_tokenizer(name: str) -> None:
    """Refuse a name that no splitter has."""
    if not re.fullmatch("spaces|characters|moses|moses-[a-z]{2,3}", name):
        raise ConfigError(
            f"no tokenizer is called {name!r}, expected 'moses' (English), 'moses-LANGUAGE' "
            "('moses-de'), 'spaces' or 'characters'"
        )


class WhitespaceTokenizer:
    """Text that is already tokenised: a sentence a line, words between plain spaces and tabs.

    Other white space, such as U+00A0, belongs to its word.
    """

    def tokenize(self, sentence: str) -> list[str]:
        """The words of one sentence."""
        return split_on_whitespace(sentence)

    def split_sentences(self, text: str) -> list[str]:
        """The lines that are not blank."""
        return [line for line in text.split("\n") if line.strip(" \t\r")]


class CharacterTokenizer:
    """Each character a word, white space dropped: proteins, Chinese by character."""

    def tokenize(self, sentence: str) -> list[str]:
        """The characters of one sentence."""
        return [character for character in sentence if not character.isspace()]

    def split_sentences(self, text: str) -> list[str]:
        """The lines that are not blank."""
        return [line for line in text.splitlines() if line.strip()]


def split_on_whitespace(text: str) -> list[str]:
    """The words between plain spaces and tabs."""
    return re.findall("[^ \t\r\n]+", text)


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


class MosesSplitter:
    """Moses, as the 1-Billion-Word corpus was prepared: punctuation normalised, nothing escaped.

    `didn't` becomes `didn 't`, curly quotes become plain ones.
    """

    def __init__(self, language: str) -> None:
        self._moses = Moses(language)
        self._chunks = Chunks(self._moses.words, self._moses.marks)
        self._ends = SentenceEnds(language)

    def tokenize(self, sentence: str) -> list[str]:
        """The words of one sentence."""
        words = self._chunks.words(sentence)
        return self._moses.words(sentence) if words is None else words

    def split_sentences(self, text: str) -> list[str]:
        """The sentences of a text, still as strings."""
        return self._ends.split(text)


class Moses:
    """The rules themselves, one substitution after another over the whole sentence."""

    def __init__(self, language: str) -> None:
        self._normalizer = MosesPunctNormalizer(lang=language)
        self._tokenizer = MosesTokenizer(lang=language)
        before_numbers = frozenset(self._tokenizer.NUMERIC_ONLY_PREFIXES)
        self.marks = Marks(
            letters=self._tokenizer.IsAlnum,
            small=frozenset(self._tokenizer.IsLower),
            abbreviations=frozenset(self._tokenizer.NONBREAKING_PREFIXES) - before_numbers,
            before_numbers=before_numbers,
            stops_enter_quotes=language == "en",
            stops_leave_quotes=language in ("de", "es", "fr"),
        )

    def words(self, sentence: str) -> list[str]:
        """The words of one sentence."""
        words: list[str] = self._tokenizer.tokenize(
            self._normalizer.normalize(sentence), escape=False
        )
        return words


class SentenceEnds:
    """Where sentences end: at . ! ? before what is no small letter, and at every 。！？ of Chinese.

    A full stop after an abbreviation (Moses' list for the language) or an initial ends nothing.
    """

    _LATIN = re.compile(
        r"""(?<![.!?…؟।॥])(?P<stop>[.!?…؟।॥]+)["'”’»)\]]*\s+(?P<next>["'“‘«(\[¿¡]*\w)"""
    )
    _CHINESE = re.compile(r"[。！？]+[”’」』）]*")

    def __init__(self, language: str) -> None:
        try:
            listed = list(NonbreakingPrefixes().words(language))
        except OSError:
            listed = []  # Moses has no list for this language: only initials are abbreviations
        self._before_numbers = {word.split(" ")[0] for word in listed if "#NUMERIC_ONLY#" in word}
        self._abbreviations = {word for word in listed if "#NUMERIC_ONLY#" not in word}

    def split(self, text: str) -> list[str]:
        """The sentences of a text; a blank line ends a sentence too."""
        sentences = []
        for paragraph in re.split(r"\n\s*\n", text):
            start = 0
            for end in self._ends(paragraph):
                sentences.append(paragraph[start:end])
                start = end
            sentences.append(paragraph[start:])
        return [" ".join(split_on_whitespace(s)) for s in sentences if s.strip()]

    def _ends(self, text: str) -> Iterator[int]:
        ends = [match.end() for match in self._CHINESE.finditer(text)]
        for match in self._LATIN.finditer(text):
            following = match["next"][-1]
            if following.islower():
                continue
            before = text[max(0, match.start() - 40) : match.start()]
            if match["stop"] == "." and self._abbreviates(before, following):
                continue
            ends.append(match.start("next"))
        yield from sorted(ends)

    def _abbreviates(self, before: str, following: str) -> bool:
        word = re.split(r"[\s(\[\"“]", before)[-1].lstrip("'‘")
        if word in self._before_numbers:
            return following.isdigit()
        # U.S., e.g. and initials: a single letter before the stop, alone or after another stop.
        inner = word.rsplit(".", 1)[-1]
        return word in self._abbreviations or (len(inner) == 1 and inner.isalpha())
