"""Texts get labels, and teach by their phrases too."""

from elmokit.tasks.catalog import TASKS
from elmokit.tasks.classifier import _drawn
from elmokit.tasks.data.example import Labelled
from elmokit.tasks.learn import learn
from task_examples import changed


def test_phrases_are_learnt_from_only_where_they_have_several_words():
    words, label = ("a", "good", "film"), "1"
    phrases = ((0, 0, "0"), (1, 1, "1"), (1, 2, "1"))
    assert _drawn(Labelled(words, label, phrases=phrases)) == [(1, 2, "1")]
    assert _drawn(Labelled(words, label)) == []


def test_what_only_phrases_are_labelled_with_is_learnt(tmp_path):
    words = ("a", "good", "film", "but", "a", "bad", "end")
    examples = [Labelled(words, "2", phrases=((0, 2, "4"), (4, 6, "0")))] * 12
    apart = [Labelled(words[:3], "4"), Labelled(words[4:], "0")]
    settings = changed(elmo="none", epochs=20)
    trained = learn(TASKS["sentiment"], examples, apart, tmp_path, settings=settings)
    assert trained.scores["accuracy"] == 1
