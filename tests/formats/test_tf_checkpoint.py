import json
import shutil
import tarfile

import numpy as np
import pytest
import torch

import elmokit
from elmokit.compat.tfhub import Module
from elmokit.errors import FormatError
from elmokit.formats import load
from elmokit.formats.tf_v2_checkpoint import read_bundle
from random_models import make_options, make_weights, write_files
from tensor_bundle import (
    module_variables,
    training_variables,
    varint_field,
    write_checkpoint,
    write_slices,
)

SENTENCES = [["The", "cat", "word1"], ["sat"]]
VOCABULARY = ["<S>", "</S>", "<UNK>", *(f"word{k}" for k in range(6))]
WORDS = len(VOCABULARY)
MIX = [0.3, -1.2, 0.7]
# The settings of the published modules, which a module's arrays do not show.
MODULE = {"clips": (3, 3), "skip": True, "activation": "relu", "width": 50}


@pytest.fixture
def tensors():
    random = np.random.default_rng(0)
    made = {f"scope/name_{n}": random.standard_normal((3, n)).astype("f4") for n in range(30)}
    return made | {
        "half": random.standard_normal(9).astype("f2"),
        "double": random.standard_normal((2, 3)),
        "step": np.array(5, np.int64),
        "flags": np.array([True, False]),
        "rows": random.standard_normal((170, 4)).astype("f4"),
        "columns": random.standard_normal((2, 3, 71)).astype("f4"),
        "short": random.standard_normal((5, 6)).astype("f4"),
    }


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("block_size", [100, 4096])
def test_every_number_comes_back(tmp_path, tensors, shards, block_size):
    index = write_checkpoint(
        tmp_path / "model.ckpt-5",
        tensors,
        shards=shards,
        partitions={"rows": 3, "columns": 5},
        bfloat16={"short"},
        block_size=block_size,
    )
    actual = read_bundle(index)
    assert actual.keys() == tensors.keys()
    cut = tensors["short"].view(np.uint32) >> 16 << 16
    for name, expected in (tensors | {"short": cut.view(np.float32)}).items():
        assert actual[name].shape == expected.shape
        assert actual[name].dtype == actual[name][()].dtype == expected.dtype
        np.testing.assert_array_equal(actual[name][()], expected)


def make_run(folder, *, directions=2, cells=("kernel", "bias", "projection/kernel"), **shape):
    """The folder of a bilm-tf run, and that of the same model in an HDF5 file."""
    options = make_options(**shape, n_characters=261) | {"bidirectional": directions == 2}
    words = None if shape.get("characters", True) else WORDS
    weights = make_weights(options, directions=directions, table_words=words, softmax_words=WORDS)
    (folder / "hdf5").mkdir()
    write_files(folder / "hdf5", options, weights, VOCABULARY)
    variables = training_variables(weights, cells=cells)
    write_checkpoint(folder / "run" / "model.ckpt-7", variables)
    for name in ("options.json", "vocab.txt"):
        shutil.copy(folder / "hdf5" / name, folder / "run")
    return folder / "run", folder / "hdf5"


def assert_same_model(actual, expected):
    assert actual.fingerprint() == expected.fingerprint()
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(actual.model.state_dict()[name], tensor), name


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"n_layers": 1},
        {"directions": 1},
        {"directions": 1, "n_layers": 1},
        {"characters": False},
        {"dim": 6, "projection_dim": 6, "n_highway": 0, "activation": "tanh", "skip": False},
        {"cells": ("weights", "biases", "projection/weights")},  # TensorFlow 1.0
        {"cells": ("weights", "biases", "projection/weights"), "directions": 1},
    ],
)
def test_a_training_run_is_the_model_that_bilm_tf_dumped(tmp_path, shape):
    run, hdf5 = make_run(tmp_path, **shape)
    actual, expected = load(run), load(hdf5)
    assert_same_model(actual, expected)
    assert [*actual.vocabulary] == VOCABULARY
    ours, theirs = elmokit.Embedder(actual), elmokit.Embedder(expected)
    assert ours.perplexity(SENTENCES) == theirs.perplexity(SENTENCES)
    assert ours.next_words(["word1"], k=3) == theirs.next_words(["word1"], k=3)


def test_a_softmax_that_shares_the_word_vectors_is_read(tmp_path):
    options = make_options(characters=False) | {"share_embedding_softmax": True}
    weights = make_weights(options, table_words=WORDS, softmax_words=WORDS)
    weights.pop("softmax/W")
    write_files(tmp_path, options, {}, VOCABULARY)
    (tmp_path / "weights.hdf5").unlink()
    write_checkpoint(tmp_path / "model.ckpt-7", training_variables(weights))
    model = load(tmp_path).model
    assert torch.equal(model.softmax.weight, torch.from_numpy(weights["embedding"]))
    assert torch.equal(model.bilm.encoder.embedding.weight[1:], model.softmax.weight)


@pytest.mark.parametrize(
    "name", ["model.ckpt-7", "model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001"]
)
def test_a_checkpoint_is_named_by_its_prefix_or_any_of_its_files(tmp_path, name):
    run, hdf5 = make_run(tmp_path)
    assert_same_model(load(run / name), load(hdf5))
    (run / "options.json").rename(tmp_path / "options.json")
    (run / "vocab.txt").rename(tmp_path / "vocab-2016-09-10.txt")
    assert_same_model(load(tmp_path / "options.json", run / name), load(hdf5))
    assert [*load(run / name, tmp_path / "options.json").vocabulary] == VOCABULARY


def test_of_several_checkpoints_the_latest_is_read(tmp_path):
    run, hdf5 = make_run(tmp_path)
    write_checkpoint(run / "model.ckpt-3", {"older": np.zeros(3, np.float32)})
    with pytest.raises(FormatError, match=r"more than one checkpoint.*model\.ckpt-3\.index, model"):
        load(run)
    (run / "checkpoint").write_text(
        'model_checkpoint_path: "/data/run/model.ckpt-7"\n'
        'all_model_checkpoint_paths: "/data/run/model.ckpt-3"\n'
    )
    assert_same_model(load(run), load(hdf5))


def test_a_run_of_deeppavlov_is_read(tmp_path):
    run, hdf5 = make_run(tmp_path)
    (run / "saves" / "epochs" / "12").mkdir(parents=True)
    for path in run.glob("model*"):
        path.rename(run / "saves" / "epochs" / "12" / path.name)
    assert_same_model(load(run), load(hdf5))
    with tarfile.open(tmp_path / "lm.tar.gz", "w:gz") as archive:
        archive.add(run, "elmo-lm-ready4fine-tuning-ru-wiki")
    assert [*load(tmp_path / "lm.tar.gz").vocabulary] == VOCABULARY


@pytest.fixture
def module(tmp_path):
    """The folder of a TF-Hub module, and that of the same biLM in an HDF5 file."""
    return make_module(tmp_path)


def make_module(folder, *, deeppavlov=False, **shape):
    options = make_options(**MODULE, **shape)
    weights = make_weights(options)
    (folder / "hdf5").mkdir()
    write_files(folder / "hdf5", options, weights)
    mix = MIX[: options["lstm"]["n_layers"] + 1]
    variables = module_variables(weights, mix, 1.25, deeppavlov=deeppavlov)
    write_checkpoint(folder / "module" / "variables" / "variables", variables)
    for name in ("saved_model.pb", "tfhub_module.pb"):
        (folder / "module" / name).write_bytes(b"\x08\x03")
    return folder / "module", folder / "hdf5"


@pytest.mark.parametrize(
    "shape", [{}, {"deeppavlov": True}, {"dim": 6, "n_highway": 2, "n_layers": 1}]
)
def test_a_module_keeps_its_mix(tmp_path, shape):
    module, hdf5 = make_module(tmp_path, **shape)
    with tarfile.open(tmp_path / "elmo.tar.gz", "w:gz") as archive:
        archive.add(module, ".")
    for source in (module, module / "variables", tmp_path / "elmo.tar.gz"):
        pretrained = load(source)
        assert_same_model(pretrained, load(hdf5))
        layers = torch.from_numpy(elmokit.load(hdf5).embed(SENTENCES)[0]).double()
        weights = torch.softmax(torch.tensor(MIX[: len(layers)]).double(), 0)
        expected = 1.25 * (weights[:, None, None] * layers).sum(0)
        texts = [" ".join(words) for words in SENTENCES]
        actual = Module(source)(texts, as_dict=True)["elmo"][0]
        torch.testing.assert_close(actual.double(), expected, rtol=0, atol=2e-6)
        (mixed, _) = elmokit.Embedder(pretrained).embed(SENTENCES, layers=pretrained.mix)
        np.testing.assert_allclose(mixed[0], expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("format", ["elmokit", "bilm-tf"])
def test_the_mix_survives_conversion(tmp_path, module, format):
    expected = load(module[0])
    elmokit.convert(module[0], tmp_path / "converted", format=format)
    actual = load(tmp_path / "converted")
    assert_same_model(actual, expected)
    assert torch.equal(actual.mix.weights, expected.mix.weights)
    assert torch.equal(actual.mix.scale, expected.mix.scale)
    assert not actual.mix.weights.requires_grad
    assert load(module[1]).mix is None


def test_options_beside_a_module_are_followed(tmp_path, module):
    options = json.loads((module[1] / "options.json").read_text())
    options["lstm"]["cell_clip"] = 2
    (module[0] / "options.json").write_text(json.dumps(options))
    assert load(module[0]).model.bilm.config.cell_clip == 2


def refused(message, *source):
    with pytest.raises(FormatError, match=message) as caught:
        load(*source)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    write_checkpoint(tmp_path / "model.ckpt", {"dense/kernel": np.zeros((2, 2), np.float32)})
    refused("no LSTMs of a biLM, expected a checkpoint of bilm-tf", tmp_path)


def test_a_run_without_options_is_refused(tmp_path):
    run, _ = make_run(tmp_path)
    (run / "options.json").unlink()
    refused("no options.json beside it, expected the one that bilm-tf wrote", run)


def test_a_missing_data_file_is_named(tmp_path):
    run, _ = make_run(tmp_path)
    (run / "model.ckpt-7.data-00000-of-00001").unlink()
    refused(r"model.ckpt-7.data-00000-of-00001 is not beside it", run)


def test_a_training_run_in_tensorflows_first_format_is_read(tmp_path):
    run, hdf5 = make_run(tmp_path)
    tensors = {name: tensor[()] for name, tensor in read_bundle(run / "model.ckpt-7.index").items()}
    (run / "model.ckpt-7.index").unlink()
    write_slices(run / "model.ckpt-7", tensors)
    assert_same_model(load(run / "model.ckpt-7"), load(hdf5))


def test_a_compressed_index_is_refused(tmp_path):
    index = write_checkpoint(tmp_path / "model", {"a": np.zeros(3, np.float32)}, compression=1)
    refused("it is compressed, which TensorFlow's checkpoints of today never are", index)


def test_a_damaged_number_is_refused(tmp_path):
    run, _ = make_run(tmp_path)
    data = run / "model.ckpt-7.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[-20] ^= 4  # in softmax/b: tensors are stored in the order of the weights
    content[20] ^= 4
    data.write_bytes(content)
    refused("the checksum of lm/char_embed is wrong; the file is damaged, copy it again", run)


def field(number, value):
    """Make the last entry of a table declare something else."""

    def change(table):
        table[max(table)] += varint_field(number, value)  # the last value of a field counts

    return change


def cancelled_sizes(table):
    """Declare as many negative bytes as there are too many."""
    table[b"b"] = table[b"a"] + varint_field(4, 0) + varint_field(5, -(2**40))
    table[b"a"] += varint_field(5, 2**40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (field(5, 2**40), "declares 1,099,511,627,7.. bytes of tensors, but the data files have"),
        (field(5, 8), r"a has the shape \(3,\), which needs 12 bytes, but the index gives it 8"),
        (field(4, 2**40), "a ends at byte 1,099,511,627,788 of .*, which has 12"),
        (field(4, -4), "a tensor has 12 bytes at byte -4"),
        (cancelled_sizes, "a tensor has -1,099,.* bytes at byte 0"),
        (field(3, 9), "the entry of a is not valid"),
        (lambda table: table.update({b"": varint_field(1, 2**31)}), "-of-2147483648 is not beside"),
        (lambda table: table.update({b"": varint_field(2, 1)}), "a big-endian machine"),
    ],
)
def test_absurd_sizes_are_refused(tmp_path, change, message):
    index = write_checkpoint(tmp_path / "model", {"a": np.ones(3, np.float32)}, change=change)
    refused(message, index)


def test_a_damaged_index_with_valid_checksums_is_refused_in_one_line(tmp_path, tensors):
    random = np.random.default_rng(0)

    def damage(table):
        key = sorted(table)[random.integers(len(table))]
        value = bytearray(table.pop(key))
        for _ in range(random.integers(1, 4)):
            value[random.integers(len(value))] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        table[key if random.integers(2) else bytes(random.bytes(3))] = bytes(value)

    refusals = 0
    for _ in range(200):
        index = write_checkpoint(
            tmp_path / "model", tensors, partitions={"rows": 3, "columns": 5}, change=damage
        )
        error = error_of_reading(index, {})
        refusals += error is not None
        assert "\n" not in (error or "")
    assert refusals > 150  # the rest renamed a tensor, or changed bytes that are not used


def error_of_reading(index, expected):
    try:
        actual = {name: tensor[()] for name, tensor in read_bundle(index).items()}
    except FormatError as error:
        return str(error)
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)
    return None


def test_damage_never_goes_unnoticed(tmp_path, tensors):
    index = write_checkpoint(
        tmp_path / "model", tensors, shards=2, partitions={"rows": 3}, block_size=300
    )
    files = sorted(tmp_path.iterdir())
    originals = [path.read_bytes() for path in files]
    random = np.random.default_rng(0)
    refusals = []
    for _ in range(200):
        number = int(random.integers(len(files)))
        content = bytearray(originals[number])
        start = int(random.integers(len(content)))
        kind = random.integers(3)
        if kind == 0:
            del content[start:]
        elif kind == 1:
            content[start] ^= 1 << random.integers(8)
        else:
            content[start : start + 8] = random.bytes(8)
        files[number].write_bytes(content)
        refusals.append(error_of_reading(index, tensors))
        files[number].write_bytes(originals[number])
    assert sum(refusal is not None for refusal in refusals) > 190  # the rest are unused bytes
    assert not any("\n" in refusal for refusal in refusals if refusal)
