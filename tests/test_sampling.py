"""What is drawn follows the probabilities, and can be drawn again."""

from collections import Counter

import numpy as np
import pytest
import torch

import elmokit
from bigram import bigram_model
from random_models import make_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("model"), softmax_words=9, size=0.7)
    return elmokit.load(folder)


@pytest.mark.parametrize(
    ("direction", "temperature", "top_k"),
    [("forward", 1.0, None), ("forward", 0.5, None), ("forward", 2.0, 3), ("backward", 1.0, 4)],
)
def test_words_are_drawn_as_often_as_they_are_likely(model, direction, temperature, top_k):
    ask = model.next_words if direction == "forward" else model.previous_words
    chances = {word: p ** (1 / temperature) for word, p in ask("word1", k=top_k or 100)}
    draws = 4000
    drawn = model.sample(
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
def test_the_readers_remember_all_that_was_drawn(tmp_path, direction, state):
    model = elmokit.load(make_folder(tmp_path, softmax_words=300, size=1.5), state=state)
    (drawn,) = model.sample(["cat"], temperature=0, max_words=8, direction=direction)
    ask = model.next_words if direction == "forward" else model.previous_words
    words = ["cat"]
    while len(words) < 9 and (best := ask(words, k=1)[0].word) not in ("<S>", "</S>"):
        words = [*words, best] if direction == "forward" else [best, *words]
    assert drawn == words
    assert len(drawn) > 2


def test_a_seed_draws_the_same_again_however_many_are_drawn(model):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    many = model.sample("word1", samples=8, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.sample("word1", samples=3, seed=5) == many[:3]
    assert model.sample("word1", samples=8, seed=6) != many
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


def test_no_temperature_is_too_small(model):
    best = model.sample("word1", temperature=0)
    assert model.sample("word1", temperature=5e-324) == best


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
def test_settings_that_cannot_be_are_refused(model, wrong, message):
    with pytest.raises(elmokit.InputError, match=message):
        model.sample("word1", **wrong)
