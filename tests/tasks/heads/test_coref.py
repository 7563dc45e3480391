"""Mentions are told from other spans, and those of new names from one another by their spelling."""

from dataclasses import replace
from itertools import count

import torch

from elmokit.tasks.datasets.example_records import Document
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import changed

SETTINGS = changed(
    elmo="none", character_filters=0, dropout=0.0, epochs=10, words_per_batch=1, learning_rate=0.005
)


def seen_again(number):
    """Two names that no other document has, and one of them again."""
    names = f"Ann{number}", f"Bob{number}"
    first, second, again = (0, 0), (2, 2), (4, 4)
    words = (names[0], "saw", names[1], "."), (names[number % 2], "left", ".")
    groups = ((first, again), (second,)) if number % 2 == 0 else ((first,), (second, again))
    return Document(str(number), 0, words, groups)


def test_names_that_no_document_had_are_known_again(tmp_path):
    examples, new = ([seen_again(n) for n in some] for some in (range(20), range(100, 110)))
    trained = train_task(TASKS["coreference"], examples, new, tmp_path, settings=SETTINGS)
    assert trained.scores["f1"] > 0.9


def test_things_mentioned_once_teach_what_a_mention_is(tmp_path):
    words, mention, rising = ("the", "cat", "sleeps", "."), (0, 1), count()
    examples = [Document(str(number), 0, (words,), ((mention,),)) for number in range(8)]
    task = replace(TASKS["coreference"], score=lambda *_: {"f1": next(rising)})  # no pair, no F1
    settings = replace(SETTINGS, epochs=40)
    trained = train_task(task, examples, examples, tmp_path, settings=settings)
    with torch.no_grad():
        spans, mentioned, *_ = trained.head._rank(examples[0])
    (best, second), (place, _) = mentioned.topk(2)
    assert spans[int(place)] == mention
    assert best > second + 0.2
