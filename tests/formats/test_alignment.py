import json
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch

import elmokit
from elmokit.compat.tfhub import Module
from elmokit.errors import FormatError, InputError
from elmokit.pretraining.init_from_model import copy_weights
from random_models import make_folder

SENTENCES = [["The", "cat", "word1"], ["sat"], ["a", "cat", "sat", "on", "word2"]]
DIM = 48


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    return make_folder(path, dim=40, projection_dim=DIM // 2, softmax_words=7)


@pytest.fixture(scope="module")
def matrices():
    """Of layers 0 and 1: a rotation over the mean norm, as the published ones."""
    random = np.random.default_rng(0)
    return {layer: np.linalg.qr(random.standard_normal((DIM, DIM)))[0] / 7 for layer in (0, 1)}


def expected_layers(folder, matrices):
    """The formula of Schuster et al., embeddings times the transposed matrix, in float64."""
    for layers in elmokit.load(folder).embed(SENTENCES):
        aligned = layers.astype(np.float64)
        for layer, matrix in matrices.items():
            aligned[layer] = aligned[layer] @ matrix.T
        yield aligned


def assert_aligned(actual, folder, matrices):
    expected = [*expected_layers(folder, matrices)]
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def save_npz(path, matrices):
    np.savez(path, **{str(layer): matrix for layer, matrix in matrices.items()})
    return path


def test_an_npz_aligns_each_of_its_layers(folder, tmp_path, matrices):
    model = elmokit.load(folder, align=save_npz(tmp_path / "align.npz", matrices))
    assert_aligned(model.embed(SENTENCES), folder, matrices)
    assert "aligned layers [0, 1]" in repr(model)
    top = elmokit.load(folder).embed(SENTENCES, layers="top")
    for ours, theirs in zip(model.embed(SENTENCES, layers="top"), top, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("kind", "zipped"),
    [
        ("array", True), ("array", False), ("float32", True), ("column-major", True),
        ("tensor", True), ("tensor", False), ("array of NumPy 1", False),
    ],
)  # fmt: skip
def test_a_pth_aligns_layer_1(folder, tmp_path, matrices, kind, zipped):
    matrix = matrices[1]
    stored = {
        "float32": matrix.astype(np.float32),
        "column-major": np.asfortranarray(matrix),
        "tensor": torch.from_numpy(matrix),
    }.get(kind, matrix)
    path = tmp_path / "es_best_mapping.pth"
    torch.save(stored, path, _use_new_zipfile_serialization=zipped)
    if kind == "array of NumPy 1":
        path.write_bytes(path.read_bytes().replace(b"cnumpy._core.", b"cnumpy.core."))
    actual = elmokit.load(folder, align=path).embed(SENTENCES)
    assert_aligned(actual, folder, {1: matrix})


def test_a_file_in_the_folder_of_the_model_is_named_alone(folder, tmp_path, matrices):
    shutil.copytree(folder, tmp_path / "aligned-es")
    torch.save(matrices[1], tmp_path / "aligned-es" / "alignment.pth")
    model = elmokit.load(tmp_path / "aligned-es", align="alignment.pth")
    assert_aligned(model.embed(SENTENCES), folder, {1: matrices[1]})
    with pytest.raises(FormatError, match=r"aligned-es/other\.npz: no such file"):
        elmokit.load(tmp_path / "aligned-es", align="other.npz")


def test_a_dictionary_names_the_layers(folder, tmp_path, matrices):
    torch.save(matrices[0], tmp_path / "layer0.pth")
    align = {0: tmp_path / "layer0.pth", 1: matrices[1].tolist(), 2: torch.eye(DIM) * 2}
    actual = elmokit.load(folder, align=align).embed(SENTENCES)
    assert_aligned(actual, folder, {**matrices, 2: np.eye(DIM) * 2})


def test_everything_but_the_language_model_is_aligned(folder, matrices):
    model, plain = elmokit.load(folder, align=matrices), elmokit.load(folder)
    means = [layers.mean(0) for layers in expected_layers(folder, matrices)]
    for ours, theirs in zip(model.embed(SENTENCES, layers="mean"), means, strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=0, atol=1e-6)
    vectors = model.encode(SENTENCES)
    np.testing.assert_allclose(vectors, [mean.mean(0) for mean in means], rtol=0, atol=1e-6)
    mixed = elmokit.Elmo(model.bilm, dropout=0)(SENTENCES).vectors[0]
    np.testing.assert_allclose(mixed[0, :3].detach(), means[0], rtol=0, atol=1e-6)
    assert not mixed[1, 1:].any()
    assert model.perplexity(SENTENCES) == plain.perplexity(SENTENCES)
    assert model.next_words(["word1"], k=3) == plain.next_words(["word1"], k=3)


def test_alignment_does_not_depend_on_the_batch(folder, matrices):
    model = elmokit.load(folder, align=matrices)
    together = model.embed(SENTENCES)
    for sentence, expected in zip(SENTENCES, together, strict=True):
        np.testing.assert_array_equal(model.embed([sentence])[0], expected)
        only = model.embed([sentence], layers=1)[0]
        np.testing.assert_array_equal(only[0], expected[1])


def test_alignment_is_saved_and_in_the_fingerprint(folder, tmp_path, matrices):
    model = elmokit.load(folder, align=matrices)
    model.save(tmp_path / "aligned")
    again = elmokit.load(tmp_path / "aligned")
    for ours, theirs in zip(again.embed(SENTENCES), model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    plain = elmokit.load(folder).pretrained.fingerprint()
    turned = {0: matrices[0], 1: -matrices[1]}
    other = elmokit.load(folder, align=turned).pretrained.fingerprint()
    assert again.pretrained.fingerprint() == model.pretrained.fingerprint()
    assert len({plain, other, model.pretrained.fingerprint()}) == 3
    elmo = Module(tmp_path / "aligned")(["The cat word1"], as_dict=True)["lstm_outputs1"][0]
    np.testing.assert_allclose(elmo, model.embed(SENTENCES)[0][1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("layers", [[1, 1], [3], [1, 0]])
def test_a_configuration_with_other_aligned_layers_is_refused(folder, tmp_path, matrices, layers):
    elmokit.load(folder, align=matrices).save(tmp_path / "aligned")
    path = tmp_path / "aligned" / "config.json"
    config = json.loads(path.read_text())
    config["bilm"]["aligned_layers"] = layers
    path.write_text(json.dumps(config))
    with pytest.raises(FormatError, match=r"aligned_layers is .*, expected rising numbers of lay"):
        elmokit.load(tmp_path / "aligned")


def test_a_new_alignment_replaces_the_stored_one(folder, tmp_path, matrices):
    elmokit.load(folder, align=matrices).save(tmp_path / "aligned")
    again = elmokit.load(tmp_path / "aligned", align={2: matrices[0]})
    assert_aligned(again.embed(SENTENCES), folder, {2: matrices[0]})


def test_what_cannot_be_aligned_is_refused(folder, tmp_path, matrices):
    model = elmokit.load(folder, align=matrices)
    with pytest.raises(InputError, match="directions is 'forward', but the model is aligned"):
        model.embed(SENTENCES, directions="forward")
    with pytest.raises(FormatError, match="bilm-tf's files cannot hold an alignment"):
        model.save(tmp_path / "bilm-tf", format="bilm-tf")
    with pytest.raises(InputError, match="the model to start from is aligned, which training"):
        copy_weights(model.pretrained, elmokit.load(folder).pretrained)


@pytest.mark.parametrize(
    ("align", "message"),
    [
        ({1: np.eye(DIM - 1)}, r"align\[1\]: a matrix has the shape \(47, 47\) and the type f"),
        ({1: np.zeros(DIM)}, r"a matrix has the shape \(48,\)"),
        ({1: np.eye(DIM, dtype=int)}, "and the type int64, expected"),
        ({3: np.eye(DIM)}, r"matrices of the layers \[3\], but the model has 0 to 2"),
        ({"1": np.eye(DIM)}, r"matrices of the layers \['1'\], but the model has 0 to 2"),
        ({0: np.full((DIM, DIM), np.nan)}, "a matrix holds a number that is no finite float32"),
        ({0: np.full((DIM, DIM), 1e300)}, "a matrix holds a number that is no finite float32"),
        ({}, r"matrices of the layers \[\], but the model has 0 to 2"),
        ({1.0: np.eye(DIM)}, r"layers \[1.0\], but the model has 0 to 2; .* as an int"),
        ({True: np.eye(DIM)}, r"layers \[True\], but the model has 0 to 2; .* as an int"),
        (np.eye(DIM), "align is of the type ndarray, expected a file, or a dictionary of matri"),
    ],
)
def test_bad_matrices_are_refused(folder, align, message):
    with pytest.raises((FormatError, InputError), match=message):
        elmokit.load(folder, align=align)


class Code:
    def __reduce__(self):
        return open, ("/tmp/elmokit-test-pickle-was-run", "w")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: torch.save(Code(), path), "Python objects besides an array, which are not"),
        (lambda path: path.write_bytes(pickle.dumps(Code())), "align.pth: "),
        (lambda path: torch.save({"a": 1}, path), "holds dict, expected one array or tensor"),
        (lambda path: torch.save(np.zeros(2**16), path), "has 524,.* bytes, expected at most"),
        (lambda path: torch.save(np.array([{}]), path), "cannot be read as an .npz or .pth file"),
        (lambda path: path.write_bytes(b""), "cannot be read as an .npz or .pth file"),
        (lambda path: None, "align.pth: no such file"),
    ],
)
def test_bad_pth_files_are_refused_without_running_them(folder, tmp_path, write, message):
    path = tmp_path / "align.pth"
    write(path)
    with pytest.raises(FormatError, match=message) as caught:
        elmokit.load(folder, align=path)
    assert "\n" not in str(caught.value)


def test_bad_npz_files_are_refused(folder, tmp_path, matrices):
    path = tmp_path / "align.npz"
    np.savez(path, matrices[1])
    with pytest.raises(FormatError, match=r"has an array called arr_0, expected names that are"):
        elmokit.load(folder, align=path)
    np.savez(path, **{"0": matrices[0], "00": matrices[1]})
    with pytest.raises(FormatError, match=r"has an array called 00, expected names that are"):
        elmokit.load(folder, align=path)
    np.savez(path, **{"1": matrices[0]})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("1", archive.read("1.npy"))
    with pytest.raises(FormatError, match="has two arrays called 1, expected one of a layer"):
        elmokit.load(folder, align=path)
    save_npz(path, matrices)
    with pytest.raises(FormatError, match="has 2 matrices, expected that of one layer"):
        elmokit.load(folder, align={1: path})
    content = path.read_bytes()
    for cut in (content[:900], content.replace(b"(48, 48)", b"(99, 99)")):
        path.write_bytes(cut)
        with pytest.raises(FormatError, match=r"cannot be read as an \.npz or \.pth file"):
            elmokit.load(folder, align=path)


def test_an_npz_with_half_a_header_is_refused(folder, tmp_path, matrices):
    path = save_npz(tmp_path / "align.npz", matrices)
    with zipfile.ZipFile(path) as archive:
        content = archive.read("1.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "1.npy", content[:10] + content[10:].replace(b")", b" ").replace(b"}", b" ")
        )
    with pytest.raises(FormatError, match=r"cannot be read as an \.npz or \.pth file"):
        elmokit.load(folder, align=path)
