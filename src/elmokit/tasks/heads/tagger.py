"""Tagger: named entities, parts of speech, chunks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.tasks.crf import CRF, forbidden_transitions
from elmokit.tasks.datasets.columns import are_conllu, read_columns, read_conllu
from elmokit.tasks.datasets.example_records import TaggedSentence, Tokenize, Words
from elmokit.tasks.datasets.lines import numbered_lines
from elmokit.tasks.datasets.schemes import convert_tags, strip_prefix
from elmokit.tasks.metrics import (
    PrecisionRecall,
    accuracy,
    precision_recall_f1,
    score_labels,
    score_spans,
)
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import Head, Task, TextFormat, parse_words, register, sorted_tags
from elmokit.tasks.word_features import WordFeatures


class Tagger(Head):
    """A BiLSTM that scores tags, chosen together by a CRF or each by itself.

    Tags of spans that are chosen together always form complete spans.
    """

    _forbidden: Tensor | None  # transitions that the CRF never makes

    def __init__(self, features: WordFeatures, labels: Sequence[str]) -> None:
        super().__init__(features, labels)
        self.output = nn.Linear(self.make_encoder(), len(self.labels))
        self.crf = CRF(len(self.labels)) if features.settings.crf else None
        prefixes = {label[:2] for label in labels if label != "O"}
        is_bioes = prefixes <= {"B-", "I-", "E-", "S-"} and bool(prefixes & {"E-", "S-"})
        forbidden = forbidden_transitions(self.labels, "bioes") if is_bioes else None
        self.register_buffer("_forbidden", forbidden, persistent=False)

    def loss(self, examples: Sequence[Any]) -> Tensor:
        """The mean loss of a word."""
        scores, mask = self._scores(examples)
        tags = nn.utils.rnn.pad_sequence(
            [self.label_ids(example.tags) for example in examples], batch_first=True
        ).to(scores.device)  # (sentences, steps)
        if self.crf is not None:
            return -self.crf.log_likelihood(scores, tags, mask).sum() / mask.sum()
        return F.cross_entropy(scores[mask], tags[mask])

    def predict(self, examples: Sequence[Any]) -> list[Words]:
        scores, mask = self._scores(examples)
        if self.crf is not None:
            best = self.crf.decode(scores, mask, self._forbidden)
        else:
            lengths = mask.sum(1).tolist()
            best = [row[:n] for row, n in zip(scores.argmax(2).tolist(), lengths, strict=True)]
        return [tuple(self.labels[tag] for tag in tags) for tags in best]

    def _scores(self, examples: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """The scores of tags, (sentences, steps, tags), and the mask."""
        hidden, mask = self.encode([example.words for example in examples])
        return self.output(hidden), mask


def _read_spans(path: Path, tokenize: Tokenize) -> list[TaggedSentence]:
    """Sentences with tags in the scheme BIOES, which tells a span's first and last words."""
    sentences = read_columns(path, spans=True)
    return [replace(s, tags=convert_tags(s.tags, "bioes")) for s in sentences]


def _read_pos(path: Path, tokenize: Tokenize) -> list[TaggedSentence]:
    lines = [*numbered_lines(path)]  # once: standard input cannot be read again
    return read_conllu(lines) if are_conllu(lines) else read_columns(lines)


def _span_tags(examples: Sequence[TaggedSentence]) -> list[str]:
    """All tags of all labels: in training no span of some label may have one word, or three."""
    labels = {strip_prefix(tag) for tag in sorted_tags(examples)} - {""}
    return sorted({"O", *(f"{letter}-{label}" for label in labels for letter in "BIES")})


def _scores_of_spans(
    examples: Sequence[TaggedSentence], predictions: Sequence[Words]
) -> dict[str, PrecisionRecall]:
    return score_spans([example.tags for example in examples], predictions)


def _by_word(
    metric: Callable[[list[str], list[str]], Any],
) -> Callable[[Sequence[TaggedSentence], Sequence[Words]], Any]:
    """A metric over the tags of all words."""

    def score(examples: Sequence[TaggedSentence], predictions: Sequence[Words]) -> Any:
        gold = [tag for example in examples for tag in example.tags]
        return metric(gold, [tag for tags in predictions for tag in tags])

    return score


def _parse(value: Any, tokenize: Tokenize) -> TaggedSentence:
    words = parse_words(value, tokenize)
    return TaggedSentence(words, ("O",) * len(words))


def with_tags(example: Any, tags: Sequence[str]) -> Any:
    """An example with predicted tags."""
    return replace(example, tags=tuple(tags))


def _format(example: TaggedSentence, tags: Sequence[str]) -> str:
    rows = zip(example.words, tags, strict=True)
    return "".join(f"{word}\t{tag}\n" for word, tag in rows) + "\n"


_TEXT = TextFormat("a sentence", _parse, _format, result=with_tags)

for _name, _description in (("ner", "named entities"), ("chunking", "phrases")):
    register(
        Task(
            _name, _description, "CoNLL columns, the word first and its tag last",
            read_file=_read_spans, head=Tagger, labels=_span_tags,
            text=_TEXT, score=lambda *both: precision_recall_f1(_scores_of_spans(*both).values()),
            score_by_label=_scores_of_spans,
            unused_settings=frozenset(), label_type=strip_prefix,
        )
    )  # fmt: skip
register(
    Task(
        "pos", "parts of speech", "CoNLL-U, or CoNLL columns, the word first and its tag last",
        read_file=_read_pos, head=Tagger, labels=sorted_tags,
        text=_TEXT, score=_by_word(lambda gold, tags: {"accuracy": accuracy(gold, tags)}),
        score_by_label=_by_word(score_labels), unused_settings=frozenset(),
        settings=TaskSettings(crf=False, elmo_dropout=0.3),
    )
)  # fmt: skip
