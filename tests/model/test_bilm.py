import pytest
import torch

from elmokit.batching import Batch
from elmokit.character_ids import CharacterIndexer
from elmokit.errors import ConfigError, InputError
from elmokit.model.bilm import BiLM, PackedSteps, State
from elmokit.model_config import BiLMConfig, CharacterConfig
from random_models import SIZES

CHARACTERS = CharacterConfig(embedding_size=4, filters=((1, 4), (2, 8)), highway_layers=1)
CONFIG = BiLMConfig(projection_size=6, cell_size=10, num_layers=2, characters=CHARACTERS)
SENTENCES = [["one"], ["a", "longer", "sentence", "."], [], ["two", "words"]]


def batch_of(sentences):
    return Batch.from_sentences(sentences, CharacterIndexer(50))


@pytest.mark.parametrize(
    ("size", "parameters"),
    [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)],
)
def test_the_published_sizes_have_the_published_parameters(size, parameters):
    with torch.device("meta"):
        model = BiLM(SIZES[size])
    counted = sum(parameter.numel() for parameter in model.parameters())
    # The files have no row for padding words.
    assert counted - 16 == parameters


def test_padding_is_zero_in_every_layer():
    batch = batch_of(SENTENCES)
    layers, _ = BiLM(CONFIG)(batch)
    assert layers.shape == (3, 4, 6, 12)
    assert not layers[:, ~batch.mask].any()
    assert layers[:, batch.mask].abs().sum(2).min() > 0


def test_layer_0_is_the_word_vector_twice():
    layers, _ = BiLM(CONFIG)(batch_of(SENTENCES))
    assert torch.equal(layers[0, ..., :6], layers[0, ..., 6:])


def test_each_direction_sees_one_side_only():
    bilm = BiLM(CONFIG)
    first, _ = bilm(batch_of([["a", "b", "c", "d"]]))
    other, _ = bilm(batch_of([["a", "b", "x", "d"]]))
    same = (first == other).all(3)[:, 0]  # (layers, steps)
    forward = (first[..., :6] == other[..., :6]).all(3)[1:, 0]
    backward = (first[..., 6:] == other[..., 6:]).all(3)[1:, 0]
    assert same[0].tolist() == [True, True, True, False, True, True]
    assert forward.tolist() == [[True, True, True, False, False, False]] * 2
    assert backward.tolist() == [[False, False, False, False, True, True]] * 2


def test_text_in_two_parts_with_state_equals_text_in_one():
    bilm = BiLM(BiLMConfig(**{**vars(CONFIG), "directions": ("forward",)}))
    types = torch.randn(5, 6)
    types[0] = 0
    words = torch.tensor([[1, 2, 3, 4, 1, 2], [4, 3, 2, 1, 4, 3]])
    both, end = bilm.run_lstms(types, words)
    first, state = bilm.run_lstms(types, words[:, :4])
    second, state = bilm.run_lstms(types, words[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 2), both)
    torch.testing.assert_close(state.cell, end.cell)


def test_a_sentence_of_padding_keeps_its_state():
    bilm = BiLM(CONFIG)
    state = State(torch.randn(2, 2, 2, 6), torch.randn(2, 2, 2, 10))
    _, after = bilm.run_lstms(torch.randn(3, 6), torch.tensor([[1, 2], [0, 0]]), state)
    assert torch.equal(after.hidden[:, :, 1], state.hidden[:, :, 1])
    assert torch.equal(after.cell[:, :, 1], state.cell[:, :, 1])
    assert not torch.equal(after.cell[:, :, 0], state.cell[:, :, 0])


@pytest.mark.parametrize("layers", [(0,), (1,), (2, 0), (2,), ()])
@pytest.mark.parametrize("directions", [("forward",), ("backward",), ("forward", "backward")])
def test_chosen_layers_and_directions_equal_those_of_a_full_run(layers, directions):
    bilm = BiLM(CONFIG)
    batch = batch_of(SENTENCES)
    everything, _ = bilm(batch)
    chosen, _ = bilm.run_lstms(
        bilm.encode(batch.chars), batch.words, layers=layers, directions=directions
    )
    halves = {"forward": everything[..., :6], "backward": everything[..., 6:]}
    expected = torch.cat([halves[d] for d in directions], 3)[list(layers)]
    torch.testing.assert_close(chosen, expected)


def test_a_state_of_another_batch_is_refused():
    bilm = BiLM(CONFIG)
    _, state = bilm(batch_of(SENTENCES))
    with pytest.raises(InputError, match="the state is of 4 sentences, but the batch has 1"):
        bilm(batch_of(SENTENCES[:1]), state)


def test_packed_steps_hold_every_token_in_order():
    packed = PackedSteps.of(torch.tensor([[5, 6, 0], [7, 8, 9], [0, 0, 0]]))
    words = torch.tensor([5, 6, 0, 7, 8, 9, 0, 0, 0])
    assert packed.batch_sizes == [2, 2, 1]
    assert packed.sentence_order.tolist() == [1, 0, 2]
    assert words[packed.token_indices["forward"]].tolist() == [7, 5, 8, 6, 9]
    assert words[packed.token_indices["backward"]].tolist() == [9, 6, 8, 5, 7]


def test_no_sentences_give_no_vectors():
    layers, _ = BiLM(CONFIG)(batch_of([]))
    assert layers.shape == (3, 0, 2, 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"projection_size": 0}, "projection_size is 0, expected 1 to 1,048,576"),
        ({"num_layers": 0}, "num_layers is 0, expected 1 to 100"),
        ({"projection_size": 11}, r"projection_size is 11, expected at most cell_size \(10\)"),
        ({"directions": ("backward", "forward")}, "directions is"),
        ({"characters": None}, "expected either characters"),
        ({"vocabulary_size": 3}, "expected either characters"),
        ({"cell_clip": 0.0}, "cell_clip is 0.0, expected a positive number"),
    ],
)
def test_impossible_configurations_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        BiLMConfig(**{**vars(CONFIG), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_characters": 2}, "max_characters is 2, expected 3 to 1,000: begin and end"),
        ({"max_characters": 2**20}, "max_characters is 1,048,576, expected 3 to 1,000: begin"),
        ({"filters": ()}, "filters is empty"),
        ({"filters": ((51, 3),)}, "a width is 51, expected at most max_characters .50."),
        ({"filters": ((1, 0),)}, "a number of filters is 0, expected 1 to"),
        ({"activation": "gelu"}, "activation is 'gelu', expected 'relu' or 'tanh'"),
        ({"highway_layers": -1}, "highway_layers is -1"),
    ],
)
def test_impossible_character_cnns_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        CharacterConfig(**{**vars(CHARACTERS), **changes})
