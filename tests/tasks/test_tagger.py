"""Spans may have more words, or fewer, than those of their label had in training."""

import pytest

from elmokit.tasks.catalog import TASKS
from elmokit.tasks.data.example import Tagged
from elmokit.tasks.learn import learn
from task_examples import changed

PAIR, ONE = Tagged(("in", "New", "York"), ("O", "B-LOC", "E-LOC")), Tagged(("Rome",), ("S-LOC",))


@pytest.mark.parametrize("name", ["ner", "chunking"])
def test_a_head_has_every_tag_of_the_labels_it_met(name, tmp_path):
    told, settings = [], changed(elmo="none", epochs=1)
    trained = learn(
        TASKS[name], [PAIR] * 4, [PAIR, ONE], tmp_path, settings=settings, tell=told.append
    )
    assert trained.head.labels == ["B-LOC", "E-LOC", "I-LOC", "O", "S-LOC"]
    assert told[0].endswith("2 to choose by; labels LOC")
    assert not any("that none to learn from has" in line for line in told)
    assert trained.task.strangers([ONE], trained.head.labels) == []
