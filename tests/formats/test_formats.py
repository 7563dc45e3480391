import gzip
import json
import os
import re
import tarfile
import time
import zipfile

import h5py
import numpy as np
import pytest
import safetensors.torch
import torch

import elmokit
from elmokit import formats
from elmokit.errors import ConfigError, FormatError, InputError, OutputError
from elmokit.formats import load
from elmokit.formats.native import without_metadata
from random_models import make_folder

SENTENCES = [["The", "cat", "word1"], ["sat"]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return make_folder(tmp_path / "model", softmax_words=7)


def assert_same_model(source, folder):
    actual, expected = load(*source), load(folder)
    assert actual.fingerprint() == expected.fingerprint()
    one, other = elmokit.Embedder(actual), elmokit.Embedder(expected)
    for ours, theirs in zip(one.embed(SENTENCES), other.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_two_files_are_loaded_in_either_order(folder):
    pair = folder / "options.json", folder / "weights.hdf5"
    assert_same_model(pair, folder)
    assert_same_model(pair[::-1], folder)
    assert_same_model([str(path) for path in pair], folder)


def test_the_native_format_keeps_the_model(folder, tmp_path):
    elmokit.convert(folder, tmp_path / "ours")
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == [
        "README.md", "config.json", "model.safetensors", "vocabulary.txt",
    ]  # fmt: skip
    assert_same_model([tmp_path / "ours"], folder)


@pytest.mark.parametrize("inside", ["", "english/", "/absolute/", "../../"])
def test_a_zip_is_loaded_and_writes_nothing_elsewhere(folder, tmp_path, inside):
    with zipfile.ZipFile(tmp_path / "144.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.iterdir():
            archive.write(path, inside + path.name.replace("weights", "model"))
        archive.writestr(inside + "meta.json", "{}")
        archive.writestr(inside + "README", "An NLPL model")
    before = {path.name for path in tmp_path.iterdir()}
    assert_same_model([tmp_path / "144.zip"], folder)
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="asks Linux what is open")
def test_a_saved_model_is_synced_to_disk(folder, tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")) or fsync(file)
    )
    elmokit.convert(folder, tmp_path / "ours")
    names = [os.path.basename(name) for name in synced]
    files = ["README.md", "config.json", "model.safetensors", "vocabulary.txt"]
    assert sorted(names[:-2]) == files
    assert names[-2].startswith(".ours.")  # the folder, under the name it had before
    assert synced[-1] == str(tmp_path)  # and its name


def test_vocabulary_tokenizer_and_card_are_saved(folder, tmp_path):
    source = load(folder, tokenizer="spaces")
    pretrained = elmokit.Pretrained(source.model, source.vocabulary, source.tokenizer, "# A card\n")
    formats.save(pretrained, tmp_path / "ours")
    actual = load(tmp_path / "ours")
    assert actual.tokenizer == "spaces"
    assert without_metadata(actual.card) == "# A card\n"
    assert list(actual.vocabulary) == list(source.vocabulary)
    assert actual.model.bilm.config == source.model.bilm.config
    assert (actual.model.softmax.weight == source.model.softmax.weight).all()
    assert load(tmp_path / "ours", tokenizer="characters").tokenizer == "characters"


def test_float16_on_disk_is_float32_in_memory(folder, tmp_path):
    formats.save(load(folder), tmp_path / "half", half=True)
    full = (folder / "weights.hdf5").stat().st_size
    assert (tmp_path / "half" / "model.safetensors").stat().st_size < 0.7 * full
    (vectors,) = elmokit.load(tmp_path / "half").embed(SENTENCES[:1])
    (expected,) = elmokit.load(folder).embed(SENTENCES[:1])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=0.02)


def test_models_have_different_fingerprints(folder, tmp_path):
    (tmp_path / "other").mkdir()
    make_folder(tmp_path / "other", size=1.1)
    assert load(folder).fingerprint() != load(tmp_path / "other").fingerprint()


def refused(message, *source, error=FormatError):
    with pytest.raises(error, match=message):
        load(*source)


def test_one_file_of_two_is_refused(folder):
    refused("one file of two; give the options file and the weights", folder / "options.json")
    refused("one file of two; give the options file and the weights", folder / "weights.hdf5")


def test_two_files_of_one_kind_are_refused(folder):
    path = folder / "options.json"
    refused("is text.*expected one options file .JSON. and one weights file", path, path)


def test_a_missing_path_is_refused(tmp_path):
    refused("nothing: no such file or folder", tmp_path / "nothing")


def test_an_empty_folder_is_refused(tmp_path):
    refused(r"no model here; found nothing\. Expected .* elmokit: config.json, mo", tmp_path)


def test_a_folder_with_two_models_is_refused(folder):
    (folder / "other.hdf5").write_bytes((folder / "weights.hdf5").read_bytes())
    refused(
        "more than one weights file: other.hdf5, weights.hdf5; give options and weights", folder
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "this is an empty file"),
        (b"\x80\x04\x95", "this is a pickle, expected a folder"),
        (b"\x1f\x8b\x08\x00", "cannot be unpacked"),
        (b"\x00\x01\x02", "this is a binary file of another kind"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    refused(message, tmp_path / "file")


def test_a_damaged_zip_is_refused(folder, tmp_path):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "options.json", "options.json")
    os.truncate(path, path.stat().st_size - 30)
    refused(r"model\.zip: cannot be unpacked .*; was the file cut short\?", path)


def test_an_error_inside_a_zip_names_the_zip(folder, tmp_path):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "options.json", "options.json")
    refused(r"model\.zip: no weights file", path)


def test_a_zip_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("model.hdf5", "w") as member,
    ):
        for _ in range(80):
            member.write(bytes(2**20))
    refused("bomb.zip: declares 83,886,080 bytes or more, but has", path)


def write_zip(path, names):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, b"")


def test_a_path_of_thousands_of_characters_is_refused(tmp_path):
    write_zip(tmp_path / "model.zip", ["a/" * 2000 + "x"])
    refused("a name of 4,001 characters, .* names of at most 1,000", tmp_path / "model.zip")


def test_folders_count_as_entries_of_an_archive(tmp_path, monkeypatch):
    write_zip(tmp_path / "model.zip", [f"{k}/" for k in range(10)])
    refused("no model here", tmp_path / "model.zip")
    monkeypatch.setattr("elmokit.formats.archives._MAX_ENTRIES", 9)
    refused("has 10 entries or more, .* expected at most 9", tmp_path / "model.zip")


def test_deep_folders_in_an_archive_are_not_searched_for_every_file(folder, tmp_path):
    path = tmp_path / "model.zip"
    write_zip(path, ["a/" * 490 + f"{k}" for k in range(300)])
    with zipfile.ZipFile(path, "a") as archive:
        for file in folder.iterdir():
            archive.write(file, "a/" * 400 + file.name)
    begin = time.process_time()
    load(path)
    assert time.process_time() - begin < 2  # 10 seconds if all folders above a file are searched


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["config.json/a.json", "config.json"], "Is a directory"),
        (["config.json", "config.json/a.json"], "File exists"),
        (["config.json", "a" * 300 + ".json"], "File name too long"),
    ],
)
def test_files_that_cannot_be_written_are_one_line(tmp_path, names, reason):
    write_zip(tmp_path / "model.zip", ["encoder.pkl", "token_embedder.pkl", *names])
    refused(
        rf"model.zip: cannot be unpacked \({reason}\); unpack it and give", tmp_path / "model.zip"
    )


def test_a_full_disk_is_noticed_before_unpacking(folder, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(OutputError, match=r"model.zip: needs .* bytes in .*, but the disk has 1,0"):
        load(tmp_path / "model.zip")


def tar_header(kind, size, name="a"):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar_header(tarfile.XHDTYPE, 2**30), "declares a header of 1073741824 bytes, expected at"),
        (tar_header(tarfile.GNUTYPE_LONGNAME, 2**18), "declares a header of 262144 bytes"),
        (tar_header(tarfile.REGTYPE, 2**30), "declares 1,073,741,824 bytes or more, but has"),
        (tar_header(tarfile.REGTYPE, 2**30, "._a"), "declares 1,073,.* bytes or more, but has"),
        (tar_header(tarfile.DIRTYPE, 0) * 10_001, "has 10,001 entries or more, .*at most 10,000"),
    ],
)
def test_a_tar_bomb_is_refused_before_it_is_unpacked(tmp_path, content, message):
    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(content + bytes(2**20)))
    refused(f"model.tar.gz: {message}", path)


def test_a_damaged_tar_archive_is_refused(folder, tmp_path):
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "elmo")
    content = bytearray(path.read_bytes())
    for damaged in (content[: len(content) // 2], content[:-8] + bytes(8)):
        path.write_bytes(damaged)
        refused("model.tar.gz: cannot be unpacked .*; was the file cut short", path)


def test_a_zip_of_two_models_is_refused(folder, tmp_path):
    path = tmp_path / "two.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for language in ("en", "de"):
            archive.write(folder / "options.json", f"{language}/options.json")
            archive.write(folder / "weights.hdf5", f"{language}/weights.hdf5")
    refused("two.zip: has 2 models, in de, en; unpack it", path)


@pytest.mark.parametrize("packing", ["", "gz", "bz2", "xz"])
def test_a_model_in_a_tar_archive_is_found_in_its_folder(folder, tmp_path, packing):
    path = tmp_path / "model.tar"
    with tarfile.open(path, f"w:{packing}") as archive:
        archive.add(folder, "../slovenian/elmo")
    assert_same_model([path], folder)
    assert not (tmp_path.parent / "slovenian").exists()


def test_links_in_an_archive_are_not_followed(folder, tmp_path):
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(folder / "options.json", "options.json")
        link = tarfile.TarInfo("weights.hdf5")
        link.type, link.linkname = tarfile.SYMTYPE, str(folder / "weights.hdf5")
        archive.addfile(link)
    refused("model.tar: no weights file", path)


def test_what_macos_adds_to_a_zip_is_ignored(folder, tmp_path):
    path = tmp_path / "mac.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"model/{file.name}")
            archive.writestr(f"__MACOSX/model/._{file.name}", b"\0")
    assert_same_model([path], folder)


def test_a_character_model_ignores_a_vocabulary_beside_it(tmp_path):
    folder = make_folder(tmp_path)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    assert load(folder).vocabulary is None


def test_byte_order_marks_are_ignored(folder):
    for name in ("options.json", "vocab.txt"):
        path = folder / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(folder).vocabulary[0] == "<S>"


def test_a_saved_model_can_be_read_by_others(folder, tmp_path):
    elmokit.load(folder).save(tmp_path / "ours")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "ours").iterdir()}
    (tmp_path / "plain").touch()
    assert modes == {(tmp_path / "plain").stat().st_mode & 0o777}


def test_the_bilm_tf_format_keeps_tokenizer_and_card(folder, tmp_path):
    source = load(folder, tokenizer="spaces")
    pretrained = elmokit.Pretrained(source.model, source.vocabulary, "spaces", "# A card\n")
    formats.save(pretrained, tmp_path / "theirs", format="bilm-tf")
    actual = load(tmp_path / "theirs")
    assert (actual.tokenizer, actual.card) == ("spaces", "# A card\n")


def test_a_file_pair_can_be_converted(folder, tmp_path):
    pair = {"source": folder / "options.json", "weights": folder / "weights.hdf5"}
    elmokit.convert(target=tmp_path / "ours", **pair)
    assert_same_model([tmp_path / "ours"], folder)


def test_an_unknown_tokenizer_is_refused(folder):
    with pytest.raises(ConfigError, match="no tokenizer is called 'nltk'"):
        load(folder, tokenizer="nltk")


def test_no_existing_folder_is_overwritten(folder, tmp_path):
    with pytest.raises(InputError, match="model: exists already; give the name of a new folder"):
        elmokit.convert(folder, folder)
    with pytest.raises(InputError, match="nowhere is not a folder; make it first"):
        elmokit.convert(folder, tmp_path / "nowhere" / "ours")
    with pytest.raises(InputError, match="format is 'onnx', expected 'elmokit' or 'bilm-tf'"):
        elmokit.convert(folder, tmp_path / "ours", format="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def ours(folder, tmp_path):
    elmokit.convert(folder, tmp_path / "ours")
    return tmp_path / "ours"


def test_a_missing_weights_file_is_refused(ours):
    (ours / "model.safetensors").unlink()
    refused(r"no weights \(model.safetensors\), which a model of the format elmokit has", ours)


def test_integer_weights_are_refused(ours):
    tensors = safetensors.torch.load_file(ours / "model.safetensors")
    tensors["softmax.bias"] = tensors["softmax.bias"].to(torch.int8)
    safetensors.torch.save_file(tensors, ours / "model.safetensors")
    refused("softmax.bias has the type I8, expected F32 or F16", ours)


def test_a_truncated_safetensors_file_is_refused(ours):
    path = ours / "model.safetensors"
    os.truncate(path, path.stat().st_size // 2)
    refused(r"model\.safetensors: cannot be read as safetensors .*; was the file cut short\?", ours)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["bilm"].update(cell_dim=13), r"has the shape \(48, 6\), expected \(52, 6\)"),
        (lambda c: c["bilm"].update(layers=3), "no tensor called bilm.readers.0.layers.2"),
        (lambda c: c.update(softmax_words=None), "a tensor called softmax.bias, which the model"),
        (lambda c: c.update(version=2), "config.json: version is 2, expected 1"),
        (lambda c: c.update(format="x"), "expected the config.json of an elmokit model"),
        (lambda c: c.update(softmax_words=9, softmax_cutoffs=[5, 4]), "expected rising numbers"),
        (lambda c: c.update(softmax_words=9, softmax_cutoffs=[]), "expected rising numbers"),
        (lambda c: c["bilm"].update(dim=0), "bilm: projection_size is 0, expected 1 to"),
        (lambda c: c.pop("bilm"), "bilm: Field required"),
        (lambda c: c.update(softmax_words=-5), "softmax_words is -5, expected 1 to"),
        (lambda c: c.update(split="nltk"), "config.json: .*no tokenizer is called 'nltk'"),
        (
            lambda c: c["bilm"].update(dim="6"),
            "bilm.projection_size is '6', expected a whole number",
        ),
        (
            lambda c: c["bilm"].update(dim=10**9, cell_dim=10**9),
            "projection_size is 1,000,000,000, expected 1",
        ),
    ],
)
def test_the_config_of_another_model_is_refused(ours, change, message):
    config = json.loads((ours / "config.json").read_text())
    change(config)
    (ours / "config.json").write_text(json.dumps(config))
    refused(message, ours)


def with_number(folder, number):
    """The folder, with a number in the middle of the weights of an LSTM."""
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        file["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"][4, 2] = number
    return folder


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("format", ["bilm-tf", "elmokit"])
def test_weights_that_are_not_finite_are_refused_by_their_place(folder, tmp_path, number, format):
    source, file = with_number(folder, number), folder
    if format == "elmokit":
        source = file = tmp_path / "saved"
        elmokit.load(folder, allow_nonfinite=True).save(source)
    place = "bilm.lstms.1.layers.0.projection[2, 4]"
    refused(re.escape(f"{file}: {place} is {number}, expected finite numbers"), source)


def test_weights_that_are_not_finite_load_if_that_is_asked_for(folder):
    model = elmokit.load(with_number(folder, float("nan")), allow_nonfinite=True)
    assert np.isnan(model.embed([["a"]])[0]).any()


def test_finite_weights_whose_sum_is_infinite_are_loaded(folder):
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        file["CNN/b_cnn_0"][...] = 3e38
    assert load(folder).model.bilm.encoder.filters[0].bias.sum().isinf()


def test_a_mix_that_is_not_finite_is_refused(folder):
    options = json.loads((folder / "options.json").read_text())
    options["elmokit"] = {"mix": {"weights": [0.0, float("nan"), 0.0], "scale": 1.0}}
    (folder / "options.json").write_text(json.dumps(options))
    refused(r"mix.weights\[1\] is nan, expected finite numbers", folder)


def test_a_name_in_hdf5_that_is_not_utf8_is_shown(folder):
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        space = h5py.h5s.create_simple((1,))
        h5py.h5d.create(file.id, b"char_embed\xff", h5py.h5t.IEEE_F32LE, space)
    refused(r"char_embed\\xff is there, but the options do not mention it", folder)


def test_files_of_a_model_in_several_folders_of_an_archive_are_no_model(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.write(folder / "options.json", "a/options.json")
        archive.write(folder / "weights.hdf5", "b/weights.hdf5")
    refused(
        "the files of a model of the format bilm-tf are not in one folder", tmp_path / "model.zip"
    )


def test_json_of_a_thousand_brackets_in_each_other_is_refused(folder, tmp_path):
    elmokit.load(folder).save(tmp_path / "saved")
    (tmp_path / "saved/config.json").write_text("[" * 100_000)
    refused(r"config.json: .*expected the config.json of an elmokit model", tmp_path / "saved")


def test_what_safetensors_says_of_a_damaged_header_is_one_line(folder, tmp_path):
    elmokit.load(folder).save(tmp_path / "saved")
    header = b'{"a": {"dtype": "F\\n32", "shape": [], "data_offsets": [0, 4]}}'
    content = len(header).to_bytes(8, "little") + header + b"\0" * 4
    (tmp_path / "saved/model.safetensors").write_bytes(content)
    with pytest.raises(FormatError, match="cannot be read as safetensors") as caught:
        load(tmp_path / "saved")
    assert "\n" not in str(caught.value)
