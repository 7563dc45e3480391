"""The layer in Keras's own models: vectors, masks, training, files."""

import importlib
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import elmokit
from random_models import make_folder

os.environ["KERAS_BACKEND"] = "torch"
os.environ["KERAS_HOME"] = tempfile.mkdtemp()  # where Keras writes its settings at its import
keras = pytest.importorskip("keras", reason="Keras is not installed")

from elmokit.integrations.keras import ElmoEmbedding, TextDataset, character_ids  # noqa: E402

# Keras 3.15 with NumPy 2: its tensors do not know the argument `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

TEXTS = ["I ate an apple. It was good.", "A shop.", "", ("New", "shops"), "What?"]
LABELS = [1, 0, 0, 1, 0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(make_folder(tmp_path_factory.mktemp("model")))


def classifier(folder, *, width=50):
    ids = keras.Input((None, width), dtype="int32")
    words = keras.layers.Bidirectional(keras.layers.LSTM(4))(ElmoEmbedding(folder)(ids))
    model = keras.Model(ids, keras.layers.Dense(1, "sigmoid")(words))
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy")
    return model


def words_of(model, text):
    return [word for sentence in model.tokenize(text) for word in sentence]


def test_vectors_are_those_of_embed_with_the_mix(folder):
    layer = ElmoEmbedding(folder)
    vectors = keras.ops.convert_to_numpy(layer(character_ids(TEXTS, folder)))
    layer.set_weights([np.array([0.5, -1, 0.2], np.float32), np.float32(1.5)])
    changed = keras.ops.convert_to_numpy(layer(character_ids(TEXTS, folder)))
    model = elmokit.load(folder)
    assert vectors.shape == (5, 9, model.dim)
    for text, *rows in zip(TEXTS, vectors, changed, strict=True):
        words = words_of(model, text)
        for row, layers in zip(rows, ("mean", layer.scalar_mix()), strict=True):
            (expected,) = model.embed([words], layers=layers)
            np.testing.assert_allclose(row[: len(words)], expected[0], atol=2e-6)
            assert not row[len(words) :].any()


def test_a_batch_may_have_any_leading_dimensions(folder):
    layer = ElmoEmbedding(folder)
    ids = character_ids(TEXTS[:4], folder)
    expected = keras.ops.convert_to_numpy(layer(ids))
    actual = keras.ops.convert_to_numpy(layer(ids.reshape(2, 2, *ids.shape[1:])))
    np.testing.assert_array_equal(actual.reshape(expected.shape), expected)


def test_padding_changes_nothing(folder):
    model = classifier(folder)
    together = model.predict(TextDataset(TEXTS, model=folder), verbose=0)
    alone = [model.predict(TextDataset([text], model=folder), verbose=0)[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    ids = character_ids(TEXTS, folder)
    longer = np.concatenate([ids, np.zeros_like(ids)], 1)
    np.testing.assert_allclose(model.predict(longer, verbose=0), together, atol=1e-6)


def test_layers_that_follow_see_the_mask(folder):
    ids = keras.Input((None, 50), dtype="int32")
    words = ElmoEmbedding(folder)(ids)
    model = keras.Model(ids, [words, keras.layers.GlobalAveragePooling1D()(words)])
    texts = [text for text in TEXTS if text]
    vectors, means = model.predict(TextDataset(texts, model=folder), verbose=0)
    embedder = elmokit.load(folder)
    for row, mean, text in zip(vectors, means, texts, strict=True):
        np.testing.assert_allclose(mean, row[: len(words_of(embedder, text))].mean(0), atol=1e-6)


def test_training_moves_the_mix_and_nothing_else_of_the_layer(folder):
    fingerprint = elmokit.load(folder).pretrained.fingerprint()
    model = classifier(folder)
    layer = model.layers[1]
    assert [weight.name for weight in layer.weights] == ["mix_weights", "mix_scale"]
    losses = model.fit(
        TextDataset(TEXTS, LABELS, model=folder, batch_size=2, shuffle=True), epochs=15, verbose=0
    ).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    mix = layer.scalar_mix()
    assert np.ptp(mix.weights.tolist()) > 1e-3
    assert mix.scale != 1
    assert elmokit.load(folder).pretrained.fingerprint() == fingerprint
    assert not ElmoEmbedding(folder, trainable=False).trainable_weights


def test_a_saved_model_predicts_the_same_and_refuses_another_elmo(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    make_folder(folder)
    model = classifier(str(folder))
    model.fit(TextDataset(TEXTS, LABELS, model=str(folder)), epochs=2, verbose=0)
    model.save(tmp_path / "saved.keras")
    assert (tmp_path / "saved.keras").stat().st_size < 100_000
    ids = character_ids(TEXTS, str(folder))
    expected = model.predict(ids, verbose=0)
    restored = keras.models.load_model(tmp_path / "saved.keras")
    np.testing.assert_array_equal(restored.predict(ids, verbose=0), expected)
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    np.testing.assert_array_equal(cloned.predict(ids, verbose=0), expected)
    folder.rename(tmp_path / "old")
    folder.mkdir()
    make_folder(folder, size=2.0)
    with pytest.raises(
        elmokit.InputError, match=r"layer 'elmo_embedding\w*' was made with another"
    ):
        keras.models.load_model(tmp_path / "saved.keras")


@pytest.mark.full
def test_a_saved_model_predicts_the_same_in_another_process(folder, tmp_path):
    model = classifier(folder)
    model.fit(TextDataset(TEXTS, LABELS, model=folder), verbose=0)
    model.save(tmp_path / "saved.keras")
    np.save(tmp_path / "expected.npy", model.predict(character_ids(TEXTS, folder), verbose=0))
    code = f"""
from elmokit.integrations.keras import character_ids  # it chooses the backend
import keras, numpy
model = keras.models.load_model("saved.keras")
predicted = model.predict(character_ids({TEXTS!r}, {folder!r}), verbose=0)
numpy.testing.assert_array_equal(predicted, numpy.load("expected.npy"))
"""
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)


def test_with_mixed_precision_ids_stay_exact(folder):
    ids = character_ids(["ÿÿ þþ"], folder)
    assert ids.max() > 256  # bfloat16 has no such numbers
    layer = ElmoEmbedding(folder, dtype="mixed_bfloat16")
    vectors = layer(ids.astype(np.float32))
    assert keras.backend.standardize_dtype(vectors.dtype) == "bfloat16"
    exact = keras.ops.convert_to_numpy(ElmoEmbedding(folder)(ids))
    np.testing.assert_allclose(vectors.float().detach(), exact, rtol=0.01)


def test_a_dataset_has_each_text_once_with_its_label(folder):
    texts = [[f"word{number}"] * (1 + number % 3) for number in range(10)]
    ids = character_ids(texts, folder)
    for shuffle in (False, True):
        dataset = TextDataset(
            texts, np.arange(10), model=folder, batch_size=4, shuffle=shuffle, max_words=2
        )
        assert len(dataset) == 3
        orders = []
        for _ in range(2):
            batches = [dataset[index] for index in range(3)]
            orders.append(np.concatenate([labels for _, labels in batches]))
            for batch, labels in batches:
                assert batch.shape[1] <= 2
                for row, label in zip(batch, labels, strict=True):
                    np.testing.assert_array_equal(row, ids[label, : len(row)])
            dataset.on_epoch_end()
            assert sorted(orders[-1]) == [*range(10)]
        assert all((order == np.arange(10)).all() != shuffle for order in orders)
        assert (orders[0] == orders[1]).all() != shuffle
    assert TextDataset([], model=folder).num_batches == 0
    assert character_ids([], folder).shape == (0, 1, 50)


@pytest.mark.parametrize(
    "strings", ["A shop.", ["A shop."], [["A", "shop"], ["What"]], np.array(["A shop."]), None]
)
def test_strings_are_refused_and_the_way_out_is_named(strings, folder):
    layer = ElmoEmbedding(folder)
    given = keras.Input((), dtype="string") if strings is None else strings
    with pytest.raises(elmokit.InputError, match=r"was given strings, .* character_ids\(texts\)"):
        layer(given)


def test_mistakes_are_explained(folder, tmp_path):
    with pytest.raises(elmokit.InputError, match=r"shape \(None, None, 16\), .* words, 50\):"):
        ElmoEmbedding(folder)(keras.Input((None, 16), dtype="int32"))
    with pytest.raises(elmokit.InputError, match=r"2 texts, but 1 labels"):
        TextDataset(["a", "b"], [1], model=folder)
    with pytest.raises(elmokit.InputError, match=r"batch_size is 0, expected 1 or more"):
        TextDataset(["a"], model=folder, batch_size=0)
    with pytest.raises(elmokit.InputError, match=r"max_words is 0, expected 1 or more"):
        character_ids(["a"], folder, max_words=0)
    with pytest.raises(TypeError, match=r"texts is one string"):
        character_ids("a", folder)
    word_level = make_folder(tmp_path, characters=False, table_words=9)
    with pytest.raises(elmokit.InputError, match=r"looks words up in a vocabulary"):
        TextDataset(["a"], model=str(word_level))


@pytest.mark.full
def test_another_backend_in_the_environment_is_refused_in_a_sentence():
    done = subprocess.run(
        [sys.executable, "-c", "import elmokit.integrations.keras"],
        env={**os.environ, "KERAS_BACKEND": "jax"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    message = "torch backend, and this is jax; set KERAS_BACKEND=torch before Keras is imported"
    assert message in done.stderr.splitlines()[-1]


def test_another_backend_of_keras_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.delitem(sys.modules, "elmokit.integrations.keras")
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    with pytest.raises(elmokit.InputError, match=r"torch backend, and this is tensorflow; set"):
        importlib.import_module("elmokit.integrations.keras")


def test_without_keras_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "elmokit.integrations.keras")
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(elmokit.InputError, match=r"pip install 'elmokit\[keras\]'"):
        importlib.import_module("elmokit.integrations.keras")
