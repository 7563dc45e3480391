"""A line of plain text becomes an example without labels, and what a head says of it a line."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.errors import InputError
from elmokit.tasks.data.align import align
from elmokit.tasks.data.example import Document, Labelled, Pair, Question, Roles, Tagged
from elmokit.tasks.data.schemes import spans_of
from elmokit.tasks.data.table import Split, sentences_by, without_breaks
from elmokit.tokenizers import get_tokenizer


@dataclass(frozen=True)
class Plain:
    """How a task is asked and answers in plain text.

    `split` names how its own files are split: text that is asked is best split alike.
    """

    split: str
    ask: Callable[[str, Split], Any]  # a line -> an example
    show: Callable[[Any, Any], str]  # an example and its answer -> text
    text: Callable[[str], str] = str  # a line -> what of it is text

    def is_blank(self, line: str) -> bool:
        """Whether a line asks nothing."""
        return not self.text(line).strip()


def words_by(name: str) -> Split:
    """What cuts a raw text into words by a splitter, its sentences one after another."""

    def words(text: str) -> list[str]:
        way = get_tokenizer(name)
        return [word for sentence in way.split_sentences(text) for word in way.tokenize(sentence)]

    return words


def _tagged(line: str, split: Split) -> Tagged:
    words = _some(split(line), line)
    return Tagged(words, ("O",) * len(words))


def _show_tags(example: Tagged, tags: Sequence[str]) -> str:
    rows = zip(example.words, tags, strict=True)
    return "".join(f"{word}\t{tag}\n" for word, tag in rows) + "\n"


def _roles(line: str, split: Split) -> Roles:
    marked = [*re.finditer(r"(?<![\d*])\*(\*|[^*\s]+)\*(?![\d*])", line)]
    if len(marked) != 1:
        raise InputError(
            f"{line[:60]!r}: {len(marked)} words between stars, expected one: mark the predicate, "
            "as in: He *gave* her a book"
        )
    (predicate,) = marked
    before, after = split(line[: predicate.start()]), split(line[predicate.end() :])
    words = (*before, predicate[1], *after)
    return Roles(words, len(before), "", ("O",) * len(words))


def _show_roles(example: Roles, tags: Sequence[str]) -> str:
    spans = {span.first: span for span in spans_of(tags)}
    parts, place = [], 0
    while place < len(example.words):
        span = spans.get(place)
        last = place if span is None else span.last
        text = " ".join(example.words[place : last + 1])
        parts.append(text if span is None else f"[{span.label} {text}]")
        place = last + 1
    return " ".join(parts) + "\n"


def _labelled(line: str, split: Split) -> Labelled:
    text = without_breaks(line)
    label, tab, _ = text.strip().partition("\t")
    if tab and " " not in label:
        raise InputError(f"{line[:60]!r}: {label!r} and a tab, expected a text without its label")
    return Labelled(_some(split(text), line), "", text)


def _show_label(example: Labelled, label: str) -> str:
    return f"{label}\t{example.text}\n"


def _pair(line: str, split: Split) -> Pair:
    first, second = _two(line, "a premise, a tab and a hypothesis")
    return Pair(_some(split(first), line), _some(split(second), line), "", (first, second))


def _show_pair(example: Pair, label: str) -> str:
    return f"{label}\t{example.texts[0]}\t{example.texts[1]}\n"


def _question(line: str, split: Split) -> Question:
    question, context = _two(line, "a question, a tab and a text")
    words = _some(split(context), line)
    offsets = align(words, context)
    if offsets is None:
        raise InputError(f"{context[:60]!r}: its words are not found in it; split it by spaces")
    return Question("", _some(split(question), line), words, tuple(offsets), context, ())


def _show_answer(example: Question, answer: str) -> str:
    return answer + "\n"


def _document(line: str, split: Split) -> Document:
    sentences = sentences_by(split, line)
    _some([word for words in sentences for word in words], line)
    return Document("", 0, sentences, ())


def _show_clusters(example: Document, clusters: Sequence[Sequence[tuple[int, int]]]) -> str:
    words = [word for sentence in example.sentences for word in sentence]
    lines = [
        " | ".join(" ".join(words[first : last + 1]) for first, last in cluster)
        for cluster in clusters
    ]
    return "".join(f"{line}\n" for line in [*lines, ""])


def _some(words: Sequence[str], line: str) -> tuple[str, ...]:
    if not words:
        raise InputError(f"{line[:60]!r}: no words in it; leave out empty lines")
    return tuple(words)


def _two(line: str, form: str) -> tuple[str, str]:
    parts = line.split("\t")
    if len(parts) != 2:
        raise InputError(f"{line[:60]!r}: {len(parts) - 1} tabs, expected {form}")
    return parts[0], parts[1]


TAGS = Plain("spaces", _tagged, _show_tags)
ROLES = Plain("spaces", _roles, _show_roles)
SENTENCE = Plain("spaces", _labelled, _show_label, without_breaks)
TEXT = Plain("moses", _labelled, _show_label, without_breaks)
PAIR = Plain("moses", _pair, _show_pair)
QUESTION = Plain("moses", _question, _show_answer)
DOCUMENT = Plain("moses", _document, _show_clusters)
