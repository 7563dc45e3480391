import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.character_ids import CharacterIndexer
from elmokit.model.char_cnn import CharacterEncoder, Highway
from elmokit.model_config import CharacterConfig
from random_models import SIZES

CONFIG = CharacterConfig(embedding_size=4, filters=((1, 8), (3, 16), (7, 40)), highway_layers=2)


def chars_of(words, width=50):
    return torch.from_numpy(CharacterIndexer(width).encode(words)[0])


@given(st.lists(st.text(max_size=60), min_size=1, max_size=40), st.randoms())
def test_a_words_bits_do_not_depend_on_other_words(words, random):
    torch.manual_seed(0)
    encoder = CharacterEncoder(CONFIG, dim=6)
    chosen = random.choice(words)
    with torch.no_grad():
        together = encoder(chars_of(words))[words.index(chosen)]
        alone = encoder(chars_of([chosen]))[0]
    assert torch.equal(together, alone)


def test_at_the_published_size_bits_do_not_depend_on_other_words():
    small = SIZES["small"]
    encoder = CharacterEncoder(small.characters, small.projection_size)
    words = [f"word{'s' * (k % 30)}{k}" for k in range(100)]
    with torch.no_grad():
        together = encoder(chars_of(words))
        for k in (0, 17, 99):
            assert torch.equal(encoder(chars_of([words[k], "x"]))[0], together[k])


def test_cutting_padding_changes_nothing():
    """The long word keeps all positions; a plain convolution over all of them agrees."""
    encoder = CharacterEncoder(CONFIG, dim=6)
    chars = chars_of(["a", "ab" * 30, "word", ""])
    characters = encoder.embedding(chars).transpose(1, 2)
    features = []
    for (seen, made), layer in zip(CONFIG.filters, encoder.filters, strict=True):
        kernel = layer.weight.view(made, seen, 4).transpose(1, 2)
        features.append(torch.conv1d(characters, kernel, layer.bias).amax(2).relu())
    expected = torch.cat(features, 1)
    for highway in encoder.highways:
        expected = highway(expected)
    torch.testing.assert_close(encoder(chars), encoder.projection(expected))


def test_training_and_inference_give_the_same_vectors():
    encoder = CharacterEncoder(CONFIG, dim=6)
    chars = chars_of(["a", "word", "longer words", "x" * 60])
    with torch.no_grad():
        used = encoder(chars)
    torch.testing.assert_close(encoder(chars), used)


def test_padding_gets_no_gradient():
    encoder = CharacterEncoder(CONFIG, dim=6)
    encoder(chars_of(["a", "b"])).sum().backward()
    assert encoder.embedding.weight.grad is not None
    assert not encoder.embedding.weight.grad[0].any()


def test_a_closed_highway_gate_passes_the_vector():
    highway = Highway(3)
    x = torch.randn(2, 3)
    torch.nn.init.constant_(highway.gate.bias, -100.0)
    torch.testing.assert_close(highway(x), x)
    torch.nn.init.constant_(highway.gate.bias, 100.0)
    torch.testing.assert_close(highway(x), torch.relu(highway.transform(x)))


@pytest.mark.parametrize("dim", [64, 6])
def test_there_is_a_projection_only_where_sizes_differ(dim):
    encoder = CharacterEncoder(CONFIG, dim=dim)
    assert (encoder.projection is None) == (dim == 64)
    assert encoder(chars_of(["a"])).shape == (1, dim)
