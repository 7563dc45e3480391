"""A service searches a database, tells when that is gone, and goes on when it is back."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from elmokit.errors import ServiceError
from elmokit.explore.build import build_index
from elmokit.explore.sample import index_sample
from elmokit.server.client import Client
from elmokit.server.shelf import Shelf

QUERY = {"query": "a painter of landscapes", "k": 3}


def test_the_sample_is_searched_and_lit(serving, language_model):
    served = serving(language_model, shelf=Shelf(index_sample(language_model)))
    found = served.told("/search", {"query": "The soup needs more pepper and a little lemon."})
    assert found["found"][0]["words"][:2] == ["The", "soup"]
    assert found["found"][0]["lit"]
    assert {passage["file"] for passage in found["found"]} == {"sample.txt"}


def test_a_search_is_as_big_as_what_it_reads(serving, language_model, tmp_path):
    (tmp_path / "text.txt").write_text("a b c d e f g h\na b c d\n" + "a " * 50)
    with build_index(language_model, [str(tmp_path / "text.txt")], tmp_path / "i") as index:
        served = serving(language_model, shelf=Shelf(index), tokens=30, batch_tokens=30)
        with ThreadPoolExecutor(3) as pool:
            with served.held():
                before = served.desk.metrics.tokens
                waiting = [pool.submit(served.told, "/search", {"query": "a b"}) for _ in "123"]
                served.wait_until(lambda: served.desk.waiting == 4)
            found = [answer.result()["found"] for answer in waiting]
    assert [[len(passage["words"]) for passage in one] for one in found] == [[4, 8, 50]] * 3
    assert [[bool(passage["lit"]) for passage in one] for one in found] == [[True, True, False]] * 3
    # Each query is read alone, then with the two passages that are not too long, and their marks.
    assert served.desk.metrics.tokens - before == 3 * (4 + 4 + 10 + 6)


def test_a_database_that_is_gone_is_503_until_it_is_back(
    serving, language_model, postgres, tmp_path
):
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe bank of a river .\n")
    url = postgres.address("served")
    with build_index(language_model, [str(tmp_path / "text.txt")], url) as index:
        served = serving(language_model, shelf=Shelf(index))
        before = served.told("/search", QUERY)
        assert len(before["found"]) == 2
        with postgres.away():
            status, headers, _ = served.ask("/search", QUERY)
            assert (status, headers["Retry-After"]) == (503, "1")
            assert "the database does not answer" in served.refused("/search", QUERY)[1]
            with pytest.raises(ServiceError, match="the database does not answer"):
                Client(served.url, retries=1, most_wait=0.01).search("a bank")
            assert served.ask("/encode", {"texts": ["a"]})[0] == 200
            assert served.ask("/ready")[0] == 200
        assert served.told("/search", QUERY) == before


def test_an_index_of_words_is_refused(serving, language_model, tmp_path):
    (tmp_path / "text.txt").write_text("A bank lent money .\n")
    built = build_index(language_model, [str(tmp_path / "text.txt")], tmp_path / "i", unit="words")
    with built as index:
        served = serving(language_model, shelf=Shelf(index))
        status, sentence = served.refused("/search", QUERY)
    assert status == 422
    assert sentence == f"{tmp_path / 'i'}: an index of words; say which word of the text"


def test_a_search_that_hangs_holds_up_nobody_else(serving, language_model):
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

    index = index_sample(language_model)
    index.store = Hanging(index.store)
    served = serving(language_model, shelf=Shelf(index), seconds=1)
    try:
        status, sentence = served.refused("/search", QUERY)
        assert (status, sentence[:26]) == (503, "no answer within 1 seconds")
        assert hanging.is_set()
        assert served.ask("/encode", {"texts": ["a"]})[0] == 200
    finally:
        release.set()
    assert len(served.told("/search", QUERY)["found"]) == 3
