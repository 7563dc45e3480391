"""What encode means by layers and pooling, and the heads that come with a model."""

import json
import logging
import pickle

import h5py
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import elmokit
from elmokit.errors import FormatError, InputError
from elmokit.model.sentence_head import SentenceHead, SentenceHeadConfig
from elmokit.pooling import HEADS, unit_vectors
from elmokit.text_pooling import TextPooling, spelling_signs, table_rows
from elmokit.vocab import Vocabulary
from random_models import make_options, make_weights, write_files

WORDS = ["the", "bank", "lent", "money", "river", "Bank", "old", "boat"]
TEXTS = ["The bank lent money.", "", "An old boat. The river!", "."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with a vocabulary and without heads."""
    return make_model(tmp_path_factory.mktemp("heads"))


def make_model(folder, **shape):
    vocabulary = ["<S>", "</S>", "<UNK>", *WORDS]
    options = make_options(**shape) | {"bidirectional": True}
    weights = make_weights(options, softmax_words=len(vocabulary))
    return write_files(folder, options, weights, vocabulary)


@pytest.fixture
def plain(folder):
    return elmokit.load(folder)


@pytest.fixture
def model(plain):
    """The model with both heads."""
    plain.add_head(
        "whitened", elmokit.fit_whitened(plain, [f"{a} {b}" for a in WORDS for b in WORDS])
    )
    plain.add_head("sentence", make_head())
    return plain


def make_head(**fields):
    head = SentenceHead(
        SentenceHeadConfig(
            context_free_size=6, projection_size=5, attention=True, context_layers=(1, 2),
            context_size=24, num_signs=10, table_words=8, table_codes=2, table_code_size=3,
            hidden_size=2, **fields,
        )
    )  # fmt: skip
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
        head.codes.random_(256)
    return head


def test_without_a_head_encode_gives_the_mean_of_words_and_layers(plain):
    assert plain.default_pooling == "mean"
    expected = plain.encode(TEXTS, layers="mean", pooling="mean")
    np.testing.assert_array_equal(plain.encode(TEXTS), expected)


def test_the_best_head_is_the_default_and_the_raw_form_one_argument_away(plain):
    mean = plain.encode(TEXTS)
    plain.add_head("whitened", elmokit.fit_whitened(plain, WORDS))
    assert plain.default_pooling == "whitened"
    np.testing.assert_array_equal(plain.encode(TEXTS), plain.encode(TEXTS, pooling="whitened"))
    plain.add_head("sentence", make_head())
    assert plain.default_pooling == "sentence"
    np.testing.assert_array_equal(plain.encode(TEXTS), plain.encode(TEXTS, pooling="sentence"))
    np.testing.assert_array_equal(plain.encode(TEXTS, pooling="mean"), mean)
    np.testing.assert_array_equal(plain.encode(TEXTS, layers="mean"), mean)
    top = plain.encode(TEXTS, layers="top", pooling="mean")
    np.testing.assert_array_equal(plain.encode(TEXTS, layers="top"), top)
    assert "heads ['whitened', 'sentence']" in repr(plain)


def test_a_head_gives_the_same_vector_in_any_batch_and_zero_for_no_words(model):
    for name, dim in (("sentence", 7), ("whitened", 6)):
        vectors = model.encode(TEXTS, pooling=name)
        assert vectors.shape == (4, dim)
        assert not vectors[1].any()
        assert np.isfinite(vectors).all()
        assert vectors[3].any()
        for text, vector in zip(TEXTS, vectors, strict=True):
            np.testing.assert_array_equal(model.encode(text, pooling=name), vector)
        unit = model.encode(TEXTS, pooling=name, normalize_embeddings=True)
        np.testing.assert_array_equal(unit, unit_vectors(vectors))


def test_whitened_is_the_whitening_of_idf_means(model):
    texts = [f"{a} {b}" for a in WORDS for b in WORDS]
    raw = model.encode(texts, layers=0, pooling="idf")
    found = model.encode(texts, pooling="whitened", normalize_embeddings=True)
    # The whitening of all dimensions, where half of them repeat the others, has the same cosines.
    expected = elmokit.Whitening.fit(raw[:, :6]).transform(raw[:, :6])
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)


def test_whitening_learns_nothing_from_texts_without_words(plain):
    one, other = (elmokit.fit_whitened(plain, texts) for texts in (WORDS, [*WORDS, "", " "]))
    torch.testing.assert_close(one.projection.weight, other.projection.weight)


def test_heads_read_layers_of_their_own(model):
    for name in HEADS:
        with pytest.raises(InputError, match=f"pooling '{name}' reads the layers .* leave out"):
            model.encode(TEXTS, layers="mean", pooling=name)


def test_a_head_that_is_not_there_is_named(plain, model_folder):
    with pytest.raises(InputError, match=r"'sentence' needs a head .* comes with none"):
        plain.encode(TEXTS, pooling="sentence")
    with pytest.raises(InputError, match="pooling 'sentence' needs a vocabulary"):
        elmokit.load(model_folder).encode(TEXTS, pooling="sentence")
    with pytest.raises(InputError, match="name is 'mine', expected one of sentence, whitened"):
        plain.add_head("mine", make_head())


def test_heads_are_saved_and_converted_with_the_model(model, tmp_path):
    expected = model.encode(TEXTS)
    model.save(tmp_path / "saved")
    assert {path.name for path in (tmp_path / "saved").glob("*.head.*")} == {
        "sentence.head.safetensors", "whitened.head.safetensors",
    }  # fmt: skip
    elmokit.convert(tmp_path / "saved", tmp_path / "again")
    for folder in ("saved", "again"):
        loaded = elmokit.load(tmp_path / folder)
        np.testing.assert_array_equal(loaded.encode(TEXTS), expected)
        whitened = loaded.encode(TEXTS, pooling="whitened")
        np.testing.assert_array_equal(whitened, model.encode(TEXTS, pooling="whitened"))


def test_a_head_fits_a_model_that_was_saved_in_float16(model, tmp_path):
    model.save(tmp_path / "half", half=True)
    loaded = elmokit.load(tmp_path / "half")
    assert loaded.pretrained.fingerprint() != model.pretrained.fingerprint()
    np.testing.assert_allclose(loaded.encode(TEXTS), model.encode(TEXTS), atol=0.05)


def test_numbers_that_float16_holds_are_stored_in_it(model, tmp_path):
    model.save(tmp_path / "exact")
    head = make_head()
    model.add_head("sentence", head.half().float())
    model.save(tmp_path / "rounded")
    sizes = [
        (tmp_path / name / "sentence.head.safetensors").stat().st_size
        for name in ("exact", "rounded")
    ]
    assert sizes[1] < 0.7 * sizes[0]
    loaded = elmokit.load(tmp_path / "rounded")
    np.testing.assert_array_equal(loaded.encode(TEXTS), model.encode(TEXTS))


def test_a_head_is_refused_by_other_weights(model, tmp_path, caplog):
    model.encode(TEXTS)
    with torch.no_grad():
        model.bilm.lstms[0].layers[0].bias.add_(1)
    with pytest.raises(InputError, match=r"was fitted to a model with .* fit it anew"):
        model.encode(TEXTS)
    assert model.encode(TEXTS, pooling="mean").any()
    with caplog.at_level(logging.WARNING):
        model.save(tmp_path / "changed")
    assert "the head 'sentence' is left out: the model's weights have changed" in caplog.text
    assert elmokit.load(tmp_path / "changed").default_pooling == "mean"


def test_a_head_of_another_model_is_refused_when_it_is_loaded(model, tmp_path):
    model.save(tmp_path / "saved")
    (tmp_path / "other").mkdir()
    other = make_model(tmp_path / "other", projection_dim=4)
    elmokit.convert(other, tmp_path / "other-saved")
    head = (tmp_path / "saved" / "sentence.head.safetensors").read_bytes()
    (tmp_path / "other-saved" / "sentence.head.safetensors").write_bytes(head)
    with pytest.raises(FormatError, match="'sentence' reads context-free vectors of 6 dimensions"):
        elmokit.load(tmp_path / "other-saved")
    (tmp_path / "saved" / "sentence.head.safetensors").write_bytes(head[:-20])
    with pytest.raises(FormatError, match=r"sentence\.head\.safetensors: .* cut short"):
        elmokit.load(tmp_path / "saved")
    (tmp_path / "saved" / "sentence.head.safetensors").write_bytes(
        (tmp_path / "saved" / "model.safetensors").read_bytes()
    )
    with pytest.raises(FormatError, match="expected a sentence head that elmokit wrote"):
        elmokit.load(tmp_path / "saved")


def test_a_head_of_a_size_that_no_memory_has_is_refused(model, tmp_path):
    model.save(tmp_path / "saved")
    file = tmp_path / "saved" / "sentence.head.safetensors"
    with safe_open(file, "pt") as opened:
        metadata = json.loads(opened.metadata()["head"])
    metadata["config"] |= {"table_words": 1, "table_codes": 2**24, "table_code_size": 2**24}
    save_file({"codes": torch.zeros(1)}, file, {"head": json.dumps(metadata)})
    with pytest.raises(FormatError, match=r"the features of a word need .* numbers, expected"):
        elmokit.load(tmp_path / "saved")


def test_fingerprints_count_the_head_that_is_used(model):
    plain = model.pretrained.fingerprint()
    assert model.pretrained.fingerprint("mean") == plain
    before = model.pretrained.fingerprint("sentence")
    assert before != plain
    model.add_head("sentence", make_head())
    assert model.pretrained.fingerprint("sentence") == before
    with torch.no_grad():
        head = make_head()
        head.attention[0] += 1
    model.add_head("sentence", head)
    assert model.pretrained.fingerprint("sentence") != before


def test_heads_survive_a_pickle(model):
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.encode(TEXTS), model.encode(TEXTS))


def test_a_file_may_hold_the_vectors_of_a_head(model, tmp_path):
    lines = ["the bank lent money", "", "old boat"]
    for name in HEADS:
        target = tmp_path / f"{name}.hdf5"
        elmokit.embed_file(model, lines, target, pooling=name)
        expected = model.encode([line.split() for line in lines], pooling=name)
        with h5py.File(target) as file:
            stored = np.stack([file[str(line)] for line in range(3)])
            assert file.attrs["pooling"] == name
            assert file.attrs["model"] == model.pretrained.fingerprint(name)
        np.testing.assert_array_equal(stored, expected)
    with pytest.raises(InputError, match="reads the layers that it was fitted to"):
        elmokit.embed_file(model, lines, tmp_path / "x.hdf5", layers="top", pooling="sentence")


def test_signs_depend_on_the_spelling_in_lower_case():
    signs = spelling_signs(["Bank", "bank", "banks"], 100)
    assert signs.shape == (3, 100)
    assert set(signs.ravel()) == {-1, 1}
    np.testing.assert_array_equal(signs[0], signs[1])
    assert abs(signs[1] @ signs[2]) < 40
    np.testing.assert_array_equal(spelling_signs(["é", "\ud800"], 8).shape, (2, 8))
    np.testing.assert_array_equal(spelling_signs(["bank"], 8)[0], [-1, -1, -1, 1, 1, 1, 1, 1])


def test_rows_of_the_table_are_those_of_the_vocabulary_in_lower_case():
    vocabulary = Vocabulary(["<S>", "The", "the", "Bank", "river"])
    rows = table_rows(["THE", "bank", "river", "sea"], vocabulary, 4)
    np.testing.assert_array_equal(rows, [1, 2, 3, -1])
    np.testing.assert_array_equal(table_rows(["river"], vocabulary, 3), [-1])


def test_words_are_compared_with_texts_as_texts_of_one_word(model):
    words = ["the", "bank", "."]
    for name in HEADS:
        pool = TextPooling.of(model.pretrained, pooling=name)
        (array,) = model.embed([words], layers=pool.layers)
        vectors = pool.word_vectors(array, words)
        for n, word in enumerate(words):
            np.testing.assert_allclose(vectors[n], pool([array[:, n : n + 1]], [word])[0], 1e-5)
        assert pool.word_vectors(array[:, :0], []).shape == (0, pool.dim)
    pool = TextPooling.of(model.pretrained, "top", "mean")
    (array,) = model.embed([words], layers="top")
    np.testing.assert_array_equal(pool.word_vectors(array, words), array[0])
