"""The classifier is trained on texts, and on their labelled phrases."""

from elmokit.tasks.datasets.example_records import LabelledText
from elmokit.tasks.heads.classifier import _sample
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import tiny_settings


def test_only_phrases_of_several_words_are_sampled():
    words, label = ("a", "good", "film"), "1"
    phrases = ((0, 0, "0"), (1, 1, "1"), (1, 2, "1"))
    assert _sample(LabelledText(words, label, phrases=phrases)) == [(1, 2, "1")]
    assert _sample(LabelledText(words, label)) == []


def test_labels_that_only_phrases_have_are_learned(tmp_path):
    words = ("a", "good", "film", "but", "a", "bad", "end")
    examples = [LabelledText(words, "2", phrases=((0, 2, "4"), (4, 6, "0")))] * 12
    dev = [LabelledText(words[:3], "4"), LabelledText(words[4:], "0")]
    settings = tiny_settings(elmo="none", epochs=20)
    trained = train_task(TASKS["sentiment"], examples, dev, tmp_path, settings=settings)
    assert trained.scores["accuracy"] == 1
