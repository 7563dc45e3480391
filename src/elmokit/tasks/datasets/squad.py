"""SQuAD 1.1: questions whose answers are stretches of their contexts."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmokit.errors import FormatError
from elmokit.files import TextFile
from elmokit.tasks.datasets.alignment import Offsets, align, words_overlapping
from elmokit.tasks.datasets.example_records import Answer, Question, Tokenize
from elmokit.tasks.datasets.lines import numbered_lines

_log = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON may hold half of a pair


def read_squad(path: str | Path, tokenize: Tokenize) -> list[Question]:
    """The questions of a file, with question and context tokenized by `tokenize`.

    An answer that does not begin and end at word boundaries is widened to full words; each answer
    says whether it was, and the log says how many were.
    """
    name = TextFile(str(path)).name
    questions = [*_questions(_articles(path, name), name, tokenize)]
    answers = [answer for question in questions for answer in question.answers]
    _log.info(
        "%s: %d of %d answers widened to full words",
        name, sum(answer.widened for answer in answers), len(answers),
    )  # fmt: skip
    return questions


def _articles(path: str | Path, name: str) -> Any:
    text = "\n".join(line.text for line in numbered_lines(path))
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number of thousands of digits too
        where = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise FormatError(
            f"{name}{where}: not JSON ({error}), expected SQuAD 1.1; was the file cut short?"
        ) from None
    return _value(record, "data", list, f"{name}: the file")


def _questions(articles: Any, name: str, tokenize: Tokenize) -> Iterator[Question]:
    seen: set[str] = set()
    for article_number, article in enumerate(articles, 1):
        article_name = f"{name}: article {article_number}"
        for number, paragraph in enumerate(_value(article, "paragraphs", list, article_name), 1):
            where = f"{article_name}, paragraph {number}"
            text = _value(paragraph, "context", str, where)
            words = tuple(tokenize(text))
            offsets = align(words, text)
            if not words or offsets is None:
                raise FormatError(
                    f"{where}: the words of the context cannot be found in it again, expected the "
                    "tokenizer to keep nearly all characters; use another one"
                )
            for record in _value(paragraph, "qas", list, where):
                question_id = _value(record, "id", str, f"{where}: a question")
                named = f"{name}: question {question_id}"
                if question_id in seen:
                    raise FormatError(f"{named} is there twice, expected once")
                seen.add(question_id)
                question = tuple(tokenize(_value(record, "question", str, named)))
                if not question:
                    raise FormatError(f"{named} has no word, expected a question; remove it")
                answers = _answers(record, text, offsets, named)
                yield Question(question_id, question, words, tuple(offsets), text, answers)


def _answers(record: Any, context: str, offsets: list[Offsets], where: str) -> tuple[Answer, ...]:
    answers = _value(record, "answers", list, where)
    if not answers:
        raise FormatError(
            f"{where} has no answer, expected one or more as in SQuAD 1.1; remove the questions "
            "of SQuAD 2.0 that cannot be answered"
        )
    records = []
    for answer in answers:
        text = _value(answer, "text", str, f"{where}: an answer")
        start = _value(answer, "answer_start", int, f"{where}: an answer")
        end = start + len(text)
        in_context = context[max(start, 0) : max(end, 0)]
        if start < 0 or in_context != text:
            raise FormatError(
                f"{where}: character {start} of the context begins {in_context!r}, expected the "
                f"answer {text!r}; does answer_start count characters?"
            )
        words = words_overlapping(offsets, start, end)
        if not words:
            raise FormatError(f"{where}: the answer {text!r} holds no word; remove it")
        first, last = words[0], words[-1]
        stripped_start = start + len(text) - len(text.lstrip())
        stripped_end = end - len(text) + len(text.rstrip())
        widened = offsets[first][0] < stripped_start or offsets[last][1] > stripped_end
        records.append(Answer(text, first, last, widened))
    return tuple(records)


def _value(record: Any, key: str, kind: type, where: str) -> Any:
    """The value under a key of a JSON object; an error if it is missing or of another type."""
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        expected = {list: "a list", str: "a string", int: "a whole number"}[kind]
        raise FormatError(f"{where} has no {key!r} that is {expected}, expected SQuAD 1.1")
    if isinstance(value, str) and _SURROGATE.search(value):
        raise FormatError(
            f"{where}: {key!r} has half of a surrogate pair (\\ud800 to \\udfff), which no text "
            "may hold; write both halves or none"
        )
    return value
