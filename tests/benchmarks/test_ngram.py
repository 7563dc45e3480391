import math
import random
from collections import Counter, defaultdict

import numpy as np
import pytest

pytestmark = pytest.mark.full

WORDS = 9  # of the vocabulary, the three special tokens included


@pytest.fixture(scope="module")
def ngram(script):
    return script("ngram")


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("backward", [False, True])
def test_probabilities_equal_those_of_a_plain_implementation(ngram, order, backward):
    training, held_out = random_sentences(60, seed=1), random_sentences(20, seed=2)
    model = train(ngram, training, order=order, backward=backward)
    stream = ngram.to_stream(flat(held_out), backward=backward)
    expected = [
        slow.probability(sentence[:position], sentence[position])
        for slow in [SlowKneserNey([with_boundaries(s, backward) for s in training], order)]
        # the stream as a whole is read from its end: so are the sentences
        for sentence in [with_boundaries(s, backward) for s in held_out][:: -1 if backward else 1]
        for position in range(1, len(sentence))
    ]
    np.testing.assert_allclose(ngram.probabilities(model, stream), expected, rtol=1e-12)
    result = ngram.measure(model, flat(held_out), backward=backward)
    assert result["perplexity"] == pytest.approx(math.exp(-np.mean(np.log(expected))))
    assert result["words"] == sum(map(len, held_out))


@pytest.mark.parametrize("sentences", [1, 60, 400])  # KenLM's discounts, then estimated ones
@pytest.mark.parametrize("order", [1, 3, 5])
@pytest.mark.parametrize("backward", [False, True])
def test_probabilities_of_all_words_sum_to_one(ngram, sentences, order, backward):
    model = train(ngram, random_sentences(sentences, seed=3), order=order, backward=backward)
    begin, end = (1, 0) if backward else (0, 1)
    words = [end, *range(2, WORDS)]
    for history in [[], [2], [8, 8, 8, 8, 8], *random_sentences(20, seed=4)]:
        stream = np.array([[begin, *history, word] for word in words])
        probs = ngram.probabilities(model, stream.ravel()).reshape(len(words), -1)[:, -1]
        assert probs.sum() == pytest.approx(1, abs=1e-12)
        assert probs.min() > 0


def test_shards_and_their_text_are_one_corpus(ngram, tmp_path):
    vocabulary = {word: number for number, word in enumerate(["<S>", "</S>", "<UNK>", "a", "b"])}
    np.save(tmp_path / "00000.npy", np.array([3, 4, 1, 7, 1], np.int32))
    np.save(tmp_path / "00001.npy", np.array([3, 5, 1], np.int32))
    (tmp_path / "train.txt").write_text("a b\nrare\na seldom\n", encoding="utf-8")
    shards = ngram.read_corpus(tmp_path, vocabulary)
    assert shards.tolist() == [3, 4, 1, 2, 1, 3, 2, 1]
    assert ngram.read_text(tmp_path / "train.txt", vocabulary).tolist() == shards.tolist()
    assert ngram.to_stream(shards, backward=False).tolist() == [0, 3, 4, 1, 0, 2, 1, 0, 3, 2, 1]
    assert ngram.to_stream(shards, backward=True).tolist() == [1, 2, 3, 0, 1, 2, 0, 1, 4, 3, 0]


class SlowKneserNey:
    """The same model from its definition: dictionaries, one probability at a time."""

    def __init__(self, sentences, order):
        self.order = order
        plain = Counter(
            tuple(s[end - length : end])
            for s in sentences
            for end in range(2, len(s) + 1)
            for length in range(1, min(order, end) + 1)
        )
        before = defaultdict(set)
        for gram in plain:
            before[gram[1:]].add(gram[0])
        begin = sentences[0][0]
        self.counts = {
            gram: count if len(gram) == order or gram[0] == begin else len(before[gram])
            for gram, count in plain.items()
        }
        self.discounts = [None, *map(self.estimate, range(1, order + 1))]

    def estimate(self, length):
        numbers = Counter(count for gram, count in self.counts.items() if len(gram) == length)
        if numbers[1] and numbers[2] and numbers[3]:
            ratio = numbers[1] / (numbers[1] + 2 * numbers[2])
            lost = [k - (k + 1) * ratio * numbers[k + 1] / numbers[k] for k in (1, 2, 3)]
            if min(lost) > 0:
                return [0, *lost]
        return [0, 0.5, 1, 1.5]

    def probability(self, history, word):
        history = tuple(history)[max(0, len(history) - self.order + 1) :]
        shorter = self.probability(history[1:], word) if history else 1 / (WORDS - 1)
        discounts = self.discounts[len(history) + 1]
        after = {
            gram: count
            for gram, count in self.counts.items()
            if len(gram) == len(history) + 1 and gram[:-1] == history
        }
        if not after:
            return shorter
        count = after.get((*history, word), 0)
        left = sum(discounts[min(c, 3)] for c in after.values())
        return (count - discounts[min(count, 3)] + left * shorter) / sum(after.values())


def train(ngram, sentences, *, order, backward):
    stream = ngram.to_stream(flat(sentences), backward=backward)
    return ngram.train(stream, order=order, words=WORDS, begin=1 if backward else 0)


def random_sentences(count, *, seed):
    """Sentences in which a word leans on the one before; word 8 is rare."""
    rng = random.Random(seed)
    sentences = []
    for _ in range(count):
        sentence = [rng.choice([2, 3, 4])]
        while rng.random() < 0.8:
            near = 2 + (sentence[-1] + rng.choice([0, 1, 1, 1, 2])) % (WORDS - 3)
            sentence.append(8 if rng.random() < 0.02 else near)
        sentences.append(sentence)
    return sentences


def flat(sentences):
    return np.array([word for sentence in sentences for word in [*sentence, 1]], np.int32)


def with_boundaries(sentence, backward):
    return [1, *sentence[::-1], 0] if backward else [0, *sentence, 1]
