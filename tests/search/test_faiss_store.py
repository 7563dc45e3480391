"""An index in a folder: its files, other processes that change it, kills at any time."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import asdict

import numpy as np
import pytest

import elmokit
from elmokit.errors import FormatError, InputError, OutputError, ServiceError
from elmokit.search.faiss_store import FaissBuilder
from elmokit.search.faiss_vectors import FaissVectors
from elmokit.search.index import Index
from elmokit.search.passage_vectors import IndexConfig
from elmokit.search.passages import Passage, VectorSource


@pytest.fixture
def folder(model, tmp_path):
    (tmp_path / "text.txt").write_text("He will play the violin. She was late.\nIt rained.\n")
    Index.build(tmp_path / "index", [str(tmp_path / "text.txt")], model).close()
    return tmp_path / "index"


@pytest.fixture
def new_file(tmp_path):
    """Write a line of text to a file, and give its name."""

    def write(line):
        path = tmp_path / f"{line}.txt"
        path.write_text(line + "\n")
        return str(path)

    return write


def test_an_index_is_four_files(folder):
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["index.json", "passages.sqlite", "vectors.faiss", "whitening.npy"]


def test_a_folder_with_something_else_is_left_alone(folder, model, tmp_path):
    with pytest.raises(OutputError, match=r"holds index, but no building\.json"):
        Index.build(tmp_path, [str(tmp_path / "text.txt")], model)
    with pytest.raises(InputError, match="no index there; build one first"):
        Index.open(tmp_path, model)


def test_a_folder_with_something_hidden_is_left_alone(model, tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "home" / ".git").mkdir(parents=True)
    (tmp_path / "home" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(OutputError, match=r"holds \.git, but no building\.json"):
        Index.build(tmp_path / "home", [str(tmp_path / "empty.txt")], model)
    assert [path.name for path in (tmp_path / "home").rglob("*")] == [".git", "HEAD"]


def test_removing_a_build_leaves_other_files(tmp_path):
    config = IndexConfig("m", "spaces", "sentences", "mean", "mean", "none", "flat")
    with FaissBuilder.open(tmp_path / "index", asdict(config)) as builder:
        (tmp_path / "index" / ".note").write_text("mine")
        builder.remove()
    assert [path.name for path in (tmp_path / "index").iterdir()] == [".note"]


def test_a_build_killed_while_writing_its_first_file_starts_again(folder, model, tmp_path):
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".building.json.7.unfinished").write_text("{")
    Index.build(tmp_path / "killed", [str(tmp_path / "text.txt")], model).close()
    test_an_index_is_four_files(tmp_path / "killed")


@pytest.mark.parametrize("next_step", ["change", "build"])
def test_files_that_a_build_killed_at_its_end_left_are_removed(folder, model, tmp_path, next_step):
    (folder / "building.json").write_text("{}")
    (folder / "parts").mkdir()
    np.save(folder / "parts" / "000000000000.npy", np.zeros((3, 12), np.float16))
    if next_step == "change":
        with Index.open(folder, model) as index:
            index.delete([1])
    else:
        with pytest.raises(OutputError, match="an index already"):
            Index.build(folder, [str(tmp_path / "text.txt")], model)
    test_an_index_is_four_files(folder)


def test_an_index_of_cells_is_searched(model, folder, tmp_path):
    Index.build(tmp_path / "i", [str(tmp_path / "text.txt")], model, kind="ivf").close()
    with Index.open(tmp_path / "i", model) as index:
        assert index.config.kind == "ivf"
        index.delete([1])
        assert index.search("It rained.", k=9)[0].passage.text == "It rained."


def texts_of(index, query):
    return [hit.passage.text for hit in index.search(query, k=20)]


def test_changes_by_another_process_are_seen(folder, model, new_file):
    with Index.open(folder, model) as first, Index.open(folder, model) as second:
        first.add([new_file("Something new.")])
        assert texts_of(second, "Something new.")[0] == "Something new."
        second.delete([1])
        assert sorted(texts_of(first, "It.")) == ["It rained.", "She was late.", "Something new."]


def test_occurrences_added_by_another_process_are_found(folder, model, new_file, tmp_path):
    Index.build(tmp_path / "words", [str(tmp_path / "text.txt")], model, unit="words").close()
    with Index.open(tmp_path / "words", model) as one, Index.open(tmp_path / "words", model) as two:
        one.add([new_file("We play it.")])
        assert len(two.search_word("play", "We play it.")) == 2


def test_vectors_added_and_deleted_by_another_process_are_skipped(folder, model, new_file):
    with Index.open(folder, model) as first, Index.open(folder, model) as second:
        name = new_file("Something new.")
        first.add([name])
        first.delete(first.passages_of(name))
        second.add([new_file("Quite another thing!")])
        first.add([new_file("The end.")])
    with Index.open(folder, model) as opened:
        for text in ("Quite another thing!", "The end.", "It rained."):
            assert texts_of(opened, text)[0] == text


def test_a_failed_add_leaves_no_vectors(folder, model, new_file, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"A good line that is far away.\n" * 3 + b"\xff\n")
    model.tokens_per_batch = 1  # the good lines are added before the bad one is met
    with Index.open(folder, model) as index:
        with pytest.raises(InputError, match="line 4: not UTF-8"):
            index.add([str(tmp_path / "bad.txt")])
        index.add([new_file("Something new.")])
    assert len(FaissVectors.open(folder / "vectors.faiss", kind="flat")) == 4


def test_an_index_is_opened_while_another_process_adds(folder, model, new_file, monkeypatch):
    read, added = FaissVectors.open, []

    def read_before_an_add(path, *, kind):
        vectors = read(path, kind=kind)
        added.extend([] if added else [writer.add([new_file("Something new.")])])
        return vectors

    with Index.open(folder, model) as writer:
        monkeypatch.setattr(FaissVectors, "open", read_before_an_add)
        with Index.open(folder, model) as opened:
            assert texts_of(opened, "Something new.")[0] == "Something new."


def test_an_index_is_searched_while_another_process_adds(folder, model):
    long = Passage("long.txt", 1, 0, 9, "long " * 2**18, (("long",),))  # more than SQLite caches
    with Index.open(folder, model) as writer, Index.open(folder, model) as reader:
        with writer.store.changing():
            for _ in range(8):
                writer.store.add([long], [VectorSource(0)], writer.encode("long")[None])
            assert len(texts_of(reader, "It rained.")) == 3
        assert len(texts_of(reader, "It rained.")) == 11


def test_a_search_while_another_process_writes_is_refused_for_a_moment(folder, model, monkeypatch):
    monkeypatch.setattr("elmokit.search.passage_metadata._LOCK_TIMEOUT_SECONDS", 0.01)
    with Index.open(folder, model) as index:
        writer = sqlite3.connect(folder / "passages.sqlite")
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ServiceError, match="another process is writing to it") as refused:
            index.search("It rained.")
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        writer.close()
        assert index.search("It rained.", k=1)[0].passage.text == "It rained."


def test_vectors_that_the_metadata_does_not_list_are_skipped(folder, model):
    with Index.open(folder, model) as index:
        query = index.encode("He will play the violin.")
        vectors = FaissVectors.open(folder / "vectors.faiss", kind="flat")
        vectors.add(query[None])
        vectors.save()  # and then the power failed
    with Index.open(folder, model) as opened:
        assert len(opened.search("He will play the violin.", k=20)) == 3


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("index.json", b"{}", "expected what elmo index build writes"),
        ("vectors.faiss", b"IxSQ", "FAISS cannot read it"),
        ("whitening.npy", b"", "not an array"),
        ("passages.sqlite", b"no database, " * 400, "SQLite cannot read it"),
    ],
)
def test_a_damaged_index_is_named(folder, model, name, damage, message):
    (folder / name).write_bytes(damage)
    with pytest.raises(FormatError, match=message):
        Index.open(folder, model)


def test_files_that_do_not_belong_together_are_refused(folder, model):
    rows = sqlite3.connect(folder / "passages.sqlite")
    rows.execute("INSERT INTO vectors VALUES (99, 1, NULL, NULL, NULL)")
    rows.commit()
    rows.close()
    with pytest.raises(FormatError, match=r"lists 100 vectors, but vectors.faiss has 3"):
        Index.open(folder, model)


def test_vectors_of_two_sizes_are_refused(folder, model):
    np.save(folder / "whitening.npy", np.ones((4, 3), np.float32))
    with pytest.raises(FormatError, match=r"vectors of \[3, 12\] numbers"):
        Index.open(folder, model)


BUILD = """
import sys, torch, elmokit
from elmokit.search.index import Index
torch.set_num_threads(1)
model = elmokit.load(sys.argv[1], tokenizer="spaces", tokens_per_batch=16)
Index.build(sys.argv[3], [sys.argv[2]], model)
"""


@pytest.mark.full
def test_a_killed_build_is_resumed_and_ends_with_the_same_bytes(model_folder, tmp_path):
    text, target = tmp_path / "text.txt", tmp_path / "killed"
    text.write_text("".join(f"line {n} of a text with {n % 7} more\n" for n in range(300)))
    child = subprocess.Popen([sys.executable, "-c", BUILD, model_folder, text, target])
    deadline = time.monotonic() + 60
    while len([*target.glob("parts/[0-9]*.npy")]) < 3 and time.monotonic() < deadline:
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    parts = sorted(target.glob("parts/[0-9]*.npy"))[:-1]
    written = {path: path.stat().st_mtime_ns for path in parts}
    assert len(written) >= 2
    model = elmokit.load(model_folder, tokenizer="spaces", tokens_per_batch=16)
    with pytest.raises(InputError, match="its build was interrupted: repeat it"):
        Index.open(target, model)
    with pytest.raises(InputError, match="was started with pooling mean, now max"):
        Index.build(target, [str(text)], model, pooling="max")
    assert all(path.stat().st_mtime_ns == changed for path, changed in written.items())
    uninterrupted = Index.build(tmp_path / "uninterrupted", [str(text)], model)
    resumed = Index.build(target, [str(text)], model)
    with uninterrupted, resumed:
        assert len(resumed) == len(uninterrupted) == 300
        assert resumed.search("line 9 of it", k=50) == uninterrupted.search("line 9 of it", k=50)
    for name in ("vectors.faiss", "whitening.npy", "index.json"):
        assert (target / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes()
    assert not [*target.glob("parts*"), *target.glob("building.json")]


def test_an_index_that_0_1_built_is_opened(folder, model, settings_of_0_1):
    path = folder / "index.json"
    path.write_text(json.dumps(settings_of_0_1(json.loads(path.read_text()))))
    with Index.open(folder, model) as index:
        assert (index.config.tokenizer, index.config.pooling) == ("moses", "mean")
        assert len(index.search("It rained.", k=9)) == 3
    text = json.dumps(settings_of_0_1(json.loads(index.config.to_json()) | {"pooling": "idf"}))
    assert IndexConfig.from_json(text, "index.json").pooling == "idf"


def test_a_build_that_0_1_started_is_resumed(folder, model, tmp_path, settings_of_0_1):
    bad = tmp_path / "text.txt"
    good = bad.read_bytes()
    model.tokens_per_batch = 1
    bad.write_bytes(good[:-1] + b"\xff")
    times = 1_000_000_000, 1_000_000_000
    os.utime(bad, times)
    with pytest.raises(InputError, match="not UTF-8"):
        Index.build(tmp_path / "started", [str(bad)], model)
    path = tmp_path / "started" / "building.json"
    config = json.loads(path.read_text())
    rest = {name: config.pop(name) for name in ("files", "precision")}
    path.write_text(json.dumps({"recipe": settings_of_0_1(config)} | rest))
    bad.write_bytes(good)
    os.utime(bad, times)
    Index.build(tmp_path / "started", [str(bad)], model).close()
    for name in ("vectors.faiss", "whitening.npy", "index.json"):
        assert (tmp_path / "started" / name).read_bytes() == (folder / name).read_bytes()


def test_a_text_in_the_metadata_that_is_not_utf8_is_refused(folder, model):
    connection = sqlite3.connect(folder / "passages.sqlite")
    connection.execute("UPDATE passages SET text = CAST(x'ff' AS TEXT)")
    connection.commit()
    connection.close()
    with Index.open(folder, model) as index, pytest.raises(FormatError, match="build the index"):
        index.search("violin")
