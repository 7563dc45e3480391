"""Preparation of a task's text for a biLM: sentences split, words spelled as in its own text."""

from collections.abc import Iterable
from dataclasses import dataclass

from elmokit.tasks.datasets.example_records import Words
from elmokit.tasks.datasets.text_tables import PENN_TREEBANK_SYMBOLS

STRAIGHT_QUOTES = str.maketrans("“”„«»‘’‚´`", '"' * 5 + "'" * 5)

_SENTENCE_ENDS = frozenset(".!?。！？؟।॥")
_CLOSING = frozenset(["''", *"\"'”’»)]}」』）】》"])
# What treebanks write, and what Moses makes of the same text.
_MOSES_WORDS = PENN_TREEBANK_SYMBOLS | {"—": "-", "--": "-", "…": "..."}
_MOSES_CHARACTERS = STRAIGHT_QUOTES | {ord("–"): ord("-")}


@dataclass(frozen=True)
class Preprocessor:
    """How texts are passed to a biLM: sentence by sentence or not, and in which spelling."""

    by_sentence: bool
    tokenizer: str  # that of the text that the biLM was trained on

    def __call__(self, text: Words) -> list[Words]:
        """The sentences of a text; together they have as many words."""
        sentences = split_into_sentences(text) if self.by_sentence else [text]
        if not self.tokenizer.startswith("moses"):
            return sentences
        return [spell_as_moses(words) for words in sentences]

    def distinct_sentences(self, texts: Iterable[Words]) -> list[Words]:
        """The sentences of all texts, each once."""
        return list(dict.fromkeys(words for text in texts for words in self(text)))


def split_into_sentences(words: Words) -> list[Words]:
    """The sentences of a tokenized text: split after . ! ? and closing quotes and brackets.

    Every second straight quote is a closing one.
    """
    sentences, first, ended, in_quotes = [], 0, False, False
    for position, word in enumerate(words):
        ends, closes = word in _SENTENCE_ENDS, word in _CLOSING
        if word == '"':
            closes, in_quotes = in_quotes, not in_quotes
        if ended and not (ends or closes):
            sentences.append(words[first:position])
            first = position
        ended = ends or (ended and closes)
    rest = words[first:]
    if sentences and all(word in _CLOSING for word in rest):  # it was opened before this text
        return [*sentences[:-1], sentences[-1] + rest]
    return [*sentences, rest]


def spell_as_moses(words: Words) -> Words:
    """The same number of words in Moses' spelling: don 't for do n't, straight quotes, hyphens.

    A biLM trained on text tokenized by Moses has never seen a treebank's spelling.
    """
    spelled = [_MOSES_WORDS.get(word, word.translate(_MOSES_CHARACTERS)) for word in words]
    for position, word in enumerate(spelled[1:], 1):
        if word.lower() == "n't":
            spelled[position - 1] += word[0]
            spelled[position] = word[1:]
    return tuple(spelled)
