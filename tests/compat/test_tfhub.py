import numpy as np
import pytest
import torch

import elmokit
from elmokit.compat.tfhub import Module
from random_models import make_folder

TOKENS = [["the", "cat", "is"], ["dogs", "", ""]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def hub(folder):
    return Module(folder)


def test_the_tokens_signature_gives_every_output(hub, folder):
    actual = hub({"tokens": TOKENS, "sequence_len": [3, 1]}, signature="tokens", as_dict=True)
    assert {name: tuple(tensor.shape) for name, tensor in actual.items()} == {
        "word_emb": (2, 3, 6), "lstm_outputs1": (2, 3, 12), "lstm_outputs2": (2, 3, 12),
        "elmo": (2, 3, 12), "default": (2, 12),
    }  # fmt: skip
    first, second = elmokit.load(folder).embed([["the", "cat", "is"], ["dogs"]])
    np.testing.assert_allclose(actual["word_emb"][0], first[0][:, :6], atol=2e-6)
    np.testing.assert_allclose(actual["lstm_outputs1"][0], first[1], atol=2e-6)
    np.testing.assert_allclose(actual["lstm_outputs2"][1, :1], second[2], atol=2e-6)
    np.testing.assert_allclose(actual["elmo"][0].detach(), first.mean(0), atol=2e-6)


def test_default_is_the_mean_over_words(hub):
    actual = hub({"tokens": TOKENS, "sequence_len": [3, 1]}, signature="tokens", as_dict=True)
    torch.testing.assert_close(actual["default"][1], actual["elmo"][1, 0])
    torch.testing.assert_close(actual["default"][0], actual["elmo"][0].mean(0))
    assert not actual["elmo"][1, 1:].any()


def test_strings_are_split_at_plain_spaces(hub):
    strings = hub(["the cat is", "dogs"], as_dict=True)
    tokens = hub({"tokens": TOKENS, "sequence_len": [3, 1]}, signature="tokens", as_dict=True)
    assert all(torch.equal(strings[name], tokens[name]) for name in tokens)
    assert torch.equal(hub(["the cat is", "dogs"]), strings["default"])


@pytest.mark.parametrize("texts", [[], [""], ["one"], ["", "one"]])
def test_empty_and_single_inputs_work(hub, texts):
    actual = hub(texts, as_dict=True)
    assert actual["default"].shape == (len(texts), 12)
    assert torch.isfinite(actual["default"]).all()


def test_texts_and_tokens_may_be_arrays_of_bytes(hub):
    texts = ["naïve cat", "dogs"]
    encoded = [text.encode() for text in texts]
    for array in (np.array(texts), np.array(encoded), np.array(encoded, object)):
        torch.testing.assert_close(hub(array), hub(texts))
    tokens, lengths = np.array([[b"a", b"cat"], [b"dogs", b""]], object), np.array([2, 1])
    inputs = {"tokens": tokens, "sequence_len": lengths}
    torch.testing.assert_close(hub(inputs, signature="tokens"), hub(["a cat", "dogs"]))


def test_calls_are_independent(hub):
    assert torch.equal(hub(["the cat"]), hub(["the cat"]))


def test_only_the_four_scalars_are_trained(folder):
    hub = Module(folder, trainable=True)
    hub(["the cat"]).sum().backward()
    learning = {name: p.numel() for name, p in hub.named_parameters() if p.requires_grad}
    assert learning == {"aggregation.weights": 3, "aggregation.scale": 1}
    assert all(p.grad is not None for p in hub.aggregation.parameters())
    assert not any(p.requires_grad for p in Module(folder).parameters())


def test_one_string_is_refused(hub):
    with pytest.raises(TypeError, match="inputs is one string, expected a list of strings"):
        hub("the cat")
    with pytest.raises(TypeError, match="inputs is one string, expected a list of strings"):
        hub(np.array("the cat"))
    with pytest.raises(TypeError, match=r"text 1 of inputs is a float .nan., expected a string"):
        hub(["the cat", np.nan])
    assert torch.equal(hub(["the cat"], signature=None), hub(["the cat"]))


@pytest.mark.parametrize(
    ("inputs", "signature", "message"),
    [
        (["a"], "tokens", "takes a dictionary with tokens and sequence_len"),
        (
            {"tokens": ["a cat"], "sequence_len": [2]},
            "tokens",
            r"row 0 of tokens is one string \('a cat'\), expected its tokens",
        ),
        ({"tokens": [["a"]], "sequence_len": [1, 1]}, "tokens", "1 rows of tokens, but 2 lengths"),
        (
            {"tokens": [["a"]], "sequence_len": [2]},
            "tokens",
            "sequence_len of sentence 0 is 2, but",
        ),
        (
            {"tokens": [["a"]], "sequence_len": [[1]]},
            "tokens",
            r"sequence_len is \[\[1\]\], expected a number for each row",
        ),
        (["a"], "words", "signature is 'words', expected 'default' or 'tokens'"),
        ({"strings": ["a"]}, "default", "takes a list of strings; signature=.tokens. a dictionary"),
    ],
)
def test_invalid_inputs_are_named(hub, inputs, signature, message):
    with pytest.raises(elmokit.InputError, match=message):
        hub(inputs, signature=signature)
