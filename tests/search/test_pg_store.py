"""An index in PostgreSQL: kills, a server that is down, and no passwords in messages."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from itertools import count

import numpy as np
import psycopg
import pytest

import elmokit
from elmokit.errors import FormatError, InputError, OutputError, ServiceError
from elmokit.search import Index, read_index_info
from elmokit.search.passage_vectors import IndexConfig
from elmokit.search.passages import Passage, VectorSource
from elmokit.search.pg_builder import PostgresBuilder
from elmokit.search.pg_connection import PostgresAddress
from elmokit.search.pg_store import PostgresStore
from elmokit.search.store import Counts
from elmokit.whitening import Whitening

pytestmark = pytest.mark.full

TEXT = "He will play the violin. She was late.\nThe children play in the street.\n"


_tests = count()


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return str(tmp_path / "text.txt")


@pytest.fixture
def url(postgres):
    return postgres.address(f"own{next(_tests)}")


@pytest.mark.parametrize(
    ("url", "name", "schema"),
    [
        ("postgresql://u:secret@h:5433/d?index=wiki", "h:5433/d?index=wiki", "elmokit_wiki"),
        ("postgres://u:secret@h/d", "h/d?index=default", "elmokit_default"),
        ("postgresql://h/d?index=a&password=secret", "h/d?index=a", "elmokit_a"),
        ("postgresql:///d?host=/run/pg&index=a_1", "/d?host=/run/pg&index=a_1", "elmokit_a_1"),
        ("postgresql://u:a%40secret@[::1]/d", "::1/d?index=default", "elmokit_default"),
    ],
)
def test_a_url_names_an_index_and_its_name_has_no_secret(url, name, schema):
    address = PostgresAddress.from_url(url)
    assert (address.name, address.schema) == (f"postgresql://{name}", schema)
    assert "secret" not in repr(address)
    assert "index=" not in address.conninfo


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:a@secret@h/d",
        "postgresql://u:a/secret@h/d",
        "postgresql://u:a?secret@h/d",
        "postgresql://u:secret/d",
        "postgresql://u:%zzsecret@h/d",
        "postgresql://h/d?secret=1",
        "postgresql://u:secret@h/d?index=Wiki",
        "postgresql://u:secret@h/d?index=a;drop",
        "postgresql://u:secret@h/d?index=" + "a" * 41,
        "postgresql://u:secret@127.0.0.1:1/d",
        "postgresql://u:secret@127.0.0.1:1/d?password=secret",
        "postgresql://u:secret@host.invalid/d",
        "postgresql://u:secret@127.0.0.1:99999/d",
        "postgresql:///d?host=/none&password=secret",
    ],
)
def test_a_wrong_url_is_refused_in_one_line_without_its_secret(model, url):
    with pytest.raises((InputError, ServiceError)) as refused:
        Index.open(url, model)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    if isinstance(refused.value, ServiceError):
        assert refused.value.status == 503
        assert "the database does not answer (" in str(refused.value)


def test_a_database_may_have_many_indexes(model, text, postgres, tmp_path):
    (tmp_path / "other.txt").write_text("Quite another thing!\n")
    names = "many_one", "many_two"
    for name, file in zip(names, (text, str(tmp_path / "other.txt")), strict=True):
        Index.build(postgres.address(name), [file], model).close()
    for name, passages in zip(names, (3, 1), strict=True):
        with Index.open(postgres.address(name), model) as index:
            assert len(index) == passages
    with pytest.raises(InputError, match="index=many_three: no index there; build one first"):
        Index.open(postgres.address("many_three"), model)


def test_a_server_that_is_down_is_reported_and_reconnected_to(model, text, url, postgres):
    with Index.build(url, [text], model) as index:
        before = index.search("a violin")
        with postgres.away():
            for _ in range(2):
                with pytest.raises(ServiceError, match="the database does not answer") as gone:
                    index.search("a violin")
                assert (gone.value.status, gone.value.retry_after) == (503, 1)
            with pytest.raises(ServiceError, match="the database does not answer"):
                index.delete([1])
            with pytest.raises(ServiceError, match="the database does not answer"):
                Index.open(url, model)
        assert index.search("a violin") == before
        with postgres.away():
            pass  # without a query meanwhile
        index.delete([1])
        assert len(index) == 2


def test_a_dropped_index_is_reported(model, text, url, postgres):
    with Index.build(url, [text], model) as index:
        postgres.run(f"DROP SCHEMA {PostgresAddress.from_url(url).schema} CASCADE")
        with pytest.raises(FormatError, match="does not exist any more; build it again"):
            index.search("a violin")
    postgres.run(f"CREATE SCHEMA {PostgresAddress.from_url(url).schema}")
    with pytest.raises(OutputError, match="exists and is no index"):
        Index.build(url, [text], model)


def test_a_rebuilt_index_is_not_searched_with_the_old_whitening(model, text, url, postgres):
    with Index.build(url, [text], model) as index:
        postgres.run(f"DROP SCHEMA {PostgresAddress.from_url(url).schema} CASCADE")
        Index.build(url, [text], model).close()
        for change in (lambda: index.search("a violin"), lambda: index.delete([1])):
            with pytest.raises(FormatError, match="built again since it was opened; open it again"):
                change()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("recipe = '{}'", "config: .*expected what elmo index build writes"),
        ("whitening = ''", "whitening: not an array"),
    ],
)
def test_a_damaged_index_is_named(model, text, url, postgres, change, message):
    Index.build(url, [text], model).close()
    postgres.run(f"UPDATE {PostgresAddress.from_url(url).schema}.made SET {change}")
    with pytest.raises(FormatError, match=message):
        Index.open(url, model)


# The columns of the tables of 0.1, whose indexes are opened and whose builds are resumed.
COLUMNS_OF_0_1 = {
    "made": "begun recipe whitening passages",
    "parts": "number passages rows counted vectored vectors",
    "passages": "id file line start stop text",
    "vectors": "passage word form place numbers",
}


def check_columns(postgres, schema, tables):
    for table in tables:
        columns = postgres.run(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = "
            f"'{schema}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        assert " ".join(name for (name,) in columns) == COLUMNS_OF_0_1[table]


def test_an_index_that_0_1_built_is_opened(model, text, url, postgres, settings_of_0_1):
    with Index.build(url, [text], model) as index:
        hits, settings = index.search("a violin"), json.loads(index.config.to_json())
    schema = PostgresAddress.from_url(url).schema
    check_columns(postgres, schema, ("made", "passages", "vectors"))
    for pooling in ("mean", "idf"):
        recipe = json.dumps(settings_of_0_1(settings | {"pooling": pooling}))
        postgres.run(f"UPDATE {schema}.made SET recipe = '{recipe}'")
        assert read_index_info(url).config.pooling == pooling
        if pooling == "mean":  # the other needs a vocabulary
            with Index.open(url, model) as index:
                assert index.search("a violin") == hits


def test_a_build_that_0_1_started_is_resumed(model, url, postgres, tmp_path, settings_of_0_1):
    text, times = tmp_path / "text.txt", (1_000_000_000, 1_000_000_000)
    model.tokens_per_batch = 1
    text.write_bytes(TEXT.encode() * 3 + b"\xff\n")
    os.utime(text, times)
    with pytest.raises(InputError, match="not UTF-8"):
        Index.build(url, [str(text)], model)
    schema = PostgresAddress.from_url(url).schema
    check_columns(postgres, schema, ("made", "parts"))
    ((manifest,),) = postgres.run(f"SELECT begun FROM {schema}.made")
    config = json.loads(manifest)
    rest = {name: config.pop(name) for name in ("files", "precision")}
    begun = json.dumps({"recipe": settings_of_0_1(config)} | rest)
    postgres.run(f"UPDATE {schema}.made SET begun = '{begun}'")
    text.write_bytes(TEXT.encode() * 3 + b"x\n")
    os.utime(text, times)
    uninterrupted = Index.build(postgres.address("uninterrupted_0_1"), [str(text)], model)
    with Index.build(url, [str(text)], model) as resumed, uninterrupted:
        assert len(resumed) == 10
        assert resumed.search("a violin", k=9) == uninterrupted.search("a violin", k=9)


def config_of(kind):
    return IndexConfig("model", "moses", "sentences", "mean", "mean", "none", kind)


def test_kinds_that_pgvector_lacks_are_refused_before_anything_is_made(url):
    for kind, dim, message in [
        ("ivf", 16, "kind is 'ivf', in PostgreSQL expected auto, flat or hnsw"),
        ("hnsw", 4001, "vectors have 4,001 numbers, pgvector makes no graph of more than 4,000"),
    ]:
        builder = PostgresBuilder.open(url, asdict(config_of(kind)), dim=dim)
        with pytest.raises(InputError, match=message), builder:
            pass


def test_a_graph_finds_nearly_what_exact_search_finds(postgres):
    random = np.random.default_rng(0)
    vectors = random.standard_normal((2020, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    stored, queries, nearest = vectors[20:], vectors[:20], {}
    for kind in ("flat", "hnsw"):
        url, config = postgres.address(f"recall_{kind}"), config_of(kind)
        with PostgresBuilder.open(url, asdict(config), dim=16) as builder:
            for start in range(0, 2000, 500):
                passages = [Passage("f", n, 0, 1, str(n), ()) for n in range(start, start + 500)]
                half = stored[start : start + 500].astype(np.float16)
                builder.add_part(passages, [VectorSource(n) for n in range(500)], half)
            builder.finish(config, Whitening.fit_batches([], dim=16, method="none"), None)
        store = PostgresStore.open(url)
        nearest[kind] = [
            [hit.passage.line for hit in store.nearest(query, 10)] for query in queries
        ]
        assert len(store.nearest(queries[0], 1500)) == 1500
        plan = postgres.run(
            f"EXPLAIN SELECT 1 FROM elmokit_recall_{kind}.vectors "
            f"ORDER BY numbers <#> '{[0.1] * 16}'::halfvec LIMIT 10"
        )
        assert ("Index Scan using vectors_numbers_idx" in str(plan)) == (kind == "hnsw")
        store.close()
    exact = np.argsort(-(queries @ stored.astype(np.float16).astype(np.float32).T), 1)[:, :10]
    assert np.mean([len({*a} & {*b}) for a, b in zip(nearest["flat"], exact, strict=True)]) > 9.9
    assert np.mean([len({*a} & {*b}) for a, b in zip(nearest["hnsw"], exact, strict=True)]) > 9.5


WORK = """
import sys, torch, elmokit
from elmokit.search import Index, read_index_info
torch.set_num_threads(1)
model = elmokit.load(sys.argv[1], tokenizer="spaces", tokens_per_batch=16)
if sys.argv[2] == "build":
    Index.build(sys.argv[4], [sys.argv[3]], model, kind="hnsw")
else:
    Index.open(sys.argv[4], model).add([sys.argv[3]])
"""


@pytest.fixture
def kill_when(model_folder, tmp_path, postgres):
    """Start to build, or to add, and kill it when the answer to a query is true."""

    def run(work, file, url, query):
        child = subprocess.Popen([sys.executable, "-c", WORK, model_folder, work, file, url])
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and child.poll() is None:
            try:
                if postgres.run(query)[0][0]:
                    break
            except psycopg.errors.UndefinedTable:
                pass  # not yet
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL

    return run


@pytest.fixture
def spaced(model_folder):
    return elmokit.load(model_folder, tokenizer="spaces", tokens_per_batch=16)


def lines(path, count):
    path.write_text("".join(f"line {n} of a text with {n % 7} more\n" for n in range(count)))
    return str(path)


def test_a_killed_build_is_resumed_wherever_it_was_killed(
    spaced, url, postgres, kill_when, tmp_path
):
    text, schema = lines(tmp_path / "text.txt", 300), PostgresAddress.from_url(url).schema
    kill_when("build", text, url, f"SELECT count(*) >= 3 FROM {schema}.parts")
    ((num_parts,),) = postgres.run(f"SELECT count(*) FROM {schema}.parts")
    assert num_parts >= 3
    with pytest.raises(InputError, match="its build was interrupted: repeat it"):
        Index.open(url, spaced)
    postgres.wait_until_left()
    with pytest.raises(InputError, match="was started with pooling mean, now max; finish it as it"):
        Index.build(url, [text], spaced, kind="hnsw", pooling="max")

    # All is loaded and the graph is made; the load waits to drop the parts, and is killed.
    with postgres.holding(f"SELECT count(*) FROM {schema}.parts"):
        kill_when("build", text, url, "SELECT count(*) FROM pg_locks WHERE NOT granted")
    postgres.wait_until_left()
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' ORDER BY 1"
    assert postgres.run(tables) == [("made",), ("parts",)]
    with pytest.raises(InputError, match="its build was interrupted: repeat it"):
        Index.open(url, spaced)

    resumed = Index.build(url, [text], spaced, kind="hnsw")
    uninterrupted = Index.build(postgres.address("uninterrupted"), [text], spaced, kind="hnsw")
    with uninterrupted, resumed:
        assert len(resumed) == len(uninterrupted) == 300
        assert resumed.search("line 9 of it", k=50) == uninterrupted.search("line 9 of it", k=50)
        assert resumed.whitening.to_bytes() == uninterrupted.whitening.to_bytes()
    finished = ["frequencies", "lexical_part", "made", "passages", "terms", "vectors"]
    assert postgres.run(tables) == [(name,) for name in finished]


def test_a_killed_add_leaves_the_index_unchanged(spaced, url, postgres, kill_when, tmp_path):
    text, more = lines(tmp_path / "text.txt", 10), lines(tmp_path / "more.txt", 1500)
    schema = PostgresAddress.from_url(url).schema
    with Index.build(url, [text], spaced) as index:
        before = index.search("line 9 of it", k=50)
        kill_when("add", more, url, f"SELECT pg_relation_size('{schema}.vectors') > 16384")
        postgres.wait_until_left()
        assert index.store.counts() == Counts(10, 10, 1)
        assert index.search("line 9 of it", k=50) == before
        spaced.tokens_per_batch = 4096
        assert index.add([more]) == 1500
