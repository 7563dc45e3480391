"""What each precision costs: parity, determinism and bounds, for all three."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import elmokit
from elmokit import LoadOptions, threads
from elmokit.errors import InputError
from elmokit.model import bilm
from elmokit.model.bilm import LanguageModel
from random_models import SIZES

SENTENCES = [
    ["The", "old", "man", "sat", "on", "the", "bank", "of", "the", "river", "."],
    ["She", "opened", "an", "account", "at", "the", "bank", "."],
    ["Nobody", "knew"],
    ["Work", "!"],
]
PRECISIONS = ["float32", "half", "int8"]
WORST_COSINE = {
    "torch": {"float32": 0.999999, "half": 0.99999, "int8": 0.99},
    "numba": {"float32": 0.999999, "half": 0.99999, "int8": 0.999},
}


@pytest.fixture(params=["torch", "numba"])
def kernel(request):
    if request.param == "numba":
        pytest.importorskip("numba")
    return request.param


@pytest.fixture(scope="module")
def pretrained():
    """The published Small with vectors of about unit size, as trained models have."""
    torch.manual_seed(0)
    model = elmokit.BiLM(SIZES["small"])
    with torch.no_grad():
        for stack in model.lstms:
            for layer in stack.layers:
                layer.input_weight.mul_(3)
                layer.projection.mul_(3)
    return elmokit.Pretrained(LanguageModel(model))


@pytest.fixture(scope="module")
def exact(pretrained):
    return elmokit.Embedder(pretrained, LoadOptions(kernel="torch")).embed(SENTENCES)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_are_close_in_every_precision(pretrained, exact, precision, kernel):
    options = LoadOptions(precision=precision, kernel=kernel)
    actual = elmokit.Embedder(pretrained, options).embed(SENTENCES)
    assert np.sqrt(np.square(exact[0][2]).mean()) > 0.5
    for one, other in zip(actual, exact, strict=True):
        assert one.dtype == np.float32
        assert cosines(one, other).min() >= WORST_COSINE[kernel][precision]
        np.testing.assert_array_equal(one[0], other[0])  # words are encoded in float32


def cosines(one, other):
    return (one * other).sum(2) / (np.linalg.norm(one, axis=2) * np.linalg.norm(other, axis=2))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_numbas_vectors_of_the_english_model_are_close_in_every_precision(precision):
    pytest.importorskip("numba")
    sentences = [*SENTENCES, [word for sentence in SENTENCES * 3 for word in sentence]]
    exact = elmokit.load(kernel="torch").embed(sentences)
    actual = elmokit.load(kernel="numba", precision=precision).embed(sentences)
    for one, other in zip(actual, exact, strict=True):
        assert cosines(one, other).min() >= WORST_COSINE["numba"][precision]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_repeating_a_call_gives_the_same_bits(pretrained, precision, kernel):
    model = elmokit.Embedder(pretrained, LoadOptions(precision=precision, kernel=kernel))
    first = model.embed(SENTENCES)
    model.embed([["something", "else"]])
    for one, again in zip(first, model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(one, again)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-6), ("half", 1e-5)])
def test_other_sentences_in_a_batch_hardly_change_a_sentence(
    pretrained, precision, tolerance, kernel
):
    model = elmokit.Embedder(pretrained, LoadOptions(precision=precision, kernel=kernel))
    together = model.embed(SENTENCES)
    for sentence, expected in zip(SENTENCES, together, strict=True):
        np.testing.assert_allclose(model.embed([sentence])[0], expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_numbas_vectors_have_the_same_bits_alone_and_in_any_batch(pretrained, precision):
    pytest.importorskip("numba")
    model = elmokit.Embedder(pretrained, LoadOptions(precision=precision, kernel="numba"))
    alone = [model.embed([sentence])[0] for sentence in SENTENCES]
    for together in (model.embed(SENTENCES * 16)[-4:], model.embed(SENTENCES[::-1])[::-1]):
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_vectors_do_not_depend_on_the_number_of_threads(pretrained, precision, threads, kernel):
    before = torch.get_num_threads()
    options = LoadOptions(precision=precision, kernel=kernel)
    model = elmokit.Embedder(pretrained, replace(options, threads=1))
    one = model.embed(SENTENCES)
    model = elmokit.Embedder(pretrained, replace(options, threads=threads))
    many = model.embed(SENTENCES * 12)
    for ours, theirs in zip(one, many[:4], strict=True):
        if precision == "float32" or kernel == "numba":
            np.testing.assert_array_equal(ours, theirs)
        close = 0.1 if precision == "int8" else 1e-5  # int8 rounds the rows of a batch together
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=close)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("dim", [64, 300])  # with a small projection, and with a large one
def test_running_both_directions_at_once_changes_no_bit(dim, kernel, monkeypatch):
    config = replace(SIZES["small"], projection_size=dim, cell_size=4160, num_layers=1)
    torch.manual_seed(0)
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(config)))
    at_once = []

    def run(jobs):
        at_once.append(len(jobs))
        return threads.run_side_by_side(jobs)

    monkeypatch.setattr(bilm, "run_side_by_side", run)
    model = elmokit.Embedder(pretrained, LoadOptions(threads=2, kernel=kernel))
    packed = len(at_once)
    together = model.embed(SENTENCES * 12)
    assert at_once[packed:] == [2]
    for sentence, expected in zip(SENTENCES, together[:4], strict=True):
        np.testing.assert_array_equal(model.embed([sentence])[0], expected)


def test_invalid_settings_are_refused(pretrained):
    with pytest.raises(InputError, match="precision is 'int4', expected 'float32', 'half' or 'int"):
        elmokit.Embedder(pretrained, LoadOptions(precision="int4"))
    with pytest.raises(InputError, match="kernel is 'C', expected 'auto', 'torch' or 'numba'"):
        elmokit.Embedder(pretrained, LoadOptions(kernel="C"))
    with pytest.raises(InputError, match="threads is 0, expected 1 or more"):
        elmokit.Embedder(pretrained, LoadOptions(threads=0))
