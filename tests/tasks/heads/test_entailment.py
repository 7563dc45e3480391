"""Two sentences are compared: whether one has the other's word, neither tells by itself."""

from itertools import combinations

from elmokit.tasks.datasets.example_records import TextPair
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import changed

WORDS = "cat", "dog", "owl", "fox", "hen", "bee"


def asked_of(words):
    """Of both words twice, of each of the four others once: either answer is as likely."""
    others = [word for word in WORDS if word not in words]
    asked = (*words, *words, *others)
    return [TextPair(words, (word,), str(int(word in words)), ("", "")) for word in asked]


def test_a_word_is_looked_for_in_the_other_sentence(tmp_path):
    both = [*combinations(WORDS, 2)]
    learnt = [words for place, words in enumerate(both) if place % 5]
    examples = [pair for a, b in learnt for words in ((a, b), (b, a)) for pair in asked_of(words)]
    new = [pair for words in both[::5] for pair in asked_of(words)]
    settings = changed(elmo="none", character_filters=0, epochs=10)
    trained = train_task(TASKS["entailment"], examples, new, tmp_path, settings=settings)
    assert trained.scores["accuracy"] > 0.95
