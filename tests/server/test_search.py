"""Search over HTTP, also when its database is gone, comes back or was rebuilt."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest

from elmokit.errors import ServiceError
from elmokit.search.index import Index
from elmokit.search.pg_connection import PostgresAddress
from elmokit.search.sample_index import sample_index
from elmokit.server.client import Client
from waiting import wait_until

QUERY = {"query": "a painter of landscapes", "k": 3}


def test_the_sample_is_searched_and_highlighted(serving, language_model):
    served = serving(language_model, index=sample_index(language_model))
    found = served.get_json("/search", {"query": "The soup needs more pepper and a little lemon."})
    assert found["results"][0]["words"][:2] == ["The", "soup"]
    assert found["results"][0]["highlighted"]
    assert {passage["file"] for passage in found["results"]} == {"sample.txt"}


def test_the_tokens_of_a_search_are_counted(serving, language_model, tmp_path):
    (tmp_path / "text.txt").write_text("a b c d e f g h\na b c d\n" + "a " * 50)
    text = [str(tmp_path / "text.txt")]
    with Index.build(tmp_path / "i", text, language_model, layers="mean") as index:
        served = serving(language_model, index=index, max_tokens=30, tokens_per_batch=30)
        with ThreadPoolExecutor(3) as pool:
            with served.held():
                before = served.metric("elmokit_tokens_total")
                waiting = [
                    pool.submit(served.get_json, "/search", {"query": "a b c d"}) for _ in "123"
                ]
                wait_until(lambda: served.batcher.num_waiting == 4)
            found = [answer.result()["results"] for answer in waiting]
    assert [[len(p["words"]) for p in one] for one in found] == [[4, 8, 50]] * 3
    assert all(one[0]["highlighted"] and not one[2]["highlighted"] for one in found)
    # Each query is read alone, then with the two passages that are not too long, and their marks.
    assert served.metric("elmokit_tokens_total") - before == 3 * (6 + 6 + 10 + 6)


def test_a_database_that_is_gone_is_503_until_it_is_back(
    serving, language_model, postgres, tmp_path
):
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe bank of a river .\n")
    url = postgres.address("served")
    with Index.build(url, [str(tmp_path / "text.txt")], language_model) as index:
        served = serving(language_model, index=index)
        before = served.get_json("/search", QUERY)
        assert len(before["results"]) == 2
        with postgres.away():
            status, headers, _ = served.request("/search", QUERY)
            assert (status, headers["Retry-After"]) == (503, "1")
            assert "the database does not answer" in served.get_error("/search", QUERY)[1]
            with pytest.raises(ServiceError, match="the database does not answer"):
                Client(served.url, max_retries=1, max_wait=0.01).search("a bank")
            assert served.request("/encode", {"texts": ["a"]})[0] == 200
            assert served.request("/ready")[0] == 200
        assert served.get_json("/search", QUERY) == before


def test_a_rebuilt_index_is_reopened(serving, language_model, postgres, tmp_path):
    text, url = tmp_path / "text.txt", postgres.address("rebuilt")

    def build(*lines):
        postgres.run(f"DROP SCHEMA IF EXISTS {PostgresAddress.from_url(url).schema} CASCADE")
        text.write_text("".join(f"{line}\n" for line in lines))
        Index.build(url, [str(text)], language_model).close()

    build("A bank lent money .", "The bank of a river .")
    open_index = partial(Index.open, url, language_model)
    served = serving(language_model, index=open_index(), open_index=open_index)
    with closing(served.resources):
        assert len(served.get_json("/search", QUERY)["results"]) == 2
        build("A painter of landscapes .", "Two owls .", "No bank .")
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(served.get_json, ["/search"] * 4, [QUERY] * 4):
                assert found["results"][0]["text"] == "A painter of landscapes ."
        postgres.run(f"DROP SCHEMA {PostgresAddress.from_url(url).schema} CASCADE")
        status, headers, body = served.request("/search", QUERY)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "no index there; build one first" in json.loads(body)["error"]
        build("A painter .")
        assert len(served.get_json("/search", QUERY)["results"]) == 1


def test_a_result_has_all_that_the_index_stores(serving, language_model, tmp_path):
    (tmp_path / "text.txt").write_text("A bank lent. A painter painted.\n")
    with Index.build(tmp_path / "i", [str(tmp_path / "text.txt")], language_model) as index:
        served = serving(language_model, index=index)
        (found,) = served.get_json("/search", {"query": "A painter painted.", "k": 1})["results"]
    file = str(tmp_path / "text.txt")
    assert found == {
        "id": 2, "score": pytest.approx(1, abs=1e-3), "text": "A painter painted.",
        "words": ["A", "painter", "painted", "."], "highlighted": [1, 2],
        "file": file, "line": 1, "start": 13, "end": 31,
    }  # fmt: skip


@pytest.fixture
def uses(serving, language_model, tmp_path):
    """A service with an index of words, and that index."""
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe Bank of a river .\nMy money .\n")
    with Index.build(
        tmp_path / "i", [str(tmp_path / "text.txt")], language_model, unit="words"
    ) as index:
        yield serving(language_model, index=index), index


def test_occurrences_of_a_word_are_found_by_its_occurrence_in_the_query(uses):
    served, index = uses
    asked = {"query": "The Bank of a river .", "word": "bank"}
    found = served.get_json("/search", asked)["results"]
    assert [(use["line"], use["highlighted"]) for use in found] == [(2, [1]), (1, [1])]
    assert [use["words"][1] for use in found] == ["Bank", "bank"]
    assert [use["score"] for use in found] == [
        pytest.approx(hit.score, abs=1e-5) for hit in index.search_word("bank", asked["query"])
    ]
    others = served.get_json("/search", asked | {"any_word": True, "k": 8})["results"]
    expected = index.search_word("bank", asked["query"], k=8, any_word=True)
    assert [(use["id"], use["highlighted"]) for use in others] == [
        (hit.passage.id, [hit.passage.word_index]) for hit in expected
    ]
    mine = Client(served.url).search("My money .", word="money", k=2)
    assert [use.line for use in mine] == [3, 1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "{name}: an index of words; give a word of the text"),
        ({"any_word": True}, "any_word was given without a word"),
        ({"word": "owl"}, "'owl' is not a word of the sentence, whose words are: a painter"),
        ({"word": "painter"}, "{name}: 'painter' does not occur in the index"),
        ({"word": "\ud800"}, "word has '\\ud800', half of a surrogate pair; expected valid"),
        ({"word": 3}, "word is 3: input should be a valid string"),
        (
            {"word": "painter", "any_word": "yes"},
            "any_word is 'yes': input should be a valid boolean",
        ),
    ],
)
def test_a_word_that_cannot_be_searched_is_refused(uses, change, says):
    served, index = uses
    status, sentence = served.get_error("/search", {"query": "a painter"} | change)
    says = says.format(name=index.name)
    assert (status, sentence[: len(says)]) == (422, says)


def test_an_index_of_passages_has_no_words(served):
    status, sentence = served.get_error("/search", {"query": "a bank", "word": "bank"})
    assert (status, "searching for a word needs one of words" in sentence) == (422, True)


def test_a_search_that_hangs_blocks_no_other_request(serving, language_model):
    hanging, release = threading.Event(), threading.Event()

    class Hanging:
        """A store that does not answer until it is told to."""

        def __init__(self, store):
            self._store = store

        def __getattr__(self, name):
            return getattr(self._store, name)

        def nearest(self, query, k):
            hanging.set()
            assert release.wait(20)
            return self._store.nearest(query, k)

    index = sample_index(language_model)
    index.store = Hanging(index.store)
    served = serving(language_model, index=index, timeout_seconds=1)
    try:
        status, sentence = served.get_error("/search", QUERY)
        assert (status, sentence[:26]) == (503, "no answer within 1 seconds")
        assert hanging.is_set()
        assert served.request("/encode", {"texts": ["a"]})[0] == 200
    finally:
        release.set()
    assert len(served.get_json("/search", QUERY)["results"]) == 3
