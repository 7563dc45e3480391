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


def test_the_sample_is_searched_and_highlighted(start_service, language_model):
    service = start_service(language_model, index=sample_index(language_model))
    response = service.get_json(
        "/search", {"query": "The soup needs more pepper and a little lemon."}
    )
    assert response["results"][0]["words"][:2] == ["The", "soup"]
    assert response["results"][0]["highlighted"]
    assert {passage["file"] for passage in response["results"]} == {"sample.txt"}


def test_the_tokens_of_a_search_are_counted(start_service, language_model, tmp_path):
    (tmp_path / "text.txt").write_text("a b c d e f g h\na b c d\n" + "a " * 50)
    text = [str(tmp_path / "text.txt")]
    with Index.build(tmp_path / "i", text, language_model, layers="mean") as index:
        service = start_service(language_model, index=index, max_tokens=30, tokens_per_batch=30)
        with ThreadPoolExecutor(3) as pool:
            with service.model_busy():
                before = service.metric("elmokit_tokens_total")
                futures = [
                    pool.submit(service.get_json, "/search", {"query": "a b c d"}) for _ in "123"
                ]
                wait_until(lambda: service.batcher.num_waiting == 4)
            responses = [future.result()["results"] for future in futures]
    for results in responses:
        assert [len(result["words"]) for result in results] == [4, 8, 50]
        assert results[0]["highlighted"]
        assert not results[2]["highlighted"]
    # Each query is read alone; then the 8 words of all passages; then the query with the two
    # passages that are not too long, and their marks.
    assert service.metric("elmokit_tokens_total") - before == 3 * (6 + 8 + 6 + 10 + 6)


def test_a_database_that_is_gone_is_503_until_it_is_back(
    start_service, language_model, postgres, tmp_path
):
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe bank of a river .\n")
    url = postgres.address("searched")
    with Index.build(url, [str(tmp_path / "text.txt")], language_model) as index:
        service = start_service(language_model, index=index)
        before = service.get_json("/search", QUERY)
        assert len(before["results"]) == 2
        with postgres.away():
            status, headers, _ = service.request("/search", QUERY)
            assert (status, headers["Retry-After"]) == (503, "1")
            assert "the database does not answer" in service.get_error("/search", QUERY)[1]
            with pytest.raises(ServiceError, match="the database does not answer"):
                Client(service.url, max_retries=1, max_wait=0.01).search("a bank")
            assert service.request("/encode", {"texts": ["a"]})[0] == 200
            assert service.request("/ready")[0] == 200
        assert service.get_json("/search", QUERY) == before


def test_a_rebuilt_index_is_reopened(start_service, language_model, postgres, tmp_path):
    text, url = tmp_path / "text.txt", postgres.address("rebuilt")

    def build(*lines):
        postgres.run(f"DROP SCHEMA IF EXISTS {PostgresAddress.from_url(url).schema} CASCADE")
        text.write_text("".join(f"{line}\n" for line in lines))
        Index.build(url, [str(text)], language_model).close()

    build("A bank lent money .", "The bank of a river .")
    open_index = partial(Index.open, url, language_model)
    service = start_service(language_model, index=open_index(), open_index=open_index)
    with closing(service.resources):
        assert len(service.get_json("/search", QUERY)["results"]) == 2
        build("A painter of landscapes .", "Two owls .", "No bank .")
        with ThreadPoolExecutor(4) as pool:
            for response in pool.map(service.get_json, ["/search"] * 4, [QUERY] * 4):
                assert response["results"][0]["text"] == "A painter of landscapes ."
        postgres.run(f"DROP SCHEMA {PostgresAddress.from_url(url).schema} CASCADE")
        status, headers, body = service.request("/search", QUERY)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "no index there; build one first" in json.loads(body)["error"]
        build("A painter .")
        assert len(service.get_json("/search", QUERY)["results"]) == 1


def test_a_result_has_all_that_the_index_stores(start_service, language_model, tmp_path):
    (tmp_path / "text.txt").write_text("A bank lent. A painter painted.\n")
    with Index.build(tmp_path / "i", [str(tmp_path / "text.txt")], language_model) as index:
        service = start_service(language_model, index=index)
        (result,) = service.get_json("/search", {"query": "A painter painted.", "k": 1})["results"]
    file = str(tmp_path / "text.txt")
    assert result == {
        "id": 2, "score": pytest.approx(1, abs=1e-3), "cosine": pytest.approx(1, abs=1e-3),
        "bm25": pytest.approx(1), "word_match": pytest.approx(1), "text": "A painter painted.",
        "words": ["A", "painter", "painted", "."], "highlighted": [1, 2], "near": [],
        "file": file, "line": 1, "start": 13, "end": 31,
    }  # fmt: skip


def test_the_mode_and_the_files_of_a_search_are_chosen(start_service, language_model, tmp_path):
    for name, text in (("a", "A bank lent money."), ("b", "Banks of a river.\nTwo owls.")):
        (tmp_path / f"{name}.txt").write_text(f"{text}\n")
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    with Index.build(tmp_path / "i", files, language_model) as index:
        service = start_service(language_model, index=index)
        client = Client(service.url)
        for mode in ("hybrid", "semantic", "lexical"):
            response = service.get_json("/search", {"query": "the bank", "mode": mode})
            assert response["mode"] == mode
            expected = index.search("the bank", mode=mode)
            found = client.search("the bank", mode=mode)
            assert [result.id for result in found] == [hit.passage.id for hit in expected]
            (one,) = client.search("the bank", mode=mode, files="*a.txt")
            assert one.text == "A bank lent money."
            assert {*one.highlighted} - {*one.near} == {1}
        assert [result.text for result in client.search("banks", mode="lexical")] == [
            "A bank lent money.", "Banks of a river.",
        ]  # fmt: skip
        status, message = service.get_error("/search", {"query": "a", "files": ["*.pdf"]})
        assert (status, "no file of the index matches *.pdf" in message) == (422, True)
        status, message = service.get_error("/search", {"query": "a", "mode": "bm25"})
        assert (status, "mode is 'bm25'" in message) == (422, True)
        assert service.get_json("/info")["search_modes"] == ["hybrid", "semantic", "lexical"]


def test_an_index_without_lexical_part_is_searched_by_meaning(word_index_service):
    service, _ = word_index_service
    assert service.get_json("/info")["search_modes"] == ["semantic"]
    body = {"query": "a bank", "word": "bank"}
    assert service.get_json("/search", body)["mode"] == "semantic"
    status, message = service.get_error("/search", body | {"mode": "hybrid"})
    assert (status, "expected 'semantic' or none" in message) == (422, True)


@pytest.fixture
def word_index_service(start_service, language_model, tmp_path):
    """A service with an index of words, and that index."""
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe Bank of a river .\nMy money .\n")
    with Index.build(
        tmp_path / "i", [str(tmp_path / "text.txt")], language_model, unit="words"
    ) as index:
        yield start_service(language_model, index=index), index


def test_occurrences_of_a_word_are_found_by_its_occurrence_in_the_query(word_index_service):
    service, index = word_index_service
    body = {"query": "The Bank of a river .", "word": "bank"}
    results = service.get_json("/search", body)["results"]
    assert [(result["line"], result["highlighted"]) for result in results] == [(2, [1]), (1, [1])]
    assert [result["words"][1] for result in results] == ["Bank", "bank"]
    assert [result["score"] for result in results] == [
        pytest.approx(hit.score, abs=1e-5) for hit in index.search_word("bank", body["query"])
    ]
    any_word_results = service.get_json("/search", body | {"any_word": True, "k": 8})["results"]
    expected = index.search_word("bank", body["query"], k=8, any_word=True)
    assert [(result["id"], result["highlighted"]) for result in any_word_results] == [
        (hit.passage.id, [hit.passage.word_index]) for hit in expected
    ]
    money_results = Client(service.url).search("My money .", word="money", k=2)
    assert [result.line for result in money_results] == [3, 1]


@pytest.mark.parametrize(
    ("change", "expected_message"),
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
def test_a_word_that_cannot_be_searched_is_refused(word_index_service, change, expected_message):
    service, index = word_index_service
    status, message = service.get_error("/search", {"query": "a painter"} | change)
    expected_message = expected_message.format(name=index.name)
    assert (status, message[: len(expected_message)]) == (422, expected_message)


def test_an_index_of_passages_has_no_words(service):
    status, message = service.get_error("/search", {"query": "a bank", "word": "bank"})
    assert (status, "searching for a word needs one of words" in message) == (422, True)


def test_a_search_that_hangs_blocks_no_other_request(start_service, language_model):
    hanging, release = threading.Event(), threading.Event()

    class Hanging:
        """A store that does not answer until it is released."""

        def __init__(self, store):
            self._store = store

        def __getattr__(self, name):
            return getattr(self._store, name)

        def nearest(self, query, k, files):
            hanging.set()
            assert release.wait(20)
            return self._store.nearest(query, k, files)

    index = sample_index(language_model)
    index.store = Hanging(index.store)
    service = start_service(language_model, index=index, timeout_seconds=1)
    try:
        status, message = service.get_error("/search", QUERY)
        assert (status, message[:26]) == (503, "no answer within 1 seconds")
        assert hanging.is_set()
        assert service.request("/encode", {"texts": ["a"]})[0] == 200
    finally:
        release.set()
    assert len(service.get_json("/search", QUERY)["results"]) == 3
