"""Text in, predictions out: lines, strings and JSON values to examples, predictions to text."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from elmokit.errors import FormatError, InputError
from elmokit.tasks.datasets.example_records import Tokenize, Words
from elmokit.tokenizers import get_tokenizer

if TYPE_CHECKING:
    from elmokit.tasks.saved_model import TaskModel

_LINES_AT_ONCE = 256


@dataclass(frozen=True)
class TextFormat:
    """How a task's input is written as text or as values, and its predictions as text."""

    input_help: str  # what a line of input is, for help texts
    parse: Callable[[Any, Tokenize], Any]  # a line, a list of words, a pair … -> an example
    format: Callable[[Any, Any], str]  # an example and its prediction -> lines of text
    result: Callable[[Any, Any], Any] = lambda _, prediction: prediction  # what `predict` returns
    clean: Callable[[str], str] = str  # a line without mark-up that is no text


def apply_to_lines(
    model: "TaskModel", lines: Iterable[str], *, tokenizer: str | None = None, as_json: bool = False
) -> Iterator[str]:
    """The output for each line of input, line breaks included; a blank line gives a blank one.

    As JSON, each line of input gives `{"sentences": …, "prediction": …}`, a blank one null. Lines
    before one that is refused are answered first.
    """
    task, text = model.task, model.task.text
    tokenize = words_by(tokenizer or model.tokenizer)
    numbered = enumerate(lines, 1)
    error: InputError | FormatError | None = None
    while error is None:
        examples: list[Any] = []
        try:
            for number, line in islice(numbered, _LINES_AT_ONCE):
                blank = not text.clean(line).strip()
                examples.append(None if blank else _parse_line(model, line, tokenize, number))
        except (InputError, FormatError) as refused:
            error = refused
        if not examples:
            break
        predictions = iter(model.predict_examples([e for e in examples if e is not None]))
        for example in examples:
            if example is None:
                yield "null\n" if as_json else "\n"
            elif as_json:
                record = to_json(task.sentences(example), next(predictions))
                yield json.dumps(record, ensure_ascii=False) + "\n"
            else:
                yield text.format(example, next(predictions))
    if error is not None:
        raise error


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
    if not _is_list_of_words(value):
        raise InputError(f"{str(value)[:60]!r}: expected a string or a list of words")
    return tuple(value)


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


def _parse_line(model: "TaskModel", line: str, tokenize: Tokenize, number: int) -> Any:
    try:
        example = model.task.text.parse(line, tokenize)
        model.task.check_lengths([example])
        return example
    except InputError as error:
        raise InputError(f"line {number}: {error}") from None


def _is_list_of_words(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(word, str) and word for word in value)
    )
