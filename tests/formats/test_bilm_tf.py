import json
import os
from dataclasses import replace

import h5py
import numpy as np
import pytest

import elmokit
from elmokit import formats
from elmokit.errors import FormatError, InputError
from elmokit.model.bilm import LanguageModel
from random_models import make_folder, make_options, make_weights, write_files

SENTENCES = [["The", "cat", "word1"], ["sat"]]


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path)


def rewrite(folder, change):
    """Change the dictionary of options.json."""
    path = folder / "options.json"
    options = json.loads(path.read_text())
    change(options)
    path.write_text(json.dumps(options))


def refused(folder, message):
    with pytest.raises(FormatError, match=message):
        elmokit.load(folder)


@pytest.mark.parametrize("key", ["n_highway", "max_characters_per_token", "n_characters"])
def test_options_of_the_char_cnn_have_defaults(tmp_path, key):
    folder = make_folder(tmp_path, n_highway=0)
    expected = elmokit.load(folder).embed(SENTENCES)
    rewrite(folder, lambda options: options["char_cnn"].pop(key))
    assert_equal(elmokit.load(folder).embed(SENTENCES), expected)


@pytest.mark.parametrize("key", ["cell_clip", "proj_clip", "use_skip_connections", "n_layers"])
def test_options_of_the_lstm_have_defaults(tmp_path, key):
    folder = make_folder(tmp_path, n_layers=1, clips=(0, 0), skip=False)
    expected = elmokit.load(folder).embed(SENTENCES)
    rewrite(folder, lambda options: options["lstm"].pop(key))
    assert_equal(elmokit.load(folder).embed(SENTENCES), expected)


def test_training_keys_are_ignored(folder):
    rewrite(folder, lambda options: options.update(dropout=0.1, n_train_tokens=768648884))
    elmokit.load(folder)


@pytest.mark.parametrize("layers", [1, 2])
def test_names_that_bilm_tf_did_not_map_are_found(tmp_path, layers):
    options = make_options(n_layers=layers)
    weights = make_weights(options, directions=1)
    written = write_files(tmp_path, options | {"bidirectional": False}, weights)
    expected = elmokit.load(written).embed(SENTENCES)
    unmapped = {}
    for name, array in weights.items():
        left = name.replace("RNN_0/RNN/", "rnn/").replace("W_P_0", "projection/kernel")
        left = left.replace("Cell/W_0", "Cell/kernel").replace("Cell/B", "Cell/bias")
        unmapped[left.replace("MultiRNNCell/Cell0/", "") if layers == 1 else left] = array
    (tmp_path / "weights.hdf5").unlink()
    write_files(tmp_path, options, unmapped)
    assert_equal(elmokit.load(tmp_path).embed(SENTENCES), expected)


def test_a_single_layer_without_a_number_is_found(tmp_path):
    options = make_options(n_layers=1)
    weights = make_weights(options)
    expected = elmokit.load(write_files(tmp_path, options, weights)).embed(SENTENCES)
    (tmp_path / "weights.hdf5").unlink()
    short = {name.replace("MultiRNNCell/Cell0/", ""): array for name, array in weights.items()}
    write_files(tmp_path, options, short)
    assert_equal(elmokit.load(tmp_path).embed(SENTENCES), expected)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"softmax_words": 7},
        {"characters": False, "table_words": 9},
        {"dim": 6, "projection_dim": 6, "n_highway": 0, "activation": "tanh"},
        {"dim": 30, "projection_dim": 24, "clips": (None, 2.5), "skip": False, "width": 30},
        {"n_layers": 1},
        {"directions": 1},
    ],
)
def test_converting_there_and_back_loses_no_bit(tmp_path, shape):
    (tmp_path / "theirs").mkdir()
    source = make_folder(tmp_path / "theirs", **shape)
    elmokit.convert(source, tmp_path / "ours")
    elmokit.convert(tmp_path / "ours", tmp_path / "back", format="bilm-tf")
    elmokit.convert(tmp_path / "back", tmp_path / "again")
    first, again = h5py.File(source / "weights.hdf5"), h5py.File(tmp_path / "back" / "weights.hdf5")
    with first, again:
        assert names_in(first) == names_in(again)
        for name in names_in(first):
            np.testing.assert_array_equal(first[name][...], again[name][...])
    original = json.loads((source / "options.json").read_text())
    actual = json.loads((tmp_path / "back" / "options.json").read_text())
    assert actual["lstm"] == original["lstm"]
    assert actual["bidirectional"] == original["bidirectional"]
    assert actual.get("char_cnn") == original.get("char_cnn")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()
    vocabulary = source / "vocab.txt"
    if vocabulary.exists():
        assert (tmp_path / "back" / "vocab.txt").read_bytes() == vocabulary.read_bytes()


def test_models_that_bilm_tf_cannot_hold_are_refused(tmp_path):
    (tmp_path / "model").mkdir()
    make_folder(tmp_path / "model", directions=1)
    config = replace(elmokit.load(tmp_path / "model").bilm.config, directions=("backward",))
    backward = elmokit.Pretrained(LanguageModel(elmokit.BiLM(config)))
    with pytest.raises(FormatError, match="bilm-tf's files cannot hold a model with the back"):
        formats.save(backward, tmp_path / "out", format="bilm-tf")
    other = elmokit.Pretrained(
        LanguageModel(elmokit.BiLM(replace(config, directions=("forward",), forget_bias=0.0)))
    )
    with pytest.raises(FormatError, match=r"a model that adds 0\.0 to forget gates"):
        formats.save(other, tmp_path / "out", format="bilm-tf")
    with pytest.raises(InputError, match="bilm-tf's files hold float32 only"):
        elmokit.convert(tmp_path / "model", tmp_path / "out", format="bilm-tf", half=True)
    assert not (tmp_path / "out").exists()


def test_a_truncated_weights_file_is_refused(folder):
    path = folder / "weights.hdf5"
    os.truncate(path, path.stat().st_size // 2)
    refused(folder, r"weights\.hdf5: cannot be read as HDF5 .*; was the file cut short\?")


def test_a_missing_dataset_is_named(folder):
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file["CNN_high_0/W_carry"]
    refused(folder, "no dataset called CNN_high_0/W_carry, which the options ask for; do the two")


def test_a_wrong_shape_is_named(folder):
    rewrite(folder, lambda options: options["lstm"].update(dim=13))
    refused(folder, r"LSTMCell/W_0 has the shape \(12, 48\), expected \(12, 52\)")


def test_a_wrong_number_of_characters_is_named(folder):
    with h5py.File(folder / "weights.hdf5", "a") as file:
        table = file["char_embed"][...]
        del file["char_embed"]
        file["char_embed"] = table[:-1]
    refused(folder, r"char_embed has the shape \(260, 5\), expected \(261, 5\)")


def test_integer_weights_are_refused(folder):
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file["CNN/b_cnn_0"]
        file["CNN/b_cnn_0"] = np.zeros(4, np.int32)
    refused(folder, "CNN/b_cnn_0 has the type int32, expected float32")


def test_a_huge_declared_shape_is_refused_before_it_is_allocated(folder):
    rewrite(folder, lambda options: options["lstm"].update(dim=10**6))
    with h5py.File(folder / "weights.hdf5", "a") as file:
        name = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"
        del file[name]
        file.create_dataset(name, (12, 4 * 10**6), "f4", chunks=(1, 1024))
        shapes = {"B": (4 * 10**6,), "W_P_0": (10**6, 6)}
        for direction in range(2):
            for layer in range(2):
                cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                for name, shape in {"W_0": (12, 4 * 10**6), **shapes}.items():
                    if f"{cell}/{name}" in file:
                        del file[f"{cell}/{name}"]
                    chunks = (1, 1024) if len(shape) == 2 and shape[1] > 6 else True
                    file.create_dataset(f"{cell}/{name}", shape, "f4", chunks=chunks)
    refused(folder, "declares 928,.* bytes of weights or more, but has")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o["lstm"].pop("n_layers"), "Cell1/LSTMCell/B is there, but the options do not"),
        (lambda o: o["char_cnn"].pop("n_highway"), "CNN_high_0/W_carry is there, but the options"),
        (
            lambda o: o.update(bidirectional=False),
            "RNN_1/.* is there, but the options do not mention",
        ),
    ],
)
def test_weights_that_the_options_leave_out_are_refused(folder, change, message):
    rewrite(folder, change)
    refused(folder, message)


def test_a_missing_direction_is_refused(folder):
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file["RNN_1"]
    refused(
        folder, "no dataset called RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0, which the options"
    )


def test_an_incomplete_softmax_is_refused(tmp_path):
    folder = make_folder(tmp_path, softmax_words=7)
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file["softmax/b"]
    refused(folder, r"softmax/W and softmax/b have the shapes \(7, 6\) and None, expected")


def test_links_to_other_files_are_refused(folder, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(16))
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file["CNN/b_cnn_0"]
        file.create_dataset("CNN/b_cnn_0", (4,), "f4", external=[(tmp_path / "secret", 0, 16)])
    refused(folder, "no dataset called CNN/b_cnn_0, which the options ask for")


def test_damaged_files_give_one_line_errors(folder):
    complete = (folder / "weights.hdf5").read_bytes()
    random = np.random.default_rng(0)
    refusals = 0
    for _ in range(60):
        broken = bytearray(complete)
        start = random.integers(8, 3000)
        broken[start : start + 40] = random.bytes(40)
        (folder / "weights.hdf5").write_bytes(broken)
        try:
            elmokit.load(folder)
        except FormatError:
            refusals += 1
    assert refusals > 10


def test_the_default_character_embedding_size_is_16(tmp_path):
    folder = make_folder(tmp_path)
    rewrite(folder, lambda options: options["char_cnn"].pop("embedding"))
    refused(folder, r"char_embed has the shape \(261, 5\), expected \(261, 16\)")


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        (["0", "1", "sentence_to_index"], "this file holds embeddings"),
        (["0", "1", "2"], "this file holds embeddings"),
        (["embedding"], "this file holds word vectors only"),
        (["model_weights/dense"], "this is a Keras model"),
        (["something"], r"no dataset called char_embed and no RNN_0 \(found something\)"),
        ([], r"\(found nothing\)"),
    ],
)
def test_other_hdf5_files_are_named_for_what_they_are(folder, datasets, message):
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name in datasets:
            file[name] = np.zeros((3, 4), np.float32)
    refused(folder, message)


def test_a_word_level_file_needs_its_embedding(folder):
    rewrite(folder, lambda options: options.pop("char_cnn"))
    refused(folder, "no dataset called embedding, which a word-level model")


def test_a_word_level_model_needs_its_vocabulary(tmp_path):
    folder = make_folder(tmp_path, characters=False, table_words=9)
    (folder / "vocab.txt").unlink()
    refused(folder, "a word-level model needs its vocabulary: put vocab.txt beside the weights")


@pytest.mark.parametrize("shape", [{"characters": False, "table_words": 9}, {"softmax_words": 9}])
def test_the_vocabulary_of_another_model_is_refused(tmp_path, shape):
    folder = make_folder(tmp_path, **shape)
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    refused(folder, "the vocabulary has 3 words, but the .* 9 rows; is it the vocabulary of this")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o.pop("lstm"), "options.json: lstm: Field required; expected the options.json"),
        (lambda o: o["lstm"].pop("dim"), "lstm.dim: Field required"),
        (lambda o: o["lstm"].update(dim="x"), "lstm.dim is 'x', expected a whole number"),
        (lambda o: o["char_cnn"].pop("activation"), "char_cnn.activation: Field required"),
        (lambda o: o["char_cnn"].update(activation="gelu"), "'relu' or 'tanh'"),
        (lambda o: o["char_cnn"].update(n_characters=300), "is 300, expected 261 or 262"),
        (
            lambda o: o["lstm"].update(projection_dim=50),
            "projection_size is 50, expected at most cell_size",
        ),
        (
            lambda o: o["char_cnn"].update(max_characters_per_token=2),
            "max_characters is 2, expected 3",
        ),
    ],
)
def test_invalid_options_are_named(folder, change, message):
    rewrite(folder, change)
    refused(folder, message)


def test_options_that_are_not_json_are_named(folder):
    (folder / "options.json").write_text("{'lstm': }")
    refused(folder, "options.json: Invalid JSON")


def names_in(file):
    names = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return sorted(names)


def assert_equal(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)
