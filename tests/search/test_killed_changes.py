"""Changes that fail or are killed leave the passages, their vectors and their terms in step."""

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager, nullcontext

import pytest

import elmokit
from elmokit.errors import InputError, OutputError
from elmokit.search import Index
from elmokit.search.faiss_store import FaissStore
from elmokit.search.faiss_vectors import FaissVectors
from elmokit.search.passage_metadata import PassageMetadata
from elmokit.search.pg_connection import Database, PostgresAddress

WORDS = [f"word{n}" for n in range(7)] + ["text", "one", "two", "more"]


@pytest.fixture
def spaced(model_folder):
    return elmokit.load(model_folder, tokenizer="spaces", tokens_per_batch=64, kernel="torch")


@pytest.fixture
def files(tmp_path):
    """Three files, of 5, 40 and 60 lines."""
    for name, count in (("text", 5), ("one", 40), ("two", 60)):
        lines = [f"{name} word{n % 7} of a line with {n} more\n" for n in range(count)]
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    return [str(tmp_path / f"{name}.txt") for name in ("text", "one", "two")]


def check_terms(index):
    """The statistics are those of the passages that are there, and each is found by its words."""
    assert index.mode == "hybrid"
    hits = index.search("a", k=500, mode="semantic")
    passages = [set(index.terms(hit.passage.text.split())) for hit in hits]
    counts = index.store.counts()
    assert len(passages) == counts.passages == counts.vectors
    statistics = index.store.term_statistics(index.terms(WORDS))
    assert statistics.passages == len(passages)
    for word, term in zip(WORDS, index.terms(WORDS), strict=True):
        number = sum(term in terms for terms in passages)
        assert statistics.frequencies.get(term, 0) == number
        assert len(index.search(word, k=500, mode="lexical")) == number
    if not isinstance(index.store, FaissStore):
        return
    with closing(sqlite3.connect(index.store.folder / "passages.sqlite")) as connection:
        connection.execute("INSERT INTO passage_terms (passage_terms) VALUES ('integrity-check')")
        connection.rollback()


class FailedWriteError(Exception):
    """How a write fails in these tests."""


@contextmanager
def failing(number):
    """Let that write fail, counted from 1; the context is how many writes there were."""
    writes = []

    def counted(function):
        def write(*args, **kwargs):
            writes.append(function)
            if len(writes) == number:
                raise FailedWriteError
            return function(*args, **kwargs)

        return write

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (FaissVectors, "save"), (PassageMetadata, "add"), (PassageMetadata, "delete"),
            (PassageMetadata, "finish_terms"), (PassageMetadata, "commit"), (Database, "execute"),
        ):  # fmt: skip
            patch.setattr(owner, name, counted(getattr(owner, name)))
        yield writes


@pytest.mark.parametrize("change", ["add", "delete", "upgrade"])
def test_a_change_of_which_any_write_fails_has_no_effect(spaced, files, location, change):
    changes = {
        "add": lambda index: index.add(files[1:]),
        "delete": lambda index: index.delete(index.passages_of(files[0])[1:]),
        "upgrade": lambda index: index.upgrade(stemmer="english"),
    }
    with Index.build(location("i"), files[:1], spaced) as index:
        before, number, failed = index.search("a line", k=9), 1, 0
        while True:
            try:
                with failing(number) as writes:
                    changes[change](index)
                break
            except FailedWriteError:
                failed += 1
            check_terms(index)
            assert index.search("a line", k=9) == before
            with Index.open(location("i"), spaced) as other:
                assert other.search("a line", k=9) == before
            number += 1
        assert failed == len(writes) >= 2
        check_terms(index)
        assert len(index) == {"add": 105, "delete": 1, "upgrade": 5}[change]


# Reads the name of a change and the step at which to be killed, 0 for never; forks for each line.
# A step is an SQL statement, an answer of the database, or a file renamed or removed.
KILLED = """
import os, pathlib, signal, sqlite3, sys, psycopg, torch, elmokit
from elmokit.search import Index
torch.set_num_threads(1)
model = elmokit.load(sys.argv[1], tokenizer="spaces", tokens_per_batch=64, kernel="torch")
location, first, more = sys.argv[2:]

def before(owner, name):
    function = getattr(owner, name)
    def run(*args, **kwargs):
        step()
        return function(*args, **kwargs)
    setattr(owner, name, run)

def step(*_):
    global steps
    steps += 1
    if steps == last:
        os.kill(os.getpid(), signal.SIGKILL)

def traced(*args, connect=sqlite3.connect, **kwargs):
    connection = connect(*args, **kwargs)
    connection.set_trace_callback(step)
    return connection

def run(change):
    if change == "build":
        return Index.build(location, [first], model, stemmer="english").close()
    with Index.open(location, model) as index:
        if change == "add":
            index.add([more])
        elif change == "delete":
            index.delete(index.passages_of(more))
        else:
            index.upgrade(stemmer=change)

for line in sys.stdin:
    change, last = line.split()
    steps, last = 0, int(last)
    child = os.fork()
    if not child:
        sqlite3.connect = traced
        before(pathlib.Path, "replace")
        before(pathlib.Path, "unlink")
        before(psycopg.Connection, "wait")
        run(change)
        print(steps, flush=True)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        print(status, flush=True)
"""


@pytest.fixture
def kill(model_folder, location, files, request):
    """A function that changes an index, is killed at a step, and returns whether it was."""
    command = [sys.executable, "-c", KILLED, model_folder, location("killed"), *files[:2]]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:

        def run(change, step):
            process.stdin.write(f"{change} {step}\n")
            process.stdin.flush()
            result = int(process.stdout.readline())
            if isinstance(location("killed"), str):
                request.getfixturevalue("postgres").wait_until_left()
            assert result == -signal.SIGKILL or (step == 0 and result > 0)
            return result

        yield run
        process.stdin.close()


def some_steps(total):
    """The first and the last steps, and some between them."""
    between = range(1, total + 1, max(1, total // 12))
    return sorted({*range(1, min(total, 6) + 1), *between, *range(max(1, total - 9), total + 1)})


@pytest.fixture
def remove(location, request):
    """A function that removes the index."""

    def run():
        if isinstance(location("killed"), str):
            schema = PostgresAddress.from_url(location("killed")).schema
            request.getfixturevalue("postgres").run(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        else:
            shutil.rmtree(location("killed"), ignore_errors=True)

    return run


@pytest.mark.full
def test_a_build_killed_at_any_step_ends_with_both_parts(spaced, location, files, kill, remove):
    total, finished = kill("build", 0), 0
    remove()
    for step in some_steps(total):
        kill("build", step)
        expected = pytest.raises(OutputError, match="there is an index already")
        try:
            Index.open(location("killed"), spaced).close()
            finished += 1
        except InputError:  # no index there
            expected = nullcontext()
        with expected:
            Index.build(location("killed"), files[:1], spaced, stemmer="english").close()
        with Index.open(location("killed"), spaced) as index:
            check_terms(index)
            assert len(index) == 5
        remove()
    assert finished < len(some_steps(total))


@pytest.mark.full
def test_a_change_killed_at_any_step_leaves_both_parts_in_step(spaced, location, files, kill):
    first, more = files[:2]
    Index.build(location("killed"), [first], spaced, stemmer="english").close()
    numbers = set()
    for change, start, end in (("add", 5, 45), ("delete", 45, 5)):
        total = kill(change, 0)
        for step in some_steps(total):
            with Index.open(location("killed"), spaced) as index:
                if start == 45 and not index.store.passages_of(more):
                    index.add([more])
                if start == 5 and index.store.passages_of(more):
                    index.delete(index.passages_of(more))
                assert len(index) == start
            kill(change, step)
            with Index.open(location("killed"), spaced) as index:
                check_terms(index)
                assert len(index) in {start, end}
                numbers.add((change, len(index)))
    assert {("add", 5), ("delete", 45)} <= numbers


@pytest.mark.full
def test_an_upgrade_killed_at_any_step_leaves_the_lexical_part_old_or_new(
    spaced, location, files, kill
):
    Index.build(location("killed"), files, spaced, stemmer="english").close()
    stemmers = set()
    for step in some_steps(kill("none", 0)):
        with Index.open(location("killed"), spaced) as index:
            index.upgrade(stemmer="english")
        kill("none", step)
        with Index.open(location("killed"), spaced) as index:
            check_terms(index)
            assert len(index) == 105
            stemmers.add(index.store.lexical_part.stemmer)
    assert "english" in stemmers


CHANGE = """
import sys, torch, elmokit
from elmokit.search import Index
torch.set_num_threads(1)
model = elmokit.load(sys.argv[1], tokenizer="spaces", tokens_per_batch=64)
with Index.open(sys.argv[2], model) as index:
    print("open", flush=True)
    while True:
        for file in sys.argv[3:]:
            index.add([file])
            print("added", flush=True)
        for file in sys.argv[3:]:
            index.delete(index.passages_of(file))
            print("deleted", flush=True)
"""


@pytest.mark.full
def test_changes_killed_at_any_time_leave_both_parts_in_step(
    spaced, model_folder, location, files, request
):
    Index.build(location("killed"), files[:1], spaced, stemmer="english").close()
    rng, states = random.Random(0), set()
    for changes in (0, 1, 2, 3, 6):
        command = [sys.executable, "-c", CHANGE, model_folder, location("killed"), *files[1:]]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"open\n"
        for _ in range(changes):
            assert child.stdout.readline() in (b"added\n", b"deleted\n")
        time.sleep(rng.uniform(0, 0.05))
        child.kill()
        child.wait()
        child.stdout.close()
        if isinstance(location("killed"), str):
            request.getfixturevalue("postgres").wait_until_left()
        with Index.open(location("killed"), spaced) as index:
            check_terms(index)
            states.add(len(index))
            for file in files[1:]:
                if index.store.passages_of(file):
                    index.delete(index.passages_of(file))
            check_terms(index)
            assert len(index) == 5
    assert len(states) > 1
    assert states <= {5, 45, 65, 105}
