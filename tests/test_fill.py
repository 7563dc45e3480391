"""A gap is filled by what stands on both of its sides."""

import numpy as np
import pytest

import elmokit
from bigram import bigram_model
from random_models import make_folder

SENTENCES = ["the cat sat", "the dog ran", "a bird flew away"]


@pytest.fixture(scope="module")
def model():
    return bigram_model(SENTENCES)


def best(model, text):
    return [guesses[0].word for guesses in model.fill(text)]


def test_a_bigram_model_is_what_it_was_built_to_be(model):
    (first, second), (third, fourth) = (
        model.next_words("the", k=2),
        model.previous_words("sat", k=2),
    )
    assert {first.word, second.word} == {"cat", "dog"}
    assert first.probability == pytest.approx(1.01 / 2.12, rel=1e-4)
    assert (third.word, fourth.probability < 0.02) == ("cat", True)


@pytest.mark.parametrize("directions", [("forward", "backward"), ("forward",), ("backward",)])
def test_both_sides_choose_the_word(directions):
    model = bigram_model(SENTENCES, directions=directions)
    assert best(model, "the ___ sat") == ["cat"]
    assert best(model, "the ___ ran") == ["dog"]
    assert best(model, "___ bird flew") == ["a"]
    assert best(model, "the dog ___") == ["ran"]
    assert best(model, "___") in (["cat"], ["a"], ["the"], ["sat"], ["ran"], ["away"], ["dog"])


def test_several_gaps_agree_with_each_other(model):
    assert best(model, "the ___ ___") in (["cat", "sat"], ["dog", "ran"])
    assert best(model, "___ ___ ran") == ["the", "dog"]
    assert best(model, "___ bird ___ ___") == ["a", "flew", "away"]
    assert best(model, "the ___ sat\na ___ flew away") == ["cat", "bird"]


def test_a_share_is_that_of_the_whole_sentence(tmp_path):
    model = elmokit.load(make_folder(tmp_path, softmax_words=9, size=1.5))
    (guesses,) = model.fill(["word1", "___", "cat"], k=100)
    scores = {
        word: model.score([["word1", word, "cat"]])[0].log_probability
        for word in (f"word{k}" for k in range(6))
    }
    total = sum(np.exp(score) for score in scores.values())
    assert [g.word for g in guesses] == sorted(scores, key=scores.get, reverse=True)
    for word, share in guesses:
        assert share == pytest.approx(np.exp(scores[word]) / total, rel=1e-4)
    assert model.fill(["word1", "___", "cat"], k=2) == [guesses[:2]]


def test_a_gap_is_found_however_the_text_is_split(tmp_path):
    folder = make_folder(tmp_path, softmax_words=9)
    expected = elmokit.load(folder).fill(["word1", "___", ",", "word2", "."])
    assert elmokit.load(folder).fill("word1 ___, word2.") == expected
    assert elmokit.load(folder).fill("word1 ______, word2.") == expected
    assert elmokit.load(folder, tokenizer="spaces").fill("word1 ___ , word2 .") == expected
    characters = elmokit.load(folder, tokenizer="characters")
    assert characters.fill("a___b") == characters.fill(["a", "___", "b"])


def test_a_text_without_a_whole_gap_is_refused(model):
    with pytest.raises(elmokit.InputError, match="'the cat' has no gap; write ___ where a word"):
        model.fill("the cat")
    with pytest.raises(elmokit.InputError, match="the gap in '___,' is not a word by itself"):
        model.fill("the ___, sat")
    with pytest.raises(elmokit.InputError, match="k is 0"):
        model.fill("the ___", k=0)
