"""Raw text becomes sentences of words, by a way that has a name and is stored with a model."""

import re
from functools import lru_cache
from typing import Protocol

from elmokit.errors import ConfigError


class Splitter(Protocol):
    """A way to cut raw text."""

    def words(self, sentence: str) -> list[str]:
        """The words of one sentence."""

    def sentences(self, text: str) -> list[str]:
        """The sentences of a text, still as strings."""


@lru_cache
def splitter(name: str) -> Splitter:
    """The splitter of that name."""
    check_splitter(name)
    if name == "spaces":
        return SpaceSplitter()
    if name == "characters":
        return CharacterSplitter()
    from elmokit.text.moses import MosesSplitter  # noqa: PLC0415  (half a second, rarely needed)

    return MosesSplitter(name.removeprefix("moses").removeprefix("-") or "en")


def check_splitter(name: str) -> None:
    """Refuse a name that no splitter has."""
    if not re.fullmatch("spaces|characters|moses|moses-[a-z]{2,3}", name):
        raise ConfigError(
            f"no splitter is called {name!r}, expected 'moses' (English), 'moses-LANGUAGE' "
            "('moses-de'), 'spaces' or 'characters'"
        )


class SpaceSplitter:
    """Text that is already tokenised: a sentence a line, words between plain spaces and tabs.

    Other white space, such as U+00A0, belongs to its word.
    """

    def words(self, sentence: str) -> list[str]:
        """The words of one sentence."""
        return split_at_spaces(sentence)

    def sentences(self, text: str) -> list[str]:
        """The lines that are not blank."""
        return [line for line in text.split("\n") if line.strip(" \t\r")]


class CharacterSplitter:
    """Each character a word, white space dropped: proteins, Chinese by character."""

    def words(self, sentence: str) -> list[str]:
        """The characters of one sentence."""
        return [character for character in sentence if not character.isspace()]

    def sentences(self, text: str) -> list[str]:
        """The lines that are not blank."""
        return [line for line in text.splitlines() if line.strip()]


def split_at_spaces(text: str) -> list[str]:
    """The words between plain spaces and tabs."""
    return re.findall("[^ \t\r\n]+", text)
