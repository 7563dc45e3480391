"""Predicted words follow the scores; gaps are filled; what is drawn can be drawn again."""

from collections import Counter

import numpy as np
import pytest
import torch

import elmokit
from bigram import bigram_model
from elmokit import word_prediction
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


def test_a_direction_that_the_model_lacks_is_named(tmp_path):
    model = elmokit.load(make_folder(tmp_path, softmax_words=9, directions=1))
    assert len(model.next_words("word1", k=3)) == 3
    with pytest.raises(elmokit.InputError, match="predicting previous words needs a backward LSTM"):
        model.previous_words("word1")
    with pytest.raises(elmokit.InputError, match="but the model has only a forward one"):
        model.sample("word1", direction="backward")


def test_unusable_texts_and_numbers_are_explained(model, model_folder):
    with pytest.raises(elmokit.InputError, match="k is 0, expected 1 or more words"):
        model.next_words("word1", k=0)
    with pytest.raises(elmokit.InputError, match="the model has no softmax"):
        elmokit.load(model_folder).next_words("word1")
    with pytest.raises(TypeError, match="text, word 1 is an int"):
        model.next_words(["word1", 7])


SENTENCES = ["the cat sat", "the dog ran", "a bird flew away"]


@pytest.fixture(scope="module")
def bigrams():
    return bigram_model(SENTENCES)


def best(model, text):
    return [guesses[0].word for guesses in model.fill(text)]


def test_a_bigram_model_is_what_it_was_built_to_be(bigrams):
    (first, second), (third, fourth) = (
        bigrams.next_words("the", k=2),
        bigrams.previous_words("sat", k=2),
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


def test_several_gaps_agree_with_each_other(bigrams):
    assert best(bigrams, "the ___ ___") in (["cat", "sat"], ["dog", "ran"])
    assert best(bigrams, "___ ___ ran") == ["the", "dog"]
    assert best(bigrams, "___ bird ___ ___") == ["a", "flew", "away"]
    assert best(bigrams, "the ___ sat\na ___ flew away") == ["cat", "bird"]


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


def test_candidates_that_are_scored_in_parts_are_scored_the_same(model, monkeypatch):
    sentence = ["word1", "___", "cat", "word3"]
    (together,) = model.fill(sentence)
    monkeypatch.setattr(word_prediction, "_TOKENS_PER_BATCH", 5)
    (apart,) = model.fill(sentence)
    assert [guess.word for guess in apart] == [guess.word for guess in together]
    for one, other in zip(apart, together, strict=True):
        assert one.probability == pytest.approx(other.probability, rel=1e-5)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.sample("word1", samples=3, max_words=3),
        lambda model: model.next_words("word1"),
        lambda model: model.fill("word1 ___ cat"),
    ],
)
def test_a_row_of_probabilities_is_not_split_over_threads(model, monkeypatch, ask):
    numbers = []
    find = word_prediction._run_context

    def count_threads(*arguments, **settings):
        numbers.append(torch.get_num_threads())
        return find(*arguments, **settings)

    monkeypatch.setattr(word_prediction, "_run_context", count_threads)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ask(model)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert {*numbers} == {1}


def test_a_gap_is_found_however_the_text_is_split(tmp_path):
    folder = make_folder(tmp_path, softmax_words=9)
    expected = elmokit.load(folder).fill(["word1", "___", ",", "word2", "."])
    assert elmokit.load(folder).fill("word1 ___, word2.") == expected
    assert elmokit.load(folder).fill("word1 ______, word2.") == expected
    assert elmokit.load(folder, tokenizer="spaces").fill("word1 ___ , word2 .") == expected
    characters = elmokit.load(folder, tokenizer="characters")
    assert characters.fill("a___b") == characters.fill(["a", "___", "b"])


def test_a_text_without_a_whole_gap_is_refused(bigrams):
    with pytest.raises(elmokit.InputError, match="'the cat' has no gap; write ___ where a word"):
        bigrams.fill("the cat")
    with pytest.raises(elmokit.InputError, match="the gap in '___,' is not a word by itself"):
        bigrams.fill("the ___, sat")
    with pytest.raises(elmokit.InputError, match="k is 0"):
        bigrams.fill("the ___", k=0)


@pytest.fixture(scope="module")
def flat_model(tmp_path_factory):
    """A model whose probabilities are all of about the same size."""
    folder = make_folder(tmp_path_factory.mktemp("model"), softmax_words=9, size=0.7)
    return elmokit.load(folder)


@pytest.mark.parametrize(
    ("direction", "temperature", "top_k"),
    [("forward", 1.0, None), ("forward", 0.5, None), ("forward", 2.0, 3), ("backward", 1.0, 4)],
)
def test_words_are_drawn_as_often_as_they_are_likely(flat_model, direction, temperature, top_k):
    ask = flat_model.next_words if direction == "forward" else flat_model.previous_words
    chances = {word: p ** (1 / temperature) for word, p in ask("word1", k=top_k or 100)}
    draws = 4000
    drawn = flat_model.sample(
        "word1", samples=draws, direction=direction, temperature=temperature, top_k=top_k,
        max_words=1,
    )  # fmt: skip
    place, end = (-1, "</S>") if direction == "forward" else (0, "<S>")
    counts = Counter(words[place] if len(words) == 2 else end for words in drawn)
    assert {*counts} <= {*chances}
    for word, chance in chances.items():
        share = chance / sum(chances.values())
        assert counts[word] / draws == pytest.approx(share, abs=4 * np.sqrt(share / draws) + 1e-9)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("state", ["zero", "warm"])
def test_the_lstms_read_all_that_was_drawn(tmp_path, direction, state):
    model = elmokit.load(make_folder(tmp_path, softmax_words=300, size=1.5), state=state)
    (drawn,) = model.sample(["cat"], temperature=0, max_words=8, direction=direction)
    ask = model.next_words if direction == "forward" else model.previous_words
    words = ["cat"]
    while len(words) < 9 and (best := ask(words, k=1)[0].word) not in ("<S>", "</S>"):
        words = [*words, best] if direction == "forward" else [best, *words]
    assert drawn == words
    assert len(drawn) > 2


def test_a_seed_draws_the_same_again_however_many_are_drawn(flat_model):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    many = flat_model.sample("word1", samples=8, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert flat_model.sample("word1", samples=3, seed=5) == many[:3]
    assert flat_model.sample("word1", samples=8, seed=6) != many
    assert len({tuple(words) for words in many}) > 4


def test_sentences_end_by_themselves_or_at_the_limit():
    model = bigram_model(["the cat sat", "the dog ran"])
    drawn = model.sample(samples=20, top_k=1)
    assert {" ".join(words) for words in drawn} <= {"the cat sat", "the dog ran"}
    assert {" ".join(w) for w in model.sample("dog ran", direction="backward", top_k=1)} == {
        "the dog ran"
    }
    assert model.sample("the", max_words=1, top_k=1)[0][0] == "the"
    assert len(model.sample("the", max_words=1, top_k=1)[0]) == 2
    assert not any("<UNK>" in words for words in model.sample(samples=200, temperature=50.0))


def test_no_temperature_is_too_small(flat_model):
    best = flat_model.sample("word1", temperature=0)
    assert flat_model.sample("word1", temperature=5e-324) == best


def test_with_a_carried_state_the_text_before_counts(tmp_path):
    folder = make_folder(tmp_path, softmax_words=30, size=1.5)
    carrying = elmokit.load(folder, state="carry", tokenizer="spaces")
    text = "word3 word4\ncat"
    (drawn,) = carrying.sample(text, temperature=0, max_words=1)
    best = carrying.next_words(text, k=1)[0].word
    assert drawn == (["cat"] if best == "</S>" else ["cat", best])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"samples": 0}, "samples is 0"),
        ({"temperature": -1.0}, "temperature is -1.0, expected 0 or a positive number"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0"),
        ({"max_words": 0}, "max_words is 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(flat_model, wrong, message):
    with pytest.raises(elmokit.InputError, match=message):
        flat_model.sample("word1", **wrong)
