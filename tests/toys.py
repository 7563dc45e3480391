"""Small examples of every task, and small settings to learn them by."""

from dataclasses import replace
from itertools import cycle, islice

from elmokit.tasks.data.example import Answer, Document, Labelled, Pair, Question, Roles, Tagged
from elmokit.tasks.settings import Settings

TINY = Settings(
    word_dim=8, characters=4, hidden=12, dropout=0.1, elmo_dropout=0.1, epochs=2,
    words_per_batch=40, learning_rate=0.02,
)  # fmt: skip
ANIMALS, VERBS = ("cat", "dog", "owl", "fox"), ("sleeps", "eats", "runs")


def sentence(number):
    return ("the", ANIMALS[number % 4], VERBS[number % 3], "in", ("Rome", "Oslo")[number % 2])


def question(number):
    words = sentence(number)
    text = " ".join(words)
    starts = [text.index(word) for word in words]
    offsets = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=True))
    return Question(
        str(number), ("where", "is", "it"), words, offsets, text, (Answer(words[4], 4, 4, False),)
    )


# Twelve examples for each task, all of which a head of any use can learn.
EXAMPLES = {
    "ner": [Tagged(sentence(n), ("O", "O", "O", "O", "S-LOC")) for n in range(12)],
    "chunking": [Tagged(sentence(n), ("B-NP", "E-NP", "S-VP", "O", "S-NP")) for n in range(12)],
    "pos": [Tagged(sentence(n), ("DET", "NOUN", "VERB", "ADP", "PROPN")) for n in range(12)],
    "roles": [
        Roles(sentence(n), 2, "x.01", ("B-ARG0", "I-ARG0", "B-V", "B-LOC", "I-LOC"))
        for n in range(12)
    ],
    "sentiment": [Labelled(sentence(n), str(n % 2)) for n in range(12)],
    "texts": [Labelled(sentence(n), str(n % 2)) for n in range(12)],
    "entailment": [Pair(sentence(n), sentence(n + n % 2), str(n % 2), ("", "")) for n in range(12)],
    "questions": [question(n) for n in range(12)],
    "coreference": [
        Document(str(n), 0, (sentence(n), ("it", "left")), (((0, 1), (5, 5)),)) for n in range(12)
    ],
}


def sized(name, count):
    """An example of a task whose longest sentence has so many words."""
    words = ("word",) * count
    offsets = tuple((5 * place, 5 * place + 4) for place in range(count))
    answers = (Answer("word", 0, 0, False),)
    tags = {"ner": ("S-LOC", "O"), "chunking": ("S-NP", "O"), "pos": ("NOUN", "VERB")}
    if name in tags:
        return Tagged(words, tuple(islice(cycle(tags[name]), count)))
    label = str(count % 2)
    return {
        "roles": Roles(words, 0, "x.01", ("B-V",) + ("O",) * (count - 1)),
        "sentiment": Labelled(words, label),
        "texts": Labelled(words, label),
        "entailment": Pair(words, words[:1], label, ("", "")),
        "questions": Question("1", words[:5], words, offsets, " ".join(words), answers),
        "coreference": Document("1", 0, (words,), (((0, 0),),)),
    }[name]


def changed(**changes):
    return replace(TINY, **changes)
