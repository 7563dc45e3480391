"""Small examples of every task, and settings for fast training on them."""

from dataclasses import replace
from itertools import cycle, islice

from elmokit.tasks.datasets.example_records import (
    Answer,
    Document,
    LabelledText,
    PredicateRoles,
    Question,
    TaggedSentence,
    TextPair,
)
from elmokit.tasks.settings import TaskSettings

TINY = TaskSettings(
    word_embedding_size=8, character_filters=4, hidden_size=12, dropout=0.1, elmo_dropout=0.1,
    epochs=2, words_per_batch=40, learning_rate=0.02,
)  # fmt: skip
ANIMALS, VERBS = ("cat", "dog", "owl", "fox"), ("sleeps", "eats", "runs")


def num_leading_words(number):
    """How many words to put in front, so that no position is always the right one."""
    return number // 2 % 3


def sentence(number):
    lead = ("now", "and")[: num_leading_words(number)]
    return (
        *lead,
        "the",
        ANIMALS[number % 4],
        VERBS[number % 3],
        "in",
        ("Rome", "Oslo")[number % 2],
    )


def tags(number, *rest):
    return ("O",) * num_leading_words(number) + rest


def question(number):
    words = sentence(number)
    text = " ".join(words)
    starts = [text.index(f" {word}") + 1 if index else 0 for index, word in enumerate(words)]
    offsets = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=True))
    last = len(words) - 1
    answers = (Answer(words[last], last, last, False),)
    return Question(str(number), ("where", "is", "it"), words, offsets, text, answers)


def labelled(number, *, phrases=False):
    words, label = sentence(number), str(number % 2)
    last = len(words) - 1
    inner = ((0, 0, "0"), (last - 1, last, label)) if phrases else ()
    return LabelledText(words, label, phrases=inner)


def document(number):
    first = num_leading_words(number)
    end = first + 5
    clusters = (((first, first + 1), (end, end)),)
    return Document(str(number), 0, (sentence(number), ("it", "left")), clusters)


# Twelve examples for each task, which any useful head can fit.
EXAMPLES = {
    "ner": [TaggedSentence(sentence(n), tags(n, "O", "O", "O", "O", "S-LOC")) for n in range(12)],
    "chunking": [
        TaggedSentence(sentence(n), tags(n, "B-NP", "E-NP", "S-VP", "O", "S-NP")) for n in range(12)
    ],
    "pos": [
        TaggedSentence(
            sentence(n), ("ADV",) * num_leading_words(n) + ("DET", "NOUN", "VERB", "ADP", "PROPN")
        )
        for n in range(12)
    ],
    "srl": [
        PredicateRoles(
            sentence(n),
            num_leading_words(n) + 2,
            "x.01",
            tags(n, "B-ARG0", "I-ARG0", "B-V", "B-LOC", "I-LOC"),
        )
        for n in range(12)
    ],
    "sentiment": [labelled(n, phrases=True) for n in range(12)],
    "classification": [labelled(n) for n in range(12)],
    "entailment": [
        TextPair(sentence(n), sentence(n + n % 2), str(n % 2), ("", "")) for n in range(12)
    ],
    "qa": [question(n) for n in range(12)],
    "coreference": [document(n) for n in range(12)],
}


def example_of_length(name, count):
    """An example of a task whose longest sentence has so many words."""
    words = ("word",) * count
    offsets = tuple((5 * index, 5 * index + 4) for index in range(count))
    answers = (Answer("word", 0, 0, False),)
    alternating_tags = {"ner": ("S-LOC", "O"), "chunking": ("S-NP", "O"), "pos": ("NOUN", "VERB")}
    if name in alternating_tags:
        return TaggedSentence(words, tuple(islice(cycle(alternating_tags[name]), count)))
    label = str(count % 2)
    return {
        "srl": PredicateRoles(words, 0, "x.01", ("B-V",) + ("O",) * (count - 1)),
        "sentiment": LabelledText(words, label),
        "classification": LabelledText(words, label),
        "entailment": TextPair(words, words[:1], label, ("", "")),
        "qa": Question("1", words[:5], words, offsets, " ".join(words), answers),
        "coreference": Document("1", 0, (words,), (((0, 0),),)),
    }[name]


def tiny_settings(**changes):
    return replace(TINY, **changes)
