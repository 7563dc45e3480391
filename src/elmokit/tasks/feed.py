"""A task's text becomes the sentences that a biLM is fed: cut, and spelled as its own text was."""

from collections.abc import Iterable
from dataclasses import dataclass

from elmokit.tasks.data.trees import SIGNS

Words = tuple[str, ...]

PLAIN_QUOTES = str.maketrans("“”„«»‘’‚´`", '"' * 5 + "'" * 5)

_ENDS = frozenset(".!?。！？؟।॥")
_CLOSES = frozenset(["''", *"\"'”’»)]}」』）】》"])
# What treebanks write, and what is left of it where Moses has been.
_MOSES = SIGNS | {"—": "-", "--": "-", "…": "..."}
_MOSES_LETTERS = PLAIN_QUOTES | {ord("–"): ord("-")}


@dataclass(frozen=True)
class Feed:
    """How a biLM is fed: whole texts or sentence by sentence; and how its own text was split."""

    by_sentence: bool
    split: str

    def __call__(self, text: Words) -> list[Words]:
        """The sentences of a text, of as many words in all."""
        sentences = cut_text(text) if self.by_sentence else [text]
        if not self.split.startswith("moses"):
            return sentences
        return [spell_as_moses(words) for words in sentences]

    def sentences(self, texts: Iterable[Words]) -> list[Words]:
        """The sentences of all texts, each once."""
        return list(dict.fromkeys(words for text in texts for words in self(text)))


def cut_text(words: Words) -> list[Words]:
    """The sentences of a text: cut after . ! ? and what closes there, quotes and brackets.

    Of straight quotes, every second one closes.
    """
    found, first, ended, quoted = [], 0, False, False
    for place, word in enumerate(words):
        ends, closes = word in _ENDS, word in _CLOSES
        if word == '"':
            closes, quoted = quoted, not quoted
        if ended and not (ends or closes):
            found.append(words[first:place])
            first = place
        ended = ends or (ended and closes)
    rest = words[first:]
    if found and all(word in _CLOSES for word in rest):  # it was opened before this text
        return [*found[:-1], found[-1] + rest]
    return [*found, rest]


def spell_as_moses(words: Words) -> Words:
    """The same words as Moses writes them: do n't is don 't, quotes and dashes are plain.

    A biLM of such text has never met a treebank's way; there are as many words after it.
    """
    found = [_MOSES.get(word, word.translate(_MOSES_LETTERS)) for word in words]
    for place, word in enumerate(found[1:], 1):
        if word.lower() == "n't":
            found[place - 1] += word[0]
            found[place] = word[1:]
    return tuple(found)
