import torch

from elmokit.model.dropout import Dropout
from elmokit.model.lstm import ProjectedLSTM
from elmokit.model_config import BiLMConfig


def dropout(seed=0, **rates):
    return Dropout(**{"rate": 0.0, **rates}, generator=torch.Generator().manual_seed(seed))


def test_rate_zero_changes_nothing():
    vectors = torch.ones(6, 4)
    no_dropout = dropout()
    assert no_dropout(vectors, [3, 3]) is vectors
    assert no_dropout.drop_weights(vectors) is vectors
    assert no_dropout.drop_words(vectors) is vectors


def test_variational_dropout_has_one_mask_for_all_steps():
    ones = torch.ones(30, 50)
    first, second = dropout(rate=0.4, variational=True)(ones, [15, 15]).split(15)
    assert torch.equal(first, second)
    first, second = dropout(rate=0.4)(ones, [15, 15]).split(15)
    assert not torch.equal(first, second)


def test_weights_are_dropped_one_by_one_and_words_as_a_whole():
    ones = torch.ones(400, 100)
    weights = dropout(weight_rate=0.25).drop_weights(ones)
    assert sorted(weights.unique().tolist()) == [0, torch.tensor(1 / 0.75).item()]
    assert abs(weights.mean() - 1) < 0.02
    words = dropout(word_rate=0.25).drop_words(ones)
    assert torch.equal(words.amin(1), words.amax(1))
    assert 0.15 < (words[:, 0] == 0).float().mean() < 0.35


def test_dropped_weights_get_no_gradient():
    torch.manual_seed(0)
    layer = ProjectedLSTM(
        BiLMConfig(projection_size=4, cell_size=6, num_layers=1, characters=None, vocabulary_size=3)
    )
    states = torch.ones(2, 4), torch.ones(2, 6)
    outputs, _, _ = layer(torch.randn(6, 4), [2, 2, 2], *states, dropout=dropout(weight_rate=0.5))
    outputs.sum().backward()
    dropped = dropout(weight_rate=0.5).drop_weights(torch.ones(24, 4)) == 0
    assert dropped.any()
    assert (layer.recurrent_weight.grad[dropped] == 0).all()
    assert (layer.recurrent_weight.grad[~dropped] != 0).all()
