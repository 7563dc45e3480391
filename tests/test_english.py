"""The model that ships answers at once, knows plain English, and keeps within its size."""

import subprocess
import sys

import numpy as np
import pytest

import elmokit
from elmokit.formats import ENGLISH

SENTENCE = "The city lies in the north of the country , near the border with France ."


@pytest.fixture(scope="module")
def english():
    return elmokit.load()


def test_it_is_small_and_says_what_it_is():
    assert sum(path.stat().st_size for path in ENGLISH.iterdir()) <= 40 * 10**6
    card = (ENGLISH / "README.md").read_text("utf-8")
    for part in ("Wikipedia", "CC BY-SA", "erplexity"):
        assert part in card


def test_it_has_a_softmax_of_fifty_thousand_words(english):
    assert english.pretrained.model.softmax.num_words >= 50_000
    assert len(english.pretrained.vocabulary) == english.pretrained.model.softmax.num_words
    assert english.pretrained.tokenizer == "moses"


def test_its_sentence_head_tells_what_sentences_mean(english):
    assert english.default_pooling == "sentence"
    assert [*english.pretrained.heads] == ["sentence", "whitened"]
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "Stocks fell on Monday."]
    for options in ({}, {"pooling": "whitened"}):
        vectors = english.encode(texts, **options)
        cosines = english.similarity(vectors[0], vectors[1:])[0]
        assert cosines[0] > cosines[1] + 0.1
    heads = ENGLISH.glob("*.head.safetensors")
    assert sum(path.stat().st_size for path in heads) < 5 * 10**6


def test_it_predicts_a_sentence_better_than_its_words_in_disorder(english):
    words = SENTENCE.split()
    disorder = [words[place] for place in np.random.default_rng(0).permutation(len(words))]
    plain, mixed = english.perplexity([words]), english.perplexity([disorder])
    assert plain.average < 60
    assert mixed.average > 20 * plain.average


def test_it_guesses_what_english_allows(english):
    assert english.next_words("He was born in the United", k=1)[0].word in ("States", "Kingdom")
    assert english.previous_words("States of America .", k=1)[0].word == "United"
    (gap,) = english.fill("They ___ to the city.", k=10)
    assert {"moved", "went", "returned", "came"} & {guess.word for guess in gap}


def test_uses_of_a_word_come_apart_by_their_meaning(english):
    money = [["The", "bank", "gave", "him", "a", "loan"], ["The", "bank", "lent", "them", "money"]]
    river = [["The", "bank", "of", "the", "river", "was", "muddy"]]
    a, b, c = (vectors[:, 1] for vectors in english.embed(money + river))

    def cosine(one, other):
        return (one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)

    assert cosine(a, c)[0] == pytest.approx(1)
    assert (cosine(a, b) > cosine(a, c))[1:].all()


@pytest.mark.full
def test_verbs_use_it_when_no_model_is_named(tmp_path):
    def elmo(*arguments):
        command = [sys.executable, "-m", "elmokit.cli", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "softmax words       50,003" in elmo("info")
    assert "forward" in elmo("evaluate", "--text", SENTENCE)
    assert elmo("predict", "--text", "the United States of", "-k", "1").split()[-1] == "America"
    elmo("embed", "--text", "a b", tmp_path / "out.hdf5")
    assert (tmp_path / "out.hdf5").exists()
