"""What is missing is missing at the rate asked for, and the rest makes up for it."""

import torch

from elmokit.config import BiLMConfig
from elmokit.model.dropout import Dropout
from elmokit.model.lstm import ProjectedLSTM


def drawn(seed=0, **rates):
    return Dropout(**{"rate": 0.0, **rates}, generator=torch.Generator().manual_seed(seed))


def test_nothing_is_missing_at_rate_zero():
    vectors = torch.ones(6, 4)
    none = drawn()
    assert none(vectors, [3, 3]) is vectors
    assert none.drop_weights(vectors) is vectors
    assert none.drop_words(vectors) is vectors


def test_locked_numbers_are_missing_at_every_step():
    ones = torch.ones(30, 50)
    first, second = drawn(rate=0.4, variational=True)(ones, [15, 15]).split(15)
    assert torch.equal(first, second)
    first, second = drawn(rate=0.4)(ones, [15, 15]).split(15)
    assert not torch.equal(first, second)


def test_weights_are_missing_one_by_one_and_words_whole():
    ones = torch.ones(400, 100)
    weights = drawn(weight_rate=0.25).drop_weights(ones)
    assert sorted(weights.unique().tolist()) == [0, torch.tensor(1 / 0.75).item()]
    assert abs(weights.mean() - 1) < 0.02
    words = drawn(word_rate=0.25).drop_words(ones)
    assert torch.equal(words.amin(1), words.amax(1))
    assert 0.15 < (words[:, 0] == 0).float().mean() < 0.35


def test_a_layer_learns_only_what_is_not_missing():
    torch.manual_seed(0)
    layer = ProjectedLSTM(
        BiLMConfig(projection_size=4, cell_size=6, num_layers=1, characters=None, vocabulary_size=3)
    )
    states = torch.ones(2, 4), torch.ones(2, 6)
    read, _, _ = layer(torch.randn(6, 4), [2, 2, 2], *states, dropout=drawn(weight_rate=0.5))
    read.sum().backward()
    missing = drawn(weight_rate=0.5).drop_weights(torch.ones(24, 4)) == 0
    assert missing.any()
    assert (layer.recurrent_weight.grad[missing] == 0).all()
    assert (layer.recurrent_weight.grad[~missing] != 0).all()
