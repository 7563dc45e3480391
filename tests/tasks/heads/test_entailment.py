"""ESIM compares two sentences: neither of them alone determines the label."""

from itertools import combinations

from elmokit.tasks.datasets.example_records import TextPair
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import tiny_settings

WORDS = "cat", "dog", "owl", "fox", "hen", "bee"


def pairs_with(words):
    """Both words twice, each of the four others once: both labels are as frequent."""
    others = [word for word in WORDS if word not in words]
    hypotheses = (*words, *words, *others)
    return [TextPair(words, (word,), str(int(word in words)), ("", "")) for word in hypotheses]


def test_a_word_of_one_sentence_is_found_in_the_other(tmp_path):
    all_pairs = [*combinations(WORDS, 2)]
    train_pairs = [words for index, words in enumerate(all_pairs) if index % 5]
    examples = [
        pair for a, b in train_pairs for words in ((a, b), (b, a)) for pair in pairs_with(words)
    ]
    dev = [pair for words in all_pairs[::5] for pair in pairs_with(words)]
    settings = tiny_settings(elmo="none", character_filters=0, epochs=10)
    trained = train_task(TASKS["entailment"], examples, dev, tmp_path, settings=settings)
    assert trained.scores["accuracy"] > 0.95
