"""Commands that compute vectors."""

import h5py
import numpy as np
import pytest

from elmokit.bulk import open_shards, row_vectors
from typed import failed, succeeded


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ([], (3, 4, 12)),
        (["--all"], (3, 4, 12)),
        (["--top"], (4, 12)),
        (["--layers", "top"], (4, 12)),
        (["--average"], (4, 12)),
        (["--layers", "mean"], (4, 12)),
        (["--layers", "0,2"], (2, 4, 12)),
        (["--dtype", "float16"], (3, 4, 12)),
        (["--state", "warm"], (3, 4, 12)),
        (["--tokenizer", "characters"], (3, 10, 12)),
        (["--precision", "int8"], (3, 4, 12)),
        (["--state", "carry", "--batch-size", "64", "--device", "cpu"], (3, 4, 12)),
        (["--layers", "sum"], (4, 12)),
        (["--pooling", "mean"], (3, 12)),
        (["--top", "--pooling", "max"], (12,)),
    ],
)
def test_embed_writes_what_its_options_say(elmo, folder, tmp_path, options, shape):
    target = tmp_path / "out.hdf5"
    succeeded(elmo("embed", target, "--text", "The cat sat .", "-m", folder, *options))
    with h5py.File(target) as file:
        assert file["0"].shape == shape


def test_embed_writes_the_vectors_of_words(elmo, folder, loaded, text, tmp_path):
    _, err, _ = elmo("embed", text, tmp_path / "out.hdf5", "-m", folder)
    assert err == f"{tmp_path}/out.hdf5: 2 sentences\n"
    expected = loaded.embed([line.split() for line in text.read_text().splitlines()])
    with h5py.File(tmp_path / "out.hdf5") as file:
        for number, array in enumerate(expected):
            np.testing.assert_allclose(file[str(number)][...], array, atol=2e-6)


def test_embed_takes_fasta_by_its_ending_or_by_an_option(elmo, folder, tmp_path):
    proteins = tmp_path / "proteins.fa"
    proteins.write_text(">sp|P12345|NAME x\nMKV\nla\n>other\nM\n")
    (tmp_path / "proteins.txt").write_text(proteins.read_text())
    target = tmp_path / "out.h5"
    _, err, _ = elmo("embed", proteins, target, "-m", folder, "--layers", "sum")
    assert err == f"{target}: 2 proteins\n"
    with h5py.File(target) as file:
        assert {name: file[name].shape for name in file} == {"P12345": (5, 12), "other": (1, 12)}
    options = ["--pooling", "mean", "--id-field", "0", "--split-char", " "]
    succeeded(
        elmo(
            "embed", tmp_path / "proteins.txt", tmp_path / "b.h5", "-m", folder, "--fasta", *options
        )
    )
    with h5py.File(tmp_path / "b.h5") as file:
        assert {name: file[name].shape for name in file} == {
            "sp|P12345|NAME": (3, 12), "other": (3, 12),
        }  # fmt: skip
    succeeded(elmo("embed", proteins, tmp_path / "text.h5", "-m", folder, "--no-fasta"))
    with h5py.File(tmp_path / "text.h5") as file:
        assert file["0"].shape == (3, 2, 12)
    new = tmp_path / "new.h5"
    failed(elmo("embed", proteins, new, "-m", folder, "--id-field", "1,2"), "id_field is '1,2'")
    failed(elmo("embed", proteins, new, "-m", folder, "--id-field", "1"), "'other' has no part 1")
    failed(elmo("embed", proteins, new, "-m", folder, "--tokenizer", "moses"), "not for FASTA", 2)


def test_encode_prints_rows_or_writes_a_file(elmo, folder, loaded, text, tmp_path):
    rows = succeeded(elmo("encode", text, "-m", folder)).splitlines()
    expected = loaded.encode(text.read_text().splitlines())
    np.testing.assert_allclose([[*map(float, r.split("\t"))] for r in rows], expected, atol=2e-6)
    target = tmp_path / "out.npy"
    done = elmo("encode", text, "-o", target, "-m", folder, "--layers", "-1", "--pooling", "max")
    assert succeeded(done) == ""
    expected = loaded.encode(text.read_text().splitlines(), layers="top", pooling="max")
    np.testing.assert_allclose(np.load(target), expected, atol=2e-6)
    succeeded(elmo("encode", text, "-o", tmp_path / "n.npy", "-m", folder, "--normalize"))
    assert np.linalg.norm(np.load(tmp_path / "n.npy"), axis=1) == pytest.approx(1)


def test_mistakes_are_one_line(elmo, folder, text, tmp_path):
    out = tmp_path / "out.hdf5"
    failed(elmo("embed", text, out, "-m", tmp_path / "x"), "x: no such file or folder")
    failed(elmo("embed", tmp_path / "no.txt", out, "-m", folder), "no.txt: No such file or direct")
    failed(elmo("embed", text, text, "-m", folder), "text.txt: exists already; delete it")
    failed(elmo("embed", text, "/proc/out.hdf5", "-m", folder), "/proc/out.hdf5: cannot be writ")
    failed(elmo("embed", text, out, "-m", folder, "--layers", "7"), "7")
    failed(elmo("embed", text, ".", "-m", folder), ".: is a folder; name a file")
    assert not out.exists()


def test_wrong_usage_exits_with_2(elmo, text, tmp_path):
    out = tmp_path / "out.hdf5"
    failed(elmo("embed", text), "name the HDF5 file to write", code=2)
    failed(elmo("embed", text, out, "--dtype", "int8"), "int8", code=2)
    failed(elmo("embed", text, out, "--layers", "a"), "'a' is not one of 'all', 'top'", code=2)
    failed(elmo("embed", text, out, "--tokenizer", "x"), "'x', expected", code=2)
    failed(elmo("embed", text, out, "--batch-size", 4), "--batch-size is for --state", code=2)
    failed(elmo("encode", text, "-o", "x.csv"), "x.csv: ends in .csv, expected .npy", code=2)
    failed(elmo("encode", text, "--layers", "best"), "'best' is not one of 'mean'", code=2)
    failed(elmo("encode", text, "--layers=--1"), "'--1' is not one of", code=2)
    failed(elmo("embed", text, out, "--top", "--all"), "choose one of --all, --top", code=2)
    failed(elmo("embed", text, out, "--top", "--layers", "0"), "choose one of", code=2)
    failed(elmo("encode", text, "--layers", "0,2"), "'0,2' is several vectors", code=2)


def test_embed_writes_a_folder_of_shards(elmo, folder, loaded, text, tmp_path):
    more = tmp_path / "more.jsonl"
    more.write_text('{"text": "one more", "n": 3}\n')
    options = ["-m", folder, "--layers", "top", "--workers", "1", "--rows-per-shard", "2"]
    _, err, code = elmo("embed", text, more, f"{tmp_path}/out/", *options)
    assert (err, code) == (f"{tmp_path}/out/: 3 rows\n", 0)
    shards, _ = open_shards(tmp_path / "out")
    tables = [shards.read_shard(0), shards.read_shard(1)]
    assert [len(table) for table in tables] == [2, 1]
    assert tables[1]["n"].to_pylist() == [3]
    lines = [*text.read_text().splitlines(), "one more"]
    expected = loaded.embed([line.split() for line in lines], layers="top")
    found = [vectors for table in tables for vectors in row_vectors(table)]
    for vectors, array in zip(found, expected, strict=True):
        np.testing.assert_array_equal(vectors, array[0])
    # A folder that exists is known without a slash.
    succeeded(elmo("embed", text, more, tmp_path / "out", *options))
    other = elmo("embed", text, more, tmp_path / "out", *options, "--dtype", "float16")
    failed(other, "out: was started with dtype float32, now float16; go on as it was started")


def test_options_of_files_and_of_folders_are_not_mixed(elmo, folder, text, tmp_path):
    out = f"{tmp_path}/out/"
    failed(elmo("embed", text, out, "--state", "carry"), "--state carry is not for a folder", 2)
    failed(elmo("embed", text, out, "--fasta"), "--fasta is not for a folder of shards", 2)
    failed(elmo("embed", out, "--text", "a"), "--text is not for a folder of shards", 2)
    failed(elmo("embed", text, out, "--address", "auto"), "--address is for --engine ray", 2)
    failed(elmo("embed", "a.fasta", out), "a folder of shards is not for FASTA; name an HDF5", 2)
    hdf5 = tmp_path / "out.hdf5"
    failed(elmo("embed", text, hdf5, "--workers", "2"), "--workers is for a folder of shards", 2)
    failed(elmo("embed", text, text, hdf5), f"let OUTPUT end in / to write one: {hdf5}/", 2)
    failed(elmo("embed", "-", out, "-m", folder), "stdin cannot be read twice")
    failed(elmo("embed", out, "-m", folder), "no input is there")
    failed(elmo("embed"), "missing argument 'INPUT'; a file, a folder, or - for stdin", 2)
