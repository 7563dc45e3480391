import numpy as np
import pytest

import elmokit
from random_models import FILTERS, make_options, make_weights, write_files
from reference import Reference

SHAPES = {
    "published": {},
    "one layer": {"n_layers": 1},
    "three layers": {"n_layers": 3},
    "no highway": {"n_highway": 0},
    "two highways": {"n_highway": 2},
    "tanh": {"activation": "tanh"},
    "no skip": {"skip": False},
    "no clips": {"clips": (None, None)},
    "zero clips are no clips": {"clips": (0, 0)},
    "tight clips": {"clips": (0.3, 0.2)},
    "no LSTM projection": {"dim": 6, "projection_dim": 6},
    "no projection of characters": {"dim": 30, "projection_dim": 24},
    "30 characters": {"width": 30},
    "10 characters": {"width": 10},
    "261 characters": {"n_characters": 261},
    "filters as wide as a word": {"width": 10, "filters": [[1, 3], [10, 8]]},
    "words": {"characters": False, "table_words": 9},
    "forward only": {"directions": 1},
}
SENTENCES = [
    ["The", "cat", "sat", "on", "the", "mat", "."],
    ["Ünïcödé", "数学", "😀", "<UNK>", "word0", "word1"],
    ["a" * 100, "b" * 48, "c" * 47, "", "<S>", "</S>"],
    ["word3"],
    [],
]


@pytest.mark.parametrize("name", SHAPES)
def test_all_layers_agree_with_the_reference(name, tmp_path):
    shape = dict(SHAPES[name])
    files = {key: shape.pop(key) for key in ("directions", "table_words") if key in shape}
    options = make_options(**{"filters": FILTERS, **shape})
    options["bidirectional"] = files.get("directions", 2) == 2
    weights = make_weights(options, **files, size=1.5)
    vocabulary = ["<S>", "</S>", "<UNK>", *(f"word{k}" for k in range(6))]
    write_files(tmp_path, options, weights, vocabulary if "table_words" in files else None)

    reference = Reference(options, weights, vocabulary)
    model = elmokit.load(tmp_path)
    carrying = elmokit.load(tmp_path, state="carry")
    states = [None] * len(SENTENCES)
    for _ in range(2):
        fresh, carried = model.embed(SENTENCES), carrying.embed(SENTENCES)
        for number, sentence in enumerate(SENTENCES):
            expected, _ = reference.layers(sentence)
            np.testing.assert_allclose(fresh[number], expected, rtol=0, atol=1e-5)
            expected, states[number] = reference.layers(sentence, states[number])
            np.testing.assert_allclose(carried[number], expected, rtol=0, atol=1e-5)


def test_tight_clips_are_active():
    """Otherwise the comparison above would not test them."""
    options = make_options(clips=(0.3, 0.2))
    _, state = Reference(options, make_weights(options, size=1.5)).layers(SENTENCES[0])
    for cell, output in state.values():
        assert (np.abs(cell) == 0.3).any()
        assert (np.abs(output) == 0.2).any()
