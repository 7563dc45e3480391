"""Raw text becomes words as Moses cuts them, and sentences by rules of the same kind."""

import re
from collections.abc import Iterator

from sacremoses import MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from elmokit.text.chunks import Chunks, Marks
from elmokit.text.split import split_at_spaces


class MosesSplitter:
    """Moses, as the 1-Billion-Word corpus was prepared: punctuation normalised, nothing escaped.

    `didn't` becomes `didn 't`, curly quotes become plain ones.
    """

    def __init__(self, language: str) -> None:
        self._moses = Moses(language)
        self._chunks = Chunks(self._moses.words, self._moses.marks)
        self._ends = SentenceEnds(language)

    def words(self, sentence: str) -> list[str]:
        """The words of one sentence."""
        words = self._chunks.words(sentence)
        return self._moses.words(sentence) if words is None else words

    def sentences(self, text: str) -> list[str]:
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
        return [" ".join(split_at_spaces(s)) for s in sentences if s.strip()]

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
