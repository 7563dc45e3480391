import hashlib
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

import elmokit
from elmokit.atomic import ResumableDirectory
from elmokit.errors import InputError, OutputError
from elmokit.export import write_vectors
from elmokit.file_embedding import HDF5Writer, embed_file

LINES = ["The cat sat .", "", "a / b : c .", "The cat sat .", "  tabs\tand spaces  ", "x"]


def contents(path):
    """Every dataset and attribute of a file."""
    found = {}
    with h5py.File(path) as file:
        found["attributes"] = dict(file.attrs)

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                found[name] = item[...]

        file.visititems(visit)
    return found


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
        if name != "attributes":
            assert one[name].dtype == other[name].dtype


def test_every_line_has_its_key_and_its_vectors(model, tmp_path):
    assert embed_file(model, LINES, tmp_path / "out.hdf5") == 6
    found = contents(tmp_path / "out.hdf5")
    assert set(found) == {*map(str, range(6)), "sentence_to_index", "attributes"}
    for number, line in enumerate(LINES):
        np.testing.assert_allclose(found[str(number)], model.embed([line.split()])[0], atol=2e-6)
    assert found["1"].shape == (3, 0, 12)
    index = json.loads(found["sentence_to_index"][0])
    assert index == {
        "The cat sat .": "3", "": "1", "a / b : c .": "2", "tabs\tand spaces": "4", "x": "5",
    }  # fmt: skip
    assert os.listdir(tmp_path) == ["out.hdf5"]


def test_the_file_says_where_its_vectors_came_from(model, tmp_path):
    embed_file(model, LINES, tmp_path / "out.hdf5", layers="top", tokenizer="moses")
    told = contents(tmp_path / "out.hdf5")["attributes"]
    assert told["model"] == model.pretrained.fingerprint()
    assert json.loads(told["config"])["cell_dim"] == 12
    assert (told["form"], told["split"], told["state"]) == ("top", "moses", "zero")
    lines = "".join(line.strip() + "\n" for line in LINES)
    assert told["lines"] == hashlib.sha256(lines.encode()).hexdigest()
    assert (told["dtype"], told["sentences"]) == ("float32", 6)


@pytest.mark.parametrize(
    ("layers", "of"),
    [
        ("all", lambda a: a),
        ("top", lambda a: a[2]),
        ("mean", lambda a: a.mean(0)),
        ("concat", lambda a: np.concatenate([*a], 1)),
        (elmokit.ScalarMix(3, scale=3.0), lambda a: a.sum(0)),
        (1, lambda a: a[[1]]),
        ((0, 2), lambda a: a[[0, 2]]),
        ((1,), lambda a: a[[1]]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layers_and_dtype_are_the_chosen_ones(model, tmp_path, layers, of, dtype):
    embed_file(model, LINES[:1], tmp_path / "out.hdf5", layers=layers, dtype=dtype)
    found = contents(tmp_path / "out.hdf5")["0"]
    expected = of(model.embed([LINES[0].split()])[0])
    assert found.dtype == dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-3 if dtype == "float16" else 2e-6)


def test_sentences_can_be_forgotten_or_be_keys(model, tmp_path):
    embed_file(model, LINES, tmp_path / "forgotten.hdf5", forget_sentences=True)
    assert "sentence_to_index" not in contents(tmp_path / "forgotten.hdf5")
    embed_file(model, ["a b", "c / d"], tmp_path / "keys.hdf5", sentence_keys=True)
    assert set(contents(tmp_path / "keys.hdf5")) == {"a b", "c / d", "attributes"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a", "b", "a"], "line 3 .'a'. cannot be a key: it is the key of an earlier one"),
        (["a", ""], "line 2 .''. cannot be a key: HDF5 allows no such name"),
        (["."], "HDF5 allows no such name"),
        (["a", "a/b"], "line 2 .'a/b'. cannot be a key: it and an earlier key"),
        (["a/b", "a"], "it and an earlier key"),
        (["a\0b"], "HDF5 allows no such name"),
    ],
)
def test_a_sentence_that_cannot_be_a_key_is_named(model, tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        embed_file(model, lines, tmp_path / "out.hdf5", sentence_keys=True)
    assert os.listdir(tmp_path) == []


def test_no_lines_give_an_empty_file(model, tmp_path):
    assert embed_file(model, [], tmp_path / "out.hdf5") == 0
    assert set(contents(tmp_path / "out.hdf5")) == {"sentence_to_index", "attributes"}


MANY = [" ".join(f"w{(k * k + j) % 97}" for j in range(k % 12)) for k in range(400)]


class KilledError(Exception):
    """Stands for a kill at a line."""


def killed_at(lines, number):
    yield from lines[:number]
    raise KilledError


@pytest.mark.parametrize("state", ["zero", "warm", "carry"])
def test_a_stopped_run_goes_on_to_the_same_bits(model_folder, tmp_path, state):
    def fresh():
        return elmokit.load(model_folder, state=state, tokens_per_batch=64)

    embed_file(fresh(), MANY, tmp_path / "whole.hdf5")
    for stop in (5, 150, 399):
        with pytest.raises(KilledError):
            embed_file(fresh(), killed_at(MANY, stop), tmp_path / "out.hdf5")
        assert not (tmp_path / "out.hdf5").exists()
    assert embed_file(fresh(), MANY, tmp_path / "out.hdf5") == 400
    assert_equal(contents(tmp_path / "out.hdf5"), contents(tmp_path / "whole.hdf5"))


def test_a_carried_file_starts_from_zero_whatever_was_read_before(model_folder, tmp_path):
    model = elmokit.load(model_folder, state="carry")
    for name in ("first.hdf5", "second.hdf5"):
        embed_file(model, LINES, tmp_path / name)
    assert_equal(*(contents(tmp_path / name) for name in ("first.hdf5", "second.hdf5")))


def test_long_lines_with_a_carried_state_are_several_parts(model_folder, tmp_path):
    model = elmokit.load(model_folder, state="carry", tokens_per_batch=20)
    lines = ["word " * 30] * 12
    with pytest.raises(KilledError):
        embed_file(model, killed_at(lines, 12), tmp_path / "out.hdf5", batch_size=2)
    parts = [*(tmp_path / "out.hdf5.partial").glob("part-*.npz")]
    assert len(parts) == 3  # of four lines each: two would be too few words


KILLS = """
import os, random, signal, sys, time
import elmokit.cli, elmokit.file_embedding  # imported once; each try is a forked process

random.seed(0)
model, lines, target = sys.argv[1:]
command = ["elmo", "embed", lines, target, "--model", model, "--tokens-per-batch", "64"]
deaths = tries = 0
while not os.path.exists(target) or os.path.exists(target + ".partial"):
    tries += 1
    child = os.fork()
    if child == 0:
        sys.argv = command
        elmokit.cli.main()
        os._exit(0)
    if deaths < 20:
        time.sleep(random.uniform(0.02, 0.2))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    deaths += os.WIFSIGNALED(status)
print(deaths, tries)
"""


@pytest.mark.full
def test_a_run_killed_twenty_times_ends_with_the_same_bits(model_folder, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(line + "\n" for line in MANY * 10))
    whole, killed = tmp_path / "whole.hdf5", tmp_path / "killed.hdf5"
    model = elmokit.load(model_folder, tokens_per_batch=64)
    embed_file(model, MANY * 10, whole)
    done = subprocess.run(
        [sys.executable, "-c", KILLS, model_folder, lines, killed],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "20"
    assert_equal(contents(killed), contents(whole))


def test_a_kill_after_the_last_step_is_cleaned_up(model, tmp_path, monkeypatch):
    target = tmp_path / "out.hdf5"
    with monkeypatch.context() as patch:
        patch.setattr(ResumableDirectory, "clear", ResumableDirectory.close)
        embed_file(model, LINES, target)
    with pytest.raises(InputError, match=r"out\.hdf5: exists already"):
        embed_file(model, [*LINES, "one more"], target)
    assert embed_file(model, LINES, target) == 6
    assert os.listdir(tmp_path) == ["out.hdf5"]


def test_two_runs_at_once_are_refused(model, tmp_path):
    target = tmp_path / "out.hdf5"
    busy = pytest.raises(InputError, match=r"out\.hdf5: another process is writing it")
    with HDF5Writer(target, {}) as first:
        with busy, HDF5Writer(target, {}):
            pass
        first.finish()


def test_a_folder_of_someone_else_is_left_alone(model, tmp_path):
    (tmp_path / "out.hdf5.partial").mkdir()
    (tmp_path / "out.hdf5.partial" / "mine").touch()
    with pytest.raises(OutputError, match=r"out\.hdf5\.partial: holds mine, but no settings\.json"):
        embed_file(model, LINES, tmp_path / "out.hdf5")
    assert (tmp_path / "out.hdf5.partial" / "mine").exists()


def test_a_damaged_part_is_named(model_folder, tmp_path):
    model = elmokit.load(model_folder, tokens_per_batch=64)
    begin(model, tmp_path)
    part = min((tmp_path / "out.hdf5.partial").glob("part-*"))
    os.truncate(part, 100)
    with pytest.raises(InputError, match=r"part-0+\.npz: is damaged .*; delete .* to start again"):
        embed_file(model, MANY, tmp_path / "out.hdf5")


def test_a_folder_is_no_file(model, tmp_path):
    for target in (tmp_path, "."):
        with pytest.raises(InputError, match="is a folder; name a file"):
            embed_file(model, LINES, target)


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_carried_lines_go_on_in_their_rows(model_folder, tmp_path, rows):
    embed_file(
        elmokit.load(model_folder, state="carry"), MANY, tmp_path / "out.hdf5", batch_size=rows
    )
    expected = elmokit.load(model_folder, state="carry")
    found = contents(tmp_path / "out.hdf5")
    for start in range(0, 400, rows):
        batch = MANY[start : start + rows]
        arrays = expected.embed([line.split() for line in batch])
        for number, array in enumerate(arrays, start):
            np.testing.assert_allclose(found[str(number)], array, atol=2e-6)


def test_lines_of_an_open_file_lose_their_ends(model, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a b\r\nc\n")
    with open(tmp_path / "in.txt", encoding="utf-8", newline="") as lines:
        embed_file(model, lines, tmp_path / "out.hdf5")
    index = contents(tmp_path / "out.hdf5")["sentence_to_index"][0]
    assert json.loads(index) == {"a b": "0", "c": "1"}


def begin(model, tmp_path, **settings):
    with pytest.raises(KilledError):
        embed_file(model, killed_at(MANY, 300), tmp_path / "out.hdf5", **settings)


def test_another_run_is_not_gone_on_with(model_folder, tmp_path):
    model = elmokit.load(model_folder, tokens_per_batch=64)
    begin(model, tmp_path)
    with pytest.raises(InputError, match="was started with form all, now top; finish it as it was"):
        embed_file(model, MANY, tmp_path / "out.hdf5", layers="top")
    other = elmokit.load(model_folder, tokens_per_batch=128)
    with pytest.raises(InputError, match="was started with tokens_per_batch 64, now 128"):
        embed_file(other, MANY, tmp_path / "out.hdf5")
    with pytest.raises(InputError, match="line 2 of the input is not the one that was"):
        embed_file(model, ["", "other"], tmp_path / "out.hdf5")
    with pytest.raises(InputError, match="of the input is not the one that was"):
        embed_file(model, MANY[:3], tmp_path / "out.hdf5")


def test_a_run_that_another_version_started_is_resumed(model_folder, tmp_path):
    model = elmokit.load(model_folder, tokens_per_batch=64)
    begin(model, tmp_path)
    settings = tmp_path / "out.hdf5.partial" / "settings.json"
    stored = json.loads(settings.read_text()) | {"elmokit": "0.1.0"}  # which 0.1 wrote there too
    settings.write_text(json.dumps(stored))
    assert embed_file(model, MANY, tmp_path / "out.hdf5") == 400


def test_an_existing_file_is_left_alone(model, tmp_path):
    foreign = tmp_path / "out.hdf5"
    foreign.write_text("something of mine")
    with pytest.raises(InputError, match=r"out\.hdf5: exists already; delete it, or give another"):
        embed_file(model, LINES, foreign)
    assert foreign.read_text() == "something of mine"


FULL_DISK = """
import resource, sys, elmokit
from elmokit.file_embedding import embed_file
model = elmokit.load(sys.argv[1], tokens_per_batch=64)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
lines = [" ".join(f"w{(k * k + j) % 97}" for j in range(k % 12)) for k in range(400)]
try:
    embed_file(model, lines, sys.argv[2])
except elmokit.OutputError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [2_000, 100_000], ids=["at a part", "at the whole"])
def test_a_full_disk_is_named_and_leaves_nothing_half(model_folder, tmp_path, room):
    target = tmp_path / "out.hdf5"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, model_folder, target, str(room)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "out.hdf5: cannot be written (" in done.stdout
    assert "run the same command again" in done.stdout
    assert not target.exists()
    model = elmokit.load(model_folder, tokens_per_batch=64)
    assert embed_file(model, MANY, target) == 400


def test_a_folder_that_cannot_be_written_is_named(model):
    with pytest.raises(OutputError, match=r"/proc/out.hdf5: cannot be written"):
        embed_file(model, LINES, "/proc/out.hdf5")


def test_a_file_can_be_overwritten(tmp_path):
    for _ in range(2):
        with HDF5Writer(tmp_path / "out.hdf5", {}, overwrite=True) as writer:
            writer.append(["a"], [np.ones((1, 1, 2), np.float32)])
            writer.finish()
    assert contents(tmp_path / "out.hdf5")["0"].shape == (1, 1, 2)


@pytest.mark.parametrize("ending", [".npy", ".tsv", ".jsonl"])
def test_a_table_of_vectors_is_read_again(tmp_path, ending):
    vectors = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    target = tmp_path / f"table{ending}"
    write_vectors(vectors, target)
    if ending == ".npy":
        found = np.load(target)
    elif ending == ".tsv":
        found = np.loadtxt(target, dtype=np.float32)
    else:
        found = np.array([json.loads(line) for line in target.read_text().splitlines()], np.float32)
    np.testing.assert_array_equal(found, vectors)
    assert os.listdir(tmp_path) == [target.name]


def test_a_table_is_not_written_over(tmp_path):
    (tmp_path / "table.npy").touch()
    with pytest.raises(InputError, match=r"table\.npy: exists already"):
        write_vectors(np.zeros((1, 1), np.float32), tmp_path / "table.npy")


def test_a_table_needs_a_known_ending(tmp_path):
    with pytest.raises(InputError, match=r"table\.csv: ends in \.csv, expected \.npy or \.tsv"):
        write_vectors(np.zeros((1, 1), np.float32), tmp_path / "table.csv")
