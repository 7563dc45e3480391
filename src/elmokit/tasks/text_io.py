"""Text in, predictions out: lines, strings and JSON values to examples, predictions to text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.errors import InputError
from elmokit.tasks.datasets.example_records import Tokenize, Words
from elmokit.tokenizers import get_tokenizer


@dataclass(frozen=True)
class TextFormat:
    """How a task's input is written as text or as values, and its predictions as text."""

    input_help: str  # what a line of input is, for help texts
    parse: Callable[[Any, Tokenize], Any]  # a line, a list of words, a pair … -> an example
    format: Callable[[Any, Any], str]  # an example and its prediction -> lines of text
    result: Callable[[Any, Any], Any] = lambda _, prediction: prediction  # what `predict` returns
    clean: Callable[[str], str] = str  # a line without mark-up that is no text


def to_json(sentences: Sequence[Words], prediction: Any) -> dict[str, Any]:
    """A prediction as a JSON object, with the words that it is about."""
    return {"sentences": sentences, "prediction": prediction}


def words_by(tokenizer: str) -> Tokenize:
    """A function from a raw text to its words, those of all its sentences."""

    def tokenize(text: str) -> list[str]:
        chosen = get_tokenizer(tokenizer)
        sentences = chosen.split_sentences(text)
        return [word for sentence in sentences for word in chosen.tokenize(sentence)]

    return tokenize


def parse_words(value: Any, tokenize: Tokenize) -> Words:
    """The words of a string, which is tokenized, or of a list of words."""
    if isinstance(value, str):
        words = tuple(tokenize(value))
        if not words:
            raise InputError(f"{value[:60]!r}: no words in it; leave out empty lines")
        return words
    words = tuple(value) if isinstance(value, list | tuple) else ()
    if not words or not all(isinstance(word, str) and word for word in words):
        raise InputError(f"{str(value)[:60]!r}: expected a string or a list of words")
    return words


def parse_two(value: Any, names: tuple[str, str]) -> tuple[Any, Any]:
    """The two parts of a line with a tab, of a pair, or of a mapping with those names."""
    if isinstance(value, str):
        parts = value.split("\t")
        if len(parts) == 2:
            return parts[0], parts[1]
        expected = f"a {names[0]}, a tab and a {names[1]}"
        raise InputError(f"{value[:60]!r}: {len(parts) - 1} tabs, expected {expected}")
    if isinstance(value, Mapping) and {*value} == {*names}:
        return value[names[0]], value[names[1]]
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    raise InputError(f"{str(value)[:60]!r}: expected a pair ({names[0]}, {names[1]})")


def is_single_input(value: Any) -> bool:
    """Whether a value is one input rather than several: a string, a pair or a mapping."""
    return isinstance(value, str | tuple | Mapping)
