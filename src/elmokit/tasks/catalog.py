"""Names become tasks: the paper's six, and others of their kinds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmokit.tasks import plain
from elmokit.tasks.classifier import Classifier
from elmokit.tasks.coreference import Coreference
from elmokit.tasks.data import schemes
from elmokit.tasks.data.columns import read_columns
from elmokit.tasks.data.conll2012 import read_conll2012
from elmokit.tasks.data.conllu import is_conllu, read_conllu
from elmokit.tasks.data.example import Document, Labelled, Pair, Pronoun, Question, Tagged
from elmokit.tasks.data.gap import is_gap, read_gap
from elmokit.tasks.data.roles import read_roles
from elmokit.tasks.data.source import lines_of
from elmokit.tasks.data.squad import read_squad
from elmokit.tasks.data.table import Split, read_labelled, read_pairs
from elmokit.tasks.data.trees import read_trees
from elmokit.tasks.entailment import Entailment
from elmokit.tasks.metrics.accuracy import accuracy, score_labels
from elmokit.tasks.metrics.answers import score_answers
from elmokit.tasks.metrics.coreference import score_coreference
from elmokit.tasks.metrics.pronouns import score_pronouns
from elmokit.tasks.metrics.spans import SpanScore, score_spans
from elmokit.tasks.reader import AnswerFinder
from elmokit.tasks.roles import RoleTagger
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.tagger import Tagger
from elmokit.tasks.task import Task


def _read_spans(path: Path, split: Split) -> list[Tagged]:
    """Tagged sentences, their spans written so that first and last words have tags of their own."""
    return [
        replace(e, tags=schemes.convert(e.tags, "bioes")) for e in read_columns(path, spans=True)
    ]


def _read_pos(path: Path, split: Split) -> list[Tagged]:
    lines = [*lines_of(path)]  # once: standard input cannot be read again
    read = read_conllu if is_conllu(path, lines) else read_columns
    return read(path, lines=lines)


def _read_coreference(path: Path, split: Split) -> Sequence[Document | Pronoun]:
    """Documents of CoNLL-2012, or GAP's pronouns, by which a head can be judged too."""
    lines = [*lines_of(path)]
    return (
        read_gap(path, split, lines=lines) if is_gap(lines) else read_conll2012(path, lines=lines)
    )


def _in_words(read: Callable[[Path], Sequence[Any]]) -> Callable[[Path, Split], Sequence[Any]]:
    """A reader of files that are split into words already."""
    return lambda path, split: read(path)


def _tags(examples: Sequence[Any]) -> list[str]:
    return sorted({tag for example in examples for tag in example.tags})


def _span_tags(examples: Sequence[Any]) -> list[str]:
    """All tags of the labels met: in training, none of a label may have had one word, or three."""
    met = {_bare(tag) for tag in _tags(examples)} - {""}
    return sorted({"O", *(f"{letter}-{label}" for label in met for letter in "BIES")})


def _bare(tag: str) -> str:
    return tag[2:]


def _labels(examples: Sequence[Any]) -> list[str]:
    return sorted({example.label for example in examples})


def _labels_of_trees(examples: Sequence[Labelled]) -> list[str]:
    inner = {label for example in examples for _, _, label in example.phrases}
    return sorted(inner.union(_labels(examples)))


def _no_labels(examples: Sequence[Any]) -> list[str]:
    return []


def _spans(examples: Sequence[Any], answers: Sequence[Any]) -> SpanScore:
    return score_spans([e.tags for e in examples], answers)


def _roles(examples: Sequence[Any], answers: Sequence[Any]) -> SpanScore:
    """Those of arguments: the predicate is given, so its own words do not count."""
    return score_spans([e.tags for e in examples], answers, without=("V", "C-V"))


def _words(examples: Sequence[Any], answers: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The tags of all words, right and found."""
    gold = [tag for example in examples for tag in example.tags]
    return gold, [tag for tags in answers for tag in tags]


def _texts(examples: Sequence[Any], answers: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The labels of all texts, right and found."""
    return [example.label for example in examples], list(answers)


def _by_spans(count: Callable[..., SpanScore]) -> dict[str, Any]:
    """How a task is judged whose answers are spans."""

    def score(examples: Sequence[Any], answers: Sequence[Any]) -> Mapping[str, float]:
        found = count(examples, answers).all
        return {"f1": found.f1, "precision": found.precision, "recall": found.recall}

    return {"score": score, "by_label": lambda *said: count(*said).labels}


def _by_labels(pair: Callable[..., tuple[list[str], list[str]]]) -> dict[str, Any]:
    """How a task is judged whose answers are labels."""
    return {
        "score": lambda *said: {"accuracy": accuracy(*pair(*said))},
        "by_label": lambda *said: score_labels(*pair(*said)),
    }


def _answer_f1(examples: Sequence[Any], answers: Sequence[Any]) -> Mapping[str, float]:
    found = score_answers([[a.text for a in e.answers] for e in examples], answers)
    return {"f1": found.f1, "exact": found.exact}


def _coreference_f1(examples: Sequence[Any], answers: Sequence[Any]) -> Mapping[str, float]:
    """As in CoNLL-2012, whose text marks no thing that is mentioned once; or as in GAP."""
    if isinstance(examples[0], Pronoun):
        return score_pronouns(examples, answers).by_name
    gold = [[group for group in document.clusters if len(group) > 1] for document in examples]
    found = score_coreference(gold, answers)
    return {
        "f1": found.average_f1,
        "muc": found.muc.f1,
        "b_cubed": found.b_cubed.f1,
        "ceaf": found.ceaf.f1,
        "mentions": found.mentions.f1,
    }


def _own(example: Any) -> tuple[tuple[str, ...], ...]:
    return (example.words,)


def _both(example: Pair) -> tuple[tuple[str, ...], ...]:
    return example.first, example.second


def _question_and_context(example: Question) -> tuple[tuple[str, ...], ...]:
    return example.question, example.context


def _sentences(example: Document | Pronoun) -> tuple[tuple[str, ...], ...]:
    return example.sentences


_TASKS = (
    Task(
        "ner", _read_spans, _span_tags, Tagger, _own, plain.TAGS, bare=_bare, **_by_spans(_spans),
    ),
    Task(
        "chunking", _read_spans, _span_tags, Tagger, _own, plain.TAGS, bare=_bare,
        **_by_spans(_spans),
    ),
    Task(
        "pos", _read_pos, _tags, Tagger, _own, plain.TAGS,
        settings=TaskSettings(crf=False, elmo_dropout=0.3), **_by_labels(_words),
    ),
    Task(
        "roles", _in_words(read_roles), _tags, RoleTagger, _own, plain.ROLES,
        settings=TaskSettings(depth=2, dropout=0.3, words_per_batch=2000, epochs=8), adapt=2,
        **_by_spans(_roles),
    ),
    Task(
        "sentiment", _in_words(read_trees), _labels_of_trees, Classifier, _own, plain.SENTENCE,
        settings=TaskSettings(learning_rate=0.001, epochs=6), adapt=2, **_by_labels(_texts),
    ),
    Task("texts", read_labelled, _labels, Classifier, _own, plain.TEXT, **_by_labels(_texts)),
    Task(
        "entailment", read_pairs, _labels, Entailment, _both, plain.PAIR,
        settings=TaskSettings(elmo="both", dropout=0.3, epochs=8), longest=10_000,
        **_by_labels(_texts),
    ),
    Task(
        "questions", read_squad, _no_labels, AnswerFinder, _question_and_context, plain.QUESTION,
        _answer_f1,
        TaskSettings(elmo="both", hidden=80, dropout=0.3, words_per_batch=4000, epochs=8),
        longest=5000,
    ),
    Task(
        "coreference", _read_coreference, _no_labels, Coreference, _sentences,
        plain.DOCUMENT, _coreference_f1,
        TaskSettings(words_per_batch=1, learning_rate=0.001, dropout=0.3, epochs=25), longest=15_000,  # noqa: E501
    ),
)  # fmt: skip
TASKS = {task.name: task for task in _TASKS}
