"""SQuAD 1.1 becomes questions whose answers are words of their contexts."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmokit.errors import FormatError
from elmokit.files import TextFile
from elmokit.tasks.data.align import Place, align
from elmokit.tasks.data.example import Answer, Question
from elmokit.tasks.data.source import lines_of, some
from elmokit.tasks.data.table import Split

_log = logging.getLogger(__name__)

_HALF = re.compile("[\ud800-\udfff]")  # JSON may write one without the other


def read_squad(path: str | Path, split: Split) -> list[Question]:
    """The questions of a file, cut into words by `split`, such as `get_tokenizer("moses").words`.

    An answer that does not begin and end where words do is widened to whole words; each says
    whether it was, and the log how many were.
    """
    name = TextFile(str(path)).name
    questions = some([*_questions(_articles(path), name, split)], path, "questions of SQuAD 1.1")
    answers = [answer for question in questions for answer in question.answers]
    _log.info(
        "%s: %d of %d answers widened to whole words",
        name, sum(answer.widened for answer in answers), len(answers),
    )  # fmt: skip
    return questions


def _articles(path: str | Path) -> Any:
    name = TextFile(str(path)).name
    text = "\n".join(line.text for line in lines_of(path))
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is one too
        where = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise FormatError(
            f"{name}{where}: not JSON ({error}), expected SQuAD 1.1; was the file cut short?"
        ) from None
    return _value(record, "data", list, f"{name}: the file")


def _questions(articles: Any, name: str, split: Split) -> Iterator[Question]:
    seen: set[str] = set()
    for number, article in enumerate(articles, 1):
        where = f"{name}: article {number}"
        for place, paragraph in enumerate(_value(article, "paragraphs", list, where), 1):
            inner = f"{where}, paragraph {place}"
            text = _value(paragraph, "context", str, inner)
            words = tuple(split(text))
            offsets = align(words, text)
            if not words or offsets is None:
                raise FormatError(
                    f"{inner}: the words of the context cannot be found in it again, expected the "
                    "splitter to keep nearly all characters; use another one"
                )
            for record in _value(paragraph, "qas", list, inner):
                asked = _value(record, "id", str, f"{inner}: a question")
                if asked in seen:
                    raise FormatError(f"{name}: question {asked} is there twice, expected once")
                seen.add(asked)
                asks = f"{name}: question {asked}"
                question = tuple(split(_value(record, "question", str, asks)))
                if not question:
                    raise FormatError(f"{asks} has no word, expected a question; remove it")
                answers = _answers(record, text, offsets, asks)
                yield Question(asked, question, words, tuple(offsets), text, answers)


def _answers(record: Any, context: str, offsets: list[Place], where: str) -> tuple[Answer, ...]:
    answers = _value(record, "answers", list, where)
    if not answers:
        raise FormatError(
            f"{where} has no answer, expected one or more as in SQuAD 1.1; remove the questions "
            "of SQuAD 2.0 that cannot be answered"
        )
    found = []
    for answer in answers:
        text = _value(answer, "text", str, f"{where}: an answer")
        start = _value(answer, "answer_start", int, f"{where}: an answer")
        end = start + len(text)
        there = context[max(start, 0) : max(end, 0)]
        if start < 0 or there != text:
            raise FormatError(
                f"{where}: character {start} of the context begins {there!r}, expected the "
                f"answer {text!r}; does answer_start count characters?"
            )
        held = [place for place, own in enumerate(offsets) if own[0] < end and own[1] > start]
        if not held:
            raise FormatError(
                f"{where}: the answer {text!r} holds no word of the context; remove it"
            )
        first, last = held[0], held[-1]
        bare = start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
        widened = offsets[first][0] < bare[0] or offsets[last][1] > bare[1]
        found.append(Answer(text, first, last, widened))
    return tuple(found)


def _value(record: Any, key: str, kind: type, where: str) -> Any:
    """What a JSON object has under a key, refused where it is not there or of another kind."""
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        what = {list: "a list", str: "a string", int: "a whole number"}[kind]
        raise FormatError(f"{where} has no {key!r} that is {what}, expected the JSON of SQuAD 1.1")
    if isinstance(value, str) and _HALF.search(value):
        raise FormatError(
            f"{where}: {key!r} has half of a character (\\ud800 to \\udfff), which no text may "
            "hold; write both halves or none"
        )
    return value
