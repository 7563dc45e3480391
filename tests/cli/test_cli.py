"""Each verb, from argument, file and stdin, as a person would type it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import elmokit
from made import make_folder
from typed import failed, succeeded

ELMO = Path(sys.executable).with_name("elmo")
TEXT = "The cat sat .\nIt was a / cat .\n"


def test_the_installed_command_runs_and_fails_in_one_line(folder, tmp_path):
    done = subprocess.run([ELMO, "info", folder], capture_output=True, text=True, check=True)
    assert "layers              3" in done.stdout
    done = subprocess.run(
        [ELMO, "info", tmp_path / "x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"elmo: {tmp_path}/x: no such file or folder\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), softmax_words=7)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("way", ["file", "stdin", "argument"])
def test_embed_takes_a_file_stdin_and_arguments(elmo, way, folder, text, tmp_path):
    target = tmp_path / "out.hdf5"
    if way == "file":
        done = elmo("embed", text, target, "--model", folder)
    elif way == "stdin":
        done = elmo("embed", "-", target, "--model", folder, stdin=TEXT.encode())
    else:
        given = [part for line in TEXT.splitlines() for part in ("--text", line)]
        done = elmo("embed", target, *given, "--model", folder)
    succeeded(done)
    assert "2 sentences" in done[1]
    expected = elmokit.load(folder).embed([line.split() for line in TEXT.splitlines()])
    with h5py.File(target) as file:
        for number, array in enumerate(expected):
            np.testing.assert_allclose(file[str(number)][...], array, atol=2e-6)


@pytest.mark.parametrize("way", ["file", "stdin", "argument"])
def test_encode_takes_a_file_stdin_and_arguments(elmo, way, folder, text):
    if way == "file":
        done = elmo("encode", text, "--model", folder)
    elif way == "stdin":
        done = elmo("encode", "-", "--model", folder, stdin=TEXT.encode())
    else:
        given = [part for line in TEXT.splitlines() for part in ("--text", line)]
        done = elmo("encode", *given, "--model", folder)
    rows = [[float(x) for x in line.split("\t")] for line in succeeded(done).splitlines()]
    expected = elmokit.load(folder).encode(TEXT.splitlines())
    np.testing.assert_allclose(rows, expected, atol=2e-6)


def test_encode_writes_a_file_and_takes_a_layer(elmo, folder, text, tmp_path):
    target = tmp_path / "out.npy"
    done = elmo("encode", text, "-o", target, "-m", folder, "--layers", "-1", "--pooling", "max")
    assert succeeded(done) == ""
    expected = elmokit.load(folder).encode(TEXT.splitlines(), layers="top", pooling="max")
    np.testing.assert_allclose(np.load(target), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ([], (3, 4, 12)),
        (["--all"], (3, 4, 12)),
        (["--top"], (4, 12)),
        (["--average"], (4, 12)),
        (["--layers", "0,2"], (2, 4, 12)),
        (["--dtype", "float16"], (3, 4, 12)),
        (["--state", "warm"], (3, 4, 12)),
        (["--tokenizer", "characters"], (3, 10, 12)),
        (["--precision", "int8"], (3, 4, 12)),
        (["--state", "carry", "--batch-size", "64", "--device", "cpu"], (3, 4, 12)),
    ],
)
def test_embed_gives_what_is_asked_for(elmo, folder, tmp_path, options, shape):
    target = tmp_path / "out.hdf5"
    succeeded(elmo("embed", target, "--text", "The cat sat .", "-m", folder, *options))
    with h5py.File(target) as file:
        assert file["0"].shape == shape


def test_a_pair_of_files_is_a_model(elmo, folder, text, tmp_path):
    pair = ["-m", folder / "weights.hdf5", "-m", folder / "options.json"]
    succeeded(elmo("embed", text, tmp_path / "out.hdf5", *pair))


@pytest.mark.parametrize("source", ["folder", "pair"])
def test_info_tells_what_a_model_is(elmo, folder, source):
    given = [folder] if source == "folder" else [folder / "options.json", folder / "weights.hdf5"]
    told = succeeded(elmo("info", *given))
    hash_ = elmokit.load(folder).pretrained.fingerprint()
    for fact in ("layers              3", "vector              12", "vocabulary          7", hash_):
        assert fact in told
    assert json.loads(succeeded(elmo("info", *given, "--json")))["hash"] == hash_


def test_convert_goes_both_ways(elmo, folder, tmp_path):
    succeeded(elmo("convert", folder, tmp_path / "ours"))
    succeeded(elmo("convert", tmp_path / "ours", tmp_path / "back", "--format", "bilm-tf"))
    pair = [folder / "options.json", "--weights", folder / "weights.hdf5"]
    succeeded(elmo("convert", *pair, tmp_path / "half", "--half"))
    hashes = {
        elmokit.load(path).pretrained.fingerprint()
        for path in (folder, tmp_path / "ours", tmp_path / "back")
    }
    assert len(hashes) == 1


def test_help_is_quick_and_does_not_import_torch(elmo):
    before = os.times()
    told = subprocess.run([ELMO, "--help"], capture_output=True, text=True, check=True).stdout
    after = os.times()  # the time it computed, however busy the machine
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 0.6
    for verb in (
        "embed", "encode", "evaluate", "predict", "dump", "prepare", "pretrain", "info", "convert",
        "serve",
    ):  # fmt: skip
        assert verb in told
        assert "Example: elmo " + verb in " ".join(succeeded(elmo(verb, "--help")).split())
    code = "import sys, elmokit.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bad_utf8_is_named_by_its_line(elmo, folder, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"fine\n" * 6 + b"na\xefve\n" + b"fine\n")
    target = tmp_path / "out.hdf5"
    done = elmo("embed", path, target, "-m", folder)
    failed(done, "text.txt, line 7: not UTF-8 (byte 0xef at column 3)")
    assert not target.exists()
    failed(elmo("encode", "-", "-m", folder, stdin=path.read_bytes()), "stdin, line 7: not UTF-8")


def test_mistakes_are_one_line(elmo, folder, text, tmp_path):
    out = tmp_path / "out.hdf5"
    failed(elmo("embed", text, out, "-m", tmp_path / "x"), "x: no such file or folder")
    failed(elmo("embed", tmp_path / "no.txt", out, "-m", folder), "no.txt: No such file or direct")
    failed(elmo("embed", text, text, "-m", folder), "text.txt: exists already; delete it")
    failed(elmo("embed", text, "/proc/out.hdf5", "-m", folder), "/proc/out.hdf5: cannot be writ")
    failed(elmo("embed", text, out, "-m", folder, "--layers", "7"), "layer 7 was asked for, but")
    failed(elmo("embed", text, out, "-m", folder, "--tokenizer", "x"), "no tokenizer is called 'x'")
    failed(elmo("encode", text, "-m", folder, "-o", "x.csv"), "x.csv: ends in none of .npy")
    failed(elmo("encode", "-m", folder), "no INPUT given; name a file, - for stdin, or give --text")
    failed(elmo("encode", text, "-m", folder, "--layers", "best"), "layers is 'best', expected")
    failed(elmo("info", text), "one file of two; give the options file and the weights file")
    three = ["-m", folder] * 3
    failed(elmo("encode", text, *three), "--model was given 3 times, expected once or twice")
    failed(elmo("embed", text, ".", "-m", folder), ".: is a folder; name a file")
    failed(elmo("encode", "-m", folder, "--text", "na\udcefve"), "not UTF-8")
    failed(elmo("encode", text, "-m", folder, "--layers=--1"), "layers is '--1', expected")
    failed(elmo("convert", folder, tmp_path), "exists already; give the name of a new folder")
    assert not out.exists()


def test_wrong_usage_exits_with_2(elmo, folder, text, tmp_path):
    out = tmp_path / "out.hdf5"
    failed(elmo("embed"), "Missing argument", code=2)
    failed(elmo("embed", text), "name the HDF5 file to make", code=2)
    failed(elmo("embed", text, out, "--dtype", "int8"), "int8", code=2)
    failed(elmo("embed", text, out, "--top", "--all"), "choose one of --all, --top", code=2)
    failed(elmo("embed", text, out, "--layers", "a"), "is not a list of numbers", code=2)
    failed(elmo("embed", text, out, "--text", "x"), "give INPUT or --text, not both", code=2)
    failed(elmo("encode", text, "--text", "x"), "give INPUT or --text, not both", code=2)
    failed(elmo("info", text, text, text), "give a folder, a zip, or two files", code=2)
    failed(elmo("fly"), "No such command", code=2)


def test_a_reader_that_goes_away_is_no_error_of_ours(folder):
    command = f"yes 'a b c' | head -n 20000 | {ELMO} encode - -m {folder} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_full_stdout_is_one_line(folder):
    command = f"{ELMO} encode --text a -m {folder} > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "elmo: No space left on device\n")


def test_a_mark_of_editors_does_not_move_the_column(elmo, folder):
    failed(
        elmo("encode", "-", "-m", folder, stdin=b"\xef\xbb\xbfab\xff"),
        "stdin, line 1: not UTF-8 (byte 0xff at column 3)",
    )
