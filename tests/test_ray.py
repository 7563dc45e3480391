"""Bulk embedding on a cluster of Ray in this process: each test takes seconds to start actors."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.bulk import embed_corpus, open_shards, row_vectors
from elmokit.errors import InputError, OutputError

ray = pytest.importorskip("ray", reason="needs ray, which is not installed: elmokit[ray]")

# Ray warns of its own settings, and of sockets that it leaves open.
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

LINES = [" ".join(f"w{(k * k + j) % 97}" for j in range(k % 12)) for k in range(300)]
WORDS = [line.split() for line in LINES]


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_AUTH_MODE"] = "disabled"  # no token is left in the user's folder
    for tries_left in (2, 1, 0):
        try:
            ray.init(
                "local", _node_ip_address="127.0.0.1", num_cpus=4, include_dashboard=False,
                log_to_driver=False,
            )  # fmt: skip
            break
        except Exception:  # a busy machine may take longer than Ray waits
            ray.shutdown()
            if not tries_left:
                raise
    yield
    ray.shutdown()


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("".join(line + "\n" for line in LINES))
    return path


def assert_whole(out, model, **options):
    """Every row is there once, with the bits of `embed`, and nothing else is."""
    shards, manifest = open_shards(out)
    numbers = range(manifest.corpus.num_shards)
    tables = [shards.read_shard(number) for number in numbers]
    assert {*os.listdir(out)} == {"manifest.json", *(Path(shards.path_of(n)).name for n in numbers)}
    assert [row for table in tables for row in table["id"].to_pylist()] == [*range(len(LINES))]
    found = [vectors for table in tables for vectors in row_vectors(table)]
    for vectors, array in zip(found, model.embed(WORDS, **options), strict=True):
        np.testing.assert_array_equal(vectors, array)


def test_a_cluster_writes_what_one_process_writes(cluster, model, corpus, tmp_path):
    engine = elmokit.ray.RayEngine(workers=2)
    options = {"model": model.source, "rows_per_shard": 40}
    assert embed_corpus(corpus, tmp_path / "out", engine=engine, **options) == 300
    assert_whole(tmp_path / "out", model)
    (tmp_path / "out" / "part-00000003.parquet").unlink()
    embed_corpus(corpus, tmp_path / "out", workers=1, **options)  # another engine goes on
    assert_whole(tmp_path / "out", model)


def test_a_dataset_gets_a_column_of_vectors(cluster, model):
    rows = [{"n": number, "text": line} for number, line in enumerate(LINES)]
    dataset = ray.data.from_items(rows).repartition(3)
    encoded = elmokit.ray.embed(
        dataset, model=model.source, layers="mean", pooling="mean", workers=1
    )
    found = sorted(encoded.take_all(), key=lambda row: row["n"])
    assert [(row["n"], row["text"]) for row in found] == [*enumerate(LINES)]
    np.testing.assert_array_equal([row["vectors"] for row in found], model.encode(WORDS))
    words = ray.data.from_items([{"words": words} for words in WORDS[:9]])
    encoded = elmokit.ray.embed(words, model=model.source, workers=1)
    found = {tuple(row["words"]): row for row in encoded.take_all()}
    for key, array in zip(map(tuple, WORDS[:9]), model.embed(WORDS[:9]), strict=True):
        np.testing.assert_array_equal(np.reshape(found[key]["vectors"], found[key]["shape"]), array)


def test_a_dataset_is_written_as_shards_and_goes_on(cluster, model, tmp_path):
    dataset = ray.data.from_items([{"text": line} for line in LINES], override_num_blocks=4)
    options = {"model": model.source, "rows_per_shard": 100, "workers": 2}
    written = elmokit.ray.embed(dataset, tmp_path / "out", **options)
    assert written.count() == 300
    assert_whole(tmp_path / "out", model)
    (tmp_path / "out" / "part-00000001.parquet").unlink()
    other = ray.data.from_items([{"text": "another"}])
    with pytest.raises(InputError, match="300 rows with the columns text of another dataset; this"):
        elmokit.ray.embed(other, tmp_path / "out", **options)
    elmokit.ray.embed(dataset, tmp_path / "out", **options)
    assert_whole(tmp_path / "out", model)


def test_a_folder_of_someone_else_is_left_alone(cluster, model, tmp_path):
    (tmp_path / "out.input").mkdir()
    (tmp_path / "out.input" / "precious.txt").touch()
    dataset = ray.data.from_items([{"text": "a"}])
    with pytest.raises(OutputError, match=r"out\.input: holds precious.txt, but"):
        elmokit.ray.embed(dataset, tmp_path / "out", model=model.source)
    with pytest.raises(InputError, match="pooling is 'best', expected one of"):
        elmokit.ray.embed(dataset, tmp_path / "new", model=model.source, pooling="best")
    assert [*(tmp_path / "out.input").iterdir()] == [tmp_path / "out.input" / "precious.txt"]
    assert not (tmp_path / "new.input").exists()


def test_the_weights_are_mapped_into_an_actor(cluster, model):
    @ray.remote
    def is_mapped(shared):
        embedder = shared.load(elmokit.LoadOptions(threads=1))
        writeable = [array.flags.writeable for array in ray.get(shared.weights).values()]
        return any(writeable), embedder.embed([["a", "cat"]])

    any_writeable, (vectors,) = ray.get(is_mapped.remote(elmokit.ray._SharedModel.of(model)))
    assert not any_writeable  # they are in the memory of the object store
    np.testing.assert_array_equal(vectors, model.embed([["a", "cat"]])[0])


def test_mistakes_are_sentences(cluster, model, corpus, tmp_path):
    engine = elmokit.ray.RayEngine(workers=1)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"b\xe4d\n")
    with pytest.raises(InputError, match=r"bad\.txt, line 1: not UTF-8"):
        embed_corpus(bad, tmp_path / "out", model=model.source, engine=engine)
    with pytest.raises(InputError, match="workers is 0, expected 1 or more"):
        elmokit.ray.RayEngine(workers=0)
    dataset = ray.data.from_items([{"body": "a"}])
    with pytest.raises(InputError, match="the dataset has no column 'text', expected body"):
        elmokit.ray.embed(dataset, model=model.source)


def test_a_cluster_that_is_not_there_is_named(model, corpus, tmp_path, monkeypatch):
    def refuse(**arguments):
        raise ConnectionError(f"no cluster\nat {arguments.get('address')}")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    for address, message in (
        ("auto", "cluster 'auto': cannot be joined .no cluster at auto.; start one with ray start"),
        (None, "Ray on this machine: cannot be joined .no cluster at local.; is the machine"),
    ):
        engine = elmokit.ray.RayEngine(address)
        with pytest.raises(InputError, match=message):
            embed_corpus(corpus, tmp_path / "out", model=model.source, engine=engine)


def test_a_killed_actor_is_replaced(cluster, model, corpus, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILL, out, str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killer:
        embed_corpus(
            corpus, out, model=model.source, rows_per_shard=2,
            engine=elmokit.ray.RayEngine(workers=2),
        )  # fmt: skip
        killed, _ = killer.communicate(timeout=10)
    assert killed.startswith("killed at ")
    assert_whole(out, model)


# Kills one of Ray's actors when three shards are there.
KILL = """
import os, signal, sys, time
from pathlib import Path
out, ancestor, end = Path(sys.argv[1]), int(sys.argv[2]), time.monotonic() + 300

def descendants(pid):
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            yield child
            yield from descendants(child)

while len([*out.glob("part-*.parquet")]) < 3:
    if time.monotonic() > end:
        sys.exit("no shard was written")
    time.sleep(0.001)
for pid in descendants(ancestor):
    try:
        is_actor = Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::MapWorker")
    except OSError:
        continue
    if is_actor:
        os.kill(pid, signal.SIGKILL)
        print("killed at", len([*out.glob("part-*.parquet")]))
        break
"""


def test_the_command_goes_on_after_its_driver_was_killed(model, corpus, tmp_path):
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "elmokit.cli", "embed", str(corpus), f"{out}/", "--engine", "ray",
        "--workers", "2", "--rows-per-shard", "2", "--model", str(model.source),
    ]  # fmt: skip
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as driver:
        end = time.monotonic() + 300
        while len([*out.glob("part-*.parquet")]) < 5:
            assert driver.poll() is None, driver.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    there = len([*out.glob("part-*.parquet")])
    assert there < 150
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(f"{out}/: 300 rows\n")  # after what Ray logs
    assert_whole(out, model)
