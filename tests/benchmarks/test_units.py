import math
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="module")
def units(script):
    return script("chinese.units")


def corpus(**unknown):
    known = ["<S>", "</S>", "<UNK>", "a"]
    counts = [0, 0, 0, 9, *unknown.values()]
    return SimpleNamespace(vocabulary=known, lexicon=[*known, *unknown], counts=counts)


def test_a_word_costs_what_its_bigrams_cost(units):
    spelled = units.spelling(corpus(bc=3, b=1), ["bc"])
    total = 3 * 3 + 2 + 2**16  # characters and ends of the unknown words, and one of each character
    expected = [
        (4 + 5 * (4 + 1) / total) / (4 + 5),  # b begins four of four
        (3 + 5 * (3 + 1) / total) / (4 + 5),  # c follows b three times of four
        (3 + 5 * (4 + 1) / total) / (3 + 5),  # the end follows c always
    ]
    assert spelled == pytest.approx(-sum(map(math.log, expected)))


def test_a_word_with_a_new_character_can_be_spelled(units):
    assert math.isfinite(units.spelling(corpus(b=1), ["z"]))
    assert units.spelling(corpus(b=1), ["z"]) > units.spelling(corpus(b=1), ["b"])
