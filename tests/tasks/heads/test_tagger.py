"""Spans may have more words, or fewer, than those of their label had in training."""

import pytest

from elmokit.tasks.datasets.example_records import TaggedSentence
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import changed

PAIR, ONE = (
    TaggedSentence(("in", "New", "York"), ("O", "B-LOC", "E-LOC")),
    TaggedSentence(("Rome",), ("S-LOC",)),
)


@pytest.mark.parametrize("name", ["ner", "chunking"])
def test_a_head_has_every_tag_of_the_labels_it_met(name, tmp_path):
    told, settings = [], changed(elmo="none", epochs=1)
    trained = train_task(
        TASKS[name], [PAIR] * 4, [PAIR, ONE], tmp_path, settings=settings, log=told.append
    )
    assert trained.head.labels == ["B-LOC", "E-LOC", "I-LOC", "O", "S-LOC"]
    assert told[0].endswith("2 dev examples; labels LOC")
    assert not any("that no training example has" in line for line in told)
    assert trained.task.unseen_labels([ONE], trained.head.labels) == []
