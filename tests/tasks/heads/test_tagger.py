"""A tagger predicts spans that are longer or shorter than those in training."""

import pytest

from elmokit.tasks.datasets.example_records import TaggedSentence
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import tiny_settings

LONG, SHORT = (
    TaggedSentence(("in", "New", "York"), ("O", "B-LOC", "E-LOC")),
    TaggedSentence(("Rome",), ("S-LOC",)),
)


@pytest.mark.parametrize("name", ["ner", "chunking"])
def test_a_head_has_every_tag_of_its_labels(name, tmp_path):
    lines, settings = [], tiny_settings(elmo="none", epochs=1)
    trained = train_task(
        TASKS[name], [LONG] * 4, [LONG, SHORT], tmp_path, settings=settings, log=lines.append
    )
    assert trained.head.labels == ["B-LOC", "E-LOC", "I-LOC", "O", "S-LOC"]
    assert lines[0].endswith("2 dev examples; labels LOC")
    assert not any("that no training example has" in line for line in lines)
    assert trained.task.unseen_labels([SHORT], trained.head.labels) == []
