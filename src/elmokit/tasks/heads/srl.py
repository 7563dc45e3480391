"""Semantic role labelling: the arguments of a given predicate (who did what to whom)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.tasks.crf import CRF, forbidden_transitions
from elmokit.tasks.datasets.columns import read_propbank
from elmokit.tasks.datasets.example_records import PredicateRoles, Tokenize, Words
from elmokit.tasks.datasets.schemes import spans_of
from elmokit.tasks.heads.tagger import Tagger, with_tags
from elmokit.tasks.metrics import PrecisionRecall, precision_recall_f1, score_spans
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import Head, Task, TextFormat, parse_words, register, sorted_tags
from elmokit.tasks.word_features import WordFeatures

_PREDICATE_EMBEDDING_SIZE = 50
_MARKED_PREDICATE = re.compile(r"(?<![\d*])\*(\*|[^*\s]+)\*(?![\d*])")


class RoleTagger(Tagger):
    """A BiLSTM-CRF tagger that knows which word is the predicate; its tags are valid IOB2."""

    def __init__(self, features: WordFeatures, labels: Sequence[str]) -> None:
        Head.__init__(self, features, labels)  # not Tagger's, which makes other parameters
        size = features.settings.hidden_size
        self.predicate_embedding = nn.Embedding(2, _PREDICATE_EMBEDDING_SIZE)
        dim = self.make_encoder(extra=_PREDICATE_EMBEDDING_SIZE)
        self.word_projection = nn.Linear(dim, size)
        self.predicate_projection = nn.Linear(dim, size, bias=False)
        self.output = nn.Linear(size, len(self.labels))
        self.crf = CRF(len(self.labels))
        forbidden = forbidden_transitions(self.labels, "iob2")
        self.register_buffer("_forbidden", forbidden, persistent=False)

    def _scores(self, examples: Sequence[PredicateRoles]) -> tuple[Tensor, Tensor]:
        features = self.features([example.words for example in examples])
        predicates = range(len(examples)), [example.predicate for example in examples]
        is_predicate = torch.zeros_like(features.mask, dtype=torch.long)
        is_predicate[predicates] = 1
        vectors = torch.cat([features.vectors, self.predicate_embedding(is_predicate)], -1)
        hidden = self.encoder(vectors, features.mask)
        hidden = self.features.add_to_output(hidden, features)
        of_predicate = self.predicate_projection(hidden[predicates])[:, None]
        joined = self.word_projection(hidden) + of_predicate
        return self.output(joined.relu()), features.mask


def _scores_of_roles(
    examples: Sequence[PredicateRoles], predictions: Sequence[Words]
) -> dict[str, PrecisionRecall]:
    """Scores of arguments; the predicate is given, so its own words do not count."""
    return score_spans([e.tags for e in examples], predictions, without=("V", "C-V"))


def _parse(value: Any, tokenize: Tokenize) -> PredicateRoles:
    """A sentence with stars around its predicate, or a mapping of words and its position."""
    if isinstance(value, str):
        return _parse_marked(value, tokenize)
    if not isinstance(value, Mapping) or {*value} != {"words", "predicate"}:
        raise InputError(
            f"{str(value)[:60]!r}: expected a string with stars around the predicate, or "
            '{"words": […], "predicate": 2}'
        )
    words, predicate = parse_words(value["words"], tokenize), value["predicate"]
    if not isinstance(predicate, int) or not 0 <= predicate < len(words):
        raise InputError(f"predicate is {predicate!r}, expected 0 to {len(words) - 1}")
    return PredicateRoles(words, predicate, "", ("O",) * len(words))


def _parse_marked(line: str, tokenize: Tokenize) -> PredicateRoles:
    marked = [*_MARKED_PREDICATE.finditer(line)]
    if len(marked) != 1:
        raise InputError(
            f"{line[:60]!r}: {len(marked)} words between stars, expected one: mark the predicate, "
            "as in: He *gave* her a book"
        )
    (predicate,) = marked
    before, after = tokenize(line[: predicate.start()]), tokenize(line[predicate.end() :])
    words = (*before, predicate[1], *after)
    return PredicateRoles(words, len(before), "", ("O",) * len(words))


def _format(example: PredicateRoles, tags: Sequence[str]) -> str:
    """The sentence with brackets around the predicate and its arguments."""
    spans = {span.first: span for span in spans_of(tags)}
    parts, position = [], 0
    while position < len(example.words):
        span = spans.get(position)
        last = position if span is None else span.last
        text = " ".join(example.words[position : last + 1])
        parts.append(text if span is None else f"[{span.label} {text}]")
        position = last + 1
    return " ".join(parts) + "\n"


register(
    Task(
        "srl", "semantic roles of a predicate", "PropBank columns with predicates",
        read_file=lambda path, _: read_propbank(path), head=RoleTagger, labels=sorted_tags,
        text=TextFormat(
            "a sentence with stars around the predicate: She *gave* him a book", _parse, _format,
            result=with_tags,
        ),
        score=lambda *both: precision_recall_f1(_scores_of_roles(*both).values()),
        score_by_label=_scores_of_roles,
        settings=TaskSettings(num_layers=2, dropout=0.3, words_per_batch=2000, epochs=8),
        finetune_epochs=2,
    )
)  # fmt: skip
