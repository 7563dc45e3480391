"""Texts get labels, and teach by their phrases too."""

from elmokit.tasks.datasets.example_records import LabelledText
from elmokit.tasks.heads.classifier import _sample
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import changed


def test_phrases_are_learnt_from_only_where_they_have_several_words():
    words, label = ("a", "good", "film"), "1"
    phrases = ((0, 0, "0"), (1, 1, "1"), (1, 2, "1"))
    assert _sample(LabelledText(words, label, phrases=phrases)) == [(1, 2, "1")]
    assert _sample(LabelledText(words, label)) == []


def test_what_only_phrases_are_labelled_with_is_learnt(tmp_path):
    words = ("a", "good", "film", "but", "a", "bad", "end")
    examples = [LabelledText(words, "2", phrases=((0, 2, "4"), (4, 6, "0")))] * 12
    apart = [LabelledText(words[:3], "4"), LabelledText(words[4:], "0")]
    settings = changed(elmo="none", epochs=20)
    trained = train_task(TASKS["sentiment"], examples, apart, tmp_path, settings=settings)
    assert trained.scores["accuracy"] == 1
