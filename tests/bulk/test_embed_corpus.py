import importlib
import json
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import elmokit
from elmokit.bulk import embed_corpus, open_shards, row_vectors
from elmokit.bulk.local_engine import LocalEngine
from elmokit.errors import FormatError, InputError, OutputError
from elmokit.file_embedding import embed_file
from elmokit.pooling import POOLINGS
from random_models import make_folder

LINES = [" ".join(f"w{(k * k + j) % 97}" for j in range(k % 12)) for k in range(400)]
WORDS = [line.split() for line in LINES]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("".join(line + "\n" for line in LINES))
    return path


def contents(folder):
    """All rows of a folder of shards, in order, and what else is in it."""
    shards, manifest = open_shards(folder)
    tables = [shards.read_shard(number) for number in range(manifest.corpus.num_shards)]
    assert {*os.listdir(folder)} == {
        "manifest.json", *(f"part-{number:08d}.parquet" for number in range(len(tables)))
    }  # fmt: skip
    return pa.concat_tables(tables)


def assert_vectors(table, expected):
    for found, array in zip(row_vectors(table), expected, strict=True):
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_row_is_there_once_with_the_bits_of_embed(model, model_folder, corpus, workers):
    out = corpus.parent / "out"
    options = {"model": model_folder, "rows_per_shard": 30, "workers": workers}
    assert embed_corpus(corpus, out, **options) == 400
    table = contents(out)
    assert table["id"].to_pylist() == [*range(400)]
    assert table["text"].to_pylist() == LINES
    assert table["words"].to_pylist() == WORDS
    assert_vectors(table, model.embed(WORDS))
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert embed_corpus(corpus, out, **options) == 400  # there is nothing left to do
    assert before == {path: path.stat().st_mtime_ns for path in out.iterdir()}


@pytest.mark.parametrize(
    ("layers", "expected_shape"),
    [
        ("all", [3, 12]),
        ("mean", [12]),
        ("concat", [36]),
        ("top", [12]),
        (0, [12]),
        ([0, 2], [2, 12]),
    ],
)
@pytest.mark.parametrize("pooling", [None, "mean", "max"])
def test_layers_and_pooling_are_the_chosen_ones(model, corpus, layers, expected_shape, pooling):
    out = corpus.parent / "out"
    embed_corpus(corpus, out, model=model.source, layers=layers, pooling=pooling, workers=1)
    table = contents(out)
    field = table.schema.field("vectors")
    squeezed = len(expected_shape) == 1
    if pooling is None:
        expected = [a[0] if squeezed else a for a in model.embed(WORDS, layers=layers)]
        assert table["shape"][1].as_py() == [*expected_shape[:-1], 1, expected_shape[-1]]
    else:
        expected = model.encode(WORDS, layers=layers, pooling=pooling)
        expected[[not words for words in WORDS]] = 0
        kind = (
            pa.list_(pa.float32(), expected_shape[0])
            if squeezed
            else pa.fixed_shape_tensor(pa.float32(), expected_shape)
        )
        assert field.type == kind
    assert_vectors(table, expected)


def test_float16_raw_text_and_lists_of_words(model, tmp_path):
    texts = ["The cat sat. It's here!", "", "One more."]
    pq.write_table(pa.table({"body": texts, "n": [1, 2, 3]}), tmp_path / "a.parquet")
    options = {"model": model.source, "layers": "mean", "workers": 1}
    embed_corpus(
        tmp_path / "a.parquet", tmp_path / "raw", column="body", tokenizer="moses",
        pooling="mean", dtype="float16", **options,
    )  # fmt: skip
    table = contents(tmp_path / "raw")
    assert table.column_names == ["id", "body", "n", "vectors"]
    assert_vectors(table, model.encode(texts).astype(np.float16))
    pq.write_table(pa.table({"words": WORDS[:9]}), tmp_path / "b.parquet")
    embed_corpus(tmp_path / "b.parquet", tmp_path / "words", **options)
    table = contents(tmp_path / "words")
    assert table.column_names == ["id", "words", "vectors", "shape"]
    assert_vectors(table, [array[0] for array in model.embed(WORDS[:9], layers="mean")])


def test_an_output_and_an_input_may_be_addresses(model, corpus, tmp_path):
    embed_corpus(
        f"file://{corpus}", f"file://{tmp_path}/out", model=model.source, rows_per_shard=300,
        layers="top", workers=2,
    )  # fmt: skip
    assert_vectors(contents(tmp_path / "out"), [a[0] for a in model.embed(WORDS, layers="top")])


def test_a_folder_may_hold_its_own_output(model, corpus):
    folder = corpus.parent
    for _ in range(2):
        assert embed_corpus(folder, folder / "out", model=model.source, workers=1) == 400


def test_a_job_is_the_same_in_another_folder(model, corpus, monkeypatch, tmp_path):
    class Elsewhere(LocalEngine):
        def run(self, job, embedder, shards):
            monkeypatch.chdir("/")
            return super().run(pickle.loads(pickle.dumps(job)), embedder, shards)

    monkeypatch.chdir(tmp_path)
    options = elmokit.LoadOptions(model.source)
    engine = Elsewhere(1, options=options)
    embed_corpus(corpus.name, "out", model=options, engine=engine)
    assert_vectors(contents(tmp_path / "out"), model.embed(WORDS))
    assert '"name": "corpus.txt"' in (tmp_path / "out" / "manifest.json").read_text()


def test_a_corpus_without_rows_gives_no_shards(model, tmp_path):
    (tmp_path / "empty.txt").touch()
    assert embed_corpus(tmp_path / "empty.txt", tmp_path / "out", model=model.source) == 0
    assert os.listdir(tmp_path / "out") == ["manifest.json"]


# Imports once, and runs each try in a forked process: one of its workers is killed when there are
# three shards, and it itself when a new worker has written one.
KILLS = """
import os, signal, sys, time
from elmokit.bulk import embed_corpus
from elmokit.bulk.shards import ShardFolder

corpus, out, model = sys.argv[1:]

def start():
    pid = os.fork()
    if not pid:
        embed_corpus(corpus, out, model=model, rows_per_shard=5, workers=2)
        os._exit(0)
    return pid

def workers_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(number) for number in file.read().split()]
    except FileNotFoundError:
        return []

end = time.monotonic() + 120

def wait_for(shards, pid):
    while len(ShardFolder(out).shards()) < shards if os.path.isdir(out) else True:
        if time.monotonic() > end or os.waitpid(pid, os.WNOHANG)[0]:
            sys.exit("ended too early")
        time.sleep(0.001)

parent = start()
wait_for(3, parent)
first = workers_of(parent)
os.kill(first[0], signal.SIGKILL)
# Both workers are replaced: the pool that lost one of them ends.
while not workers_of(parent) or {*first} & {*workers_of(parent)}:
    if time.monotonic() > end or os.waitpid(parent, os.WNOHANG)[0]:
        sys.exit("the workers were not replaced")
    time.sleep(0.001)
wait_for(len(ShardFolder(out).shards()) + 1, parent)
os.kill(parent, signal.SIGKILL)
os.waitpid(parent, 0)
there = len(ShardFolder(out).shards())
parent = start()
assert os.waitpid(parent, 0)[1] == 0
print(there)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_a_killed_worker_and_a_killed_parent_leave_every_row_once(model, corpus, tmp_path):
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", KILLS, corpus, out, model.source],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 4 <= int(done.stdout) < 80
    table = contents(out)  # no temporary file is left
    assert table["id"].to_pylist() == [*range(400)]
    assert_vectors(table, model.embed(WORDS))


def test_workers_that_die_again_and_again_end_the_run(model, corpus, tmp_path, monkeypatch):
    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("elmokit.bulk.job.ShardWriter.write", die)
    with pytest.raises(OutputError, match="workers were killed 3 times before one had finished"):
        embed_corpus(corpus, tmp_path / "out", model=model.source, workers=2, rows_per_shard=99)


def test_an_error_in_a_worker_is_the_callers(model, corpus, tmp_path):
    def take_away(*_):
        corpus.unlink()
        raise FileNotFoundError(2, "No such file or directory", str(corpus))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.bulk.corpus.CorpusReader.read", take_away)
        with pytest.raises(FileNotFoundError, match=r"corpus\.txt"):
            embed_corpus(corpus, tmp_path / "out", model=model.source, workers=2, rows_per_shard=99)


def test_another_model_or_setting_is_refused(model, corpus, tmp_path):
    out = tmp_path / "out"
    options = {"model": model.source, "pooling": "mean", "rows_per_shard": 100, "workers": 1}
    embed_corpus(corpus, out, **options)
    other = tmp_path / "other"
    other.mkdir()
    make_folder(other, size=2.0)
    for change, message in (
        ({"model": other}, "out: was started with another model; go on as it was started"),
        ({"layers": "top"}, "was started with layers all, now top"),
        ({"pooling": None}, "was started with pooling mean, now null"),
        ({"dtype": "float16"}, "was started with dtype float32, now float16"),
        ({"tokenizer": "moses"}, "was started with tokenizer spaces, now moses"),
        ({"rows_per_shard": 50}, "was started with rows_per_shard 100, now 50"),
        ({"model": elmokit.LoadOptions(model.source, state="warm")}, "state zero, now warm"),
        ({"model": elmokit.LoadOptions(model.source, precision="half")}, "precision float32, now"),
    ):
        with pytest.raises(InputError, match=message):
            embed_corpus(corpus, out, **options | change)
    corpus.write_text("other\n" + corpus.read_text())
    with pytest.raises(InputError, match=r"other inputs \(.*corpus.txt has changed\); go on with"):
        embed_corpus(corpus, out, **options)


def test_the_same_text_under_another_name_and_time_goes_on(model, corpus, tmp_path):
    out = tmp_path / "out"
    options = {"model": model.source, "pooling": "mean", "rows_per_shard": 100, "workers": 1}
    embed_corpus(corpus, out, **options)
    whole = contents(out)
    (out / "part-00000002.parquet").unlink()
    (out / ".part-00000002.parquet.x.unfinished").write_text("half")
    with pytest.raises(InputError, match="1 of 4 shards are not there yet"):
        open_shards(out)
    moved = corpus.rename(tmp_path / "moved.txt")
    os.utime(moved, (1, 1))
    assert embed_corpus(moved, out, **options) == 400
    assert contents(out).equals(whole)


def test_what_cannot_be_used_is_refused(model, corpus, tmp_path):
    options = {"model": model.source, "workers": 1}
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "mine").touch()
    with pytest.raises(OutputError, match=r"foreign: holds mine, but no manifest\.json"):
        embed_corpus(corpus, foreign, **options)
    with pytest.raises(OutputError, match=r"corpus\.txt: is a file; name a folder"):
        embed_corpus(corpus, corpus, **options)
    (foreign / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"manifest\.json: is not one of elmokit vectors; name an"):
        embed_corpus(corpus, foreign, **options)
    (foreign / "manifest.json").write_text('{"format": "elmokit vectors", "version": 1}')
    with pytest.raises(FormatError, match=r"manifest\.json: not a manifest of vectors, or a damag"):
        embed_corpus(corpus, foreign, **options)
    with pytest.raises(InputError, match=r"none: has no manifest\.json"):
        open_shards(tmp_path / "none")
    out = tmp_path / "out"
    for change, message in (
        ({"model": elmokit.LoadOptions(model.source, state="carry")}, "state is 'carry', but rows"),
        ({"pooling": "best"}, f"pooling is 'best', expected one of {', '.join(POOLINGS)}"),
        ({"layers": 7}, "layer 7 was asked for"),
        ({"dtype": "int8"}, "dtype is 'int8', expected 'float32' or"),
        ({"workers": 0}, "workers is 0, expected 1 or more"),
        ({"rows_per_shard": 0}, "rows_per_shard is 0, expected 1 or more"),
    ):
        with pytest.raises(InputError, match=message):
            embed_corpus(corpus, out, **options | change)
    with pytest.raises(elmokit.ConfigError, match="no tokenizer is called 'x'"):
        embed_corpus(corpus, out, tokenizer="x", **options)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a", "vectors": 1}))
    with pytest.raises(InputError, match="has a column 'vectors', which is to be added; rename it"):
        embed_corpus(tmp_path / "a.jsonl", out, **options)


def test_a_full_disk_is_named_and_leaves_no_half_shard(model, corpus, tmp_path):
    resource = pytest.importorskip("resource", reason="needs limits of POSIX")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = {"model": model.source, "workers": 1}
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"out: cannot be written \(.*run the same command"):
            embed_corpus(corpus, tmp_path / "out", **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path / "out") == ["manifest.json"]
    embed_corpus(corpus, tmp_path / "out", **options)
    assert_vectors(contents(tmp_path / "out"), model.embed(WORDS))


@pytest.mark.parametrize(
    ("package", "module", "message"),
    [
        ("pyarrow", "elmokit.bulk", "need pyarrow, .* pip install 'elmokit.bulk.'"),
        ("ray", "elmokit.ray", "needs Ray, .* pip install 'elmokit.ray.'"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package, module, message):
    for name in [name for name in sys.modules if name.startswith(module)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delattr(elmokit, module.removeprefix("elmokit."), raising=False)
    with pytest.raises(InputError, match=message):
        importlib.import_module(module)
    assert not hasattr(elmokit, "ray" if package == "ray" else "no such name")


def test_two_runs_at_once_are_refused(model, corpus, tmp_path):
    options = {"model": model.source, "workers": 1}
    embed_corpus(corpus, tmp_path / "out", **options)
    shards, _ = open_shards(tmp_path / "out")
    with (
        shards.open(),
        pytest.raises(InputError, match="out: another process is writing it; wait until"),
    ):
        embed_corpus(corpus, tmp_path / "out", **options)


def test_a_file_and_a_folder_hold_the_same_vectors(model, corpus, tmp_path):
    import h5py

    embed_file(model, LINES, tmp_path / "out.hdf5")
    embed_corpus(corpus, tmp_path / "out", model=model.source, workers=1)
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert_vectors(contents(tmp_path / "out"), [file[str(row)][...] for row in range(400)])
