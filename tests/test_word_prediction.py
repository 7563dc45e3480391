"""Predicted words are those to which the scores give the largest probabilities."""

import numpy as np
import pytest

import elmokit
from random_models import make_folder

WORDS = [f"word{k}" for k in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), softmax_words=9, size=1.5)


@pytest.fixture(scope="module")
def model(folder):
    return elmokit.load(folder, tokenizer="spaces")


def test_next_words_are_those_of_the_scores(model):
    text = ["word1", "cat", "word2"]
    found = model.next_words(text, k=100)
    assert {guess.word for guess in found} == {*WORDS, "</S>"}
    assert [g.probability for g in found] == sorted((g.probability for g in found), reverse=True)
    for word, probability in found:
        scored = model.score([text + ([] if word == "</S>" else [word])])[0]
        assert probability == pytest.approx(np.exp(scored.forward[3]), rel=1e-5)
    assert model.next_words("word1 cat word2", k=100) == found
    assert model.next_words(text, k=2) == found[:2]


def test_previous_words_are_those_of_the_scores(model):
    text = ["word1", "cat", "word2"]
    found = model.previous_words(text, k=100)
    assert {guess.word for guess in found} == {*WORDS, "<S>"}
    for word, probability in found:
        if word != "<S>":
            scored = model.score([[word, *text]])[0]
            assert probability == pytest.approx(np.exp(scored.backward[0]), rel=1e-5)
    begin = next(g.probability for g in found if g.word == "<S>")
    assert begin == pytest.approx(np.exp(model.score([text])[0].backward[-1]), rel=1e-5)


@pytest.mark.parametrize("way", ["next_words", "previous_words"])
def test_what_is_left_out_keeps_its_share(model, way):
    found = getattr(model, way)("word1", k=100)
    whole = getattr(model, way)("word1", k=100, special_tokens=True)
    assert sum(g.probability for g in whole) == pytest.approx(1, abs=1e-5)
    left_out = {"<UNK>", "<S>" if way == "next_words" else "</S>"}
    assert [guess for guess in whole if guess.word not in left_out] == found
    assert len(whole) == 9


def test_nothing_is_a_beginning_too(model):
    for nothing in ("", " ", []):
        (first, probability), *_ = model.next_words(nothing)
        assert probability == pytest.approx(np.exp(model.score([[first]])[0].forward[0]), rel=1e-5)


def test_only_the_sentence_at_the_open_end_is_read_unless_state_is_carried(folder, model):
    text = "word1 word2\nword3"
    assert model.next_words(text) == model.next_words("word3")
    assert model.previous_words(text) == model.previous_words("word1 word2")
    carrying = elmokit.load(folder, state="carry", tokenizer="spaces")
    (word, probability), *_ = carrying.next_words(text)
    if word == "</S>":
        (word, probability), *_ = carrying.next_words(text)[1:]
    scored = carrying.score([["word1", "word2"], ["word3", word]])[1]
    assert probability == pytest.approx(np.exp(scored.forward[1]), rel=1e-5)
    assert carrying.next_words(text) == carrying.next_words(text)  # no call feels another


def test_a_reader_that_is_not_there_is_missed(tmp_path):
    model = elmokit.load(make_folder(tmp_path, softmax_words=9, directions=1))
    assert len(model.next_words("word1", k=3)) == 3
    with pytest.raises(elmokit.InputError, match="predicting previous words needs a backward LSTM"):
        model.previous_words("word1")
    with pytest.raises(elmokit.InputError, match="but the model has only a forward one"):
        model.sample("word1", direction="backward")


def test_mistakes_are_explained(model, model_folder):
    with pytest.raises(elmokit.InputError, match="k is 0, expected 1 or more words"):
        model.next_words("word1", k=0)
    with pytest.raises(elmokit.InputError, match="the model has no softmax"):
        elmokit.load(model_folder).next_words("word1")
    with pytest.raises(TypeError, match="text, word 1 is an int"):
        model.next_words(["word1", 7])
