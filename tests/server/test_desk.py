"""Requests that wait together are computed together, and none can harm the others."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.server.jobs import Job, answer_all
from elmokit.server.sentences import Sentences
from waiting import wait_until

SENTENCES = [[f"word{k}" for k in range(length)] for length in (1, 9, 3, 3, 17, 2, 30, 5)]


@pytest.fixture(scope="module")
def narrow(serving, language_model):
    """A service with little room."""
    return serving(language_model, queue=3, seconds=1, batch_tokens=40)


def test_requests_that_arrive_together_are_one_batch_and_get_their_own_bits(served, language_model):
    def ask(sentence):
        return served.told("/embed", {"texts": [sentence]})["sentences"][0]["vectors"]

    before = _batches_up_to(served)
    with ThreadPoolExecutor(len(SENTENCES)) as pool:
        with served.held():
            waiting = [pool.submit(ask, sentence) for sentence in SENTENCES]
            wait_until(lambda: served.desk.waiting == 1 + len(SENTENCES))
        found = [np.float32(answer.result()) for answer in waiting]
    after = _batches_up_to(served)
    assert (after["4"] - before["4"], after["8"] - before["8"]) == (1, 2)  # the gate's, and one
    assert after["+Inf"] - before["+Inf"] == 2
    for sentence, vectors in zip(SENTENCES, found, strict=True):
        (alone,) = language_model.embed([sentence])
        np.testing.assert_array_equal(vectors, alone)
    for vectors, expected in zip(found, language_model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(vectors, expected)


def _batches_up_to(service):
    """How many batches had at most so many requests."""
    lines = re.findall(
        r'le="(.+)"} (\d+)', "\n".join(service.desk.metrics.batch_requests.lines(""))
    )
    return {bound: int(count) for bound, count in lines}


def test_requests_of_all_kinds_wait_together(served, language_model):
    asked = [
        ("/embed", {"texts": [["a", "b"]]}),
        ("/embed", {"texts": [["c"]], "layers": "top", "directions": "forward"}),
        ("/encode", {"texts": ["A dog. A cat."]}),
        ("/score", {"texts": ["word1 word2"]}),
        ("/score", {"texts": [["word3"]]}),
        ("/next", {"text": "word1"}),
        ("/fill", {"text": "___ word1", "k": 1}),
        ("/fill", {"text": "no gap"}),
    ]
    alone = [served.ask(path, form) for path, form in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        with served.held():
            waiting = [pool.submit(served.ask, path, form) for path, form in asked]
            wait_until(lambda: served.desk.waiting == 1 + len(asked))
        together = [answer.result() for answer in waiting]
    for (status, _, body), (_, _, expected) in zip(together, alone, strict=True):
        found = json.loads(body)
        assert status == (422 if "error" in found else 200)
        assert _rounded(found) == _rounded(json.loads(expected))


def _rounded(value):
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return pytest.approx(value, abs=2e-6) if isinstance(value, float) else value


def test_a_batch_holds_so_many_words(narrow):
    with ThreadPoolExecutor(2) as pool:
        with narrow.held():
            before = narrow.desk.metrics.tokens
            waiting = [pool.submit(narrow.told, "/embed", {"texts": [["a"] * 28]}) for _ in "12"]
            wait_until(lambda: narrow.desk.waiting == 3)
        assert all(len(answer.result()["sentences"]) == 1 for answer in waiting)
    assert narrow.desk.metrics.tokens == before + 60
    batches = _batches_up_to(narrow)
    assert batches["1"] == batches["+Inf"]


def test_a_full_queue_says_when_to_ask_again(narrow):
    with ThreadPoolExecutor(2) as pool, narrow.held():
        waiting = [pool.submit(narrow.ask, "/encode", {"texts": ["a"]}) for _ in range(2)]
        wait_until(lambda: narrow.desk.waiting == 3)
        status, headers, body = narrow.ask("/encode", {"texts": ["a"]})
        assert (status, headers["Retry-After"]) == (429, "1")
        assert "3 requests are waiting, the limit is 3" in json.loads(body)["error"]
        assert narrow.told("/health") == {"status": "alive"}
        narrow.gate.release.set()
        assert [answer.result()[0] for answer in waiting] == [200, 200]
    assert narrow.told("/encode", {"texts": ["a"]})


def test_a_late_answer_is_none_and_the_service_goes_on(narrow):
    with narrow.held():
        status, sentence = narrow.refused("/score", {"texts": ["a"]})
        assert (status, "no answer within 1 seconds" in sentence) == (503, True)
        wait_until(lambda: narrow.desk.waiting == 0)
    assert narrow.told("/score", {"texts": ["word1"]})


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/encode", {"texts": [["a"]]}),
        ("/contexts", {"word": "bank", "texts": [["a", "bank"], ["the", "bank"]]}),
        ("/similarity", {"first": ["a"], "second": ["b"]}),
    ],
)
def test_what_is_made_of_vectors_is_in_time_too_or_not_at_all(narrow, path, form):
    narrow.gate.release_aside.clear()
    narrow.gate.entered_aside.clear()
    with ThreadPoolExecutor(2) as pool:
        try:
            with narrow.held():
                waiting = pool.submit(narrow.refused, path, form)
                wait_until(lambda: narrow.desk.waiting == 2)
                aside = pool.submit(narrow.told, "/hold_aside", b"")  # after the form was prepared
                assert narrow.gate.entered_aside.wait(20)
            status, sentence = waiting.result(10)  # the vectors are there, but not what is made
        finally:
            narrow.gate.release_aside.set()
        assert (status, "no answer within 1 seconds" in sentence) == (503, True)
        assert aside.result() is True


def test_a_client_that_leaves_is_dropped_from_the_queue(served):
    tokens = served.desk.metrics.tokens
    with served.held():
        for _ in range(5):
            connection = served.connect()
            connection.request(
                "POST", "/embed", b'{"texts": [["a"]]}', {"Content-Type": "application/json"}
            )
            wait_until(lambda: served.desk.waiting == 2)
            connection.close()
            wait_until(lambda: served.desk.waiting == 1)
    assert served.told("/embed", {"texts": [["b"]]})
    assert served.desk.metrics.tokens == tokens + 1 + 3  # the gate's, and b with its marks
    assert served.desk.metrics.requests["/embed", 499] == 5


def test_a_service_without_its_model_yet_is_alive_and_not_ready(serving, language_model):
    early = serving(None)
    assert early.told("/health") == {"status": "alive"}
    assert early.refused("/ready") == (503, "the model is still being loaded")
    assert early.refused("/encode", {"texts": ["a"]})[0] == 503
    early.desk.open(language_model)
    assert early.told("/ready") == {"status": "ready"}
    early.desk.draining = True
    assert early.refused("/ready") == (503, "the service is shutting down")
    status, headers, _ = early.ask("/encode", {"texts": ["a"]})
    assert (status, headers["Retry-After"]) == (503, "1")


def test_a_job_that_fails_does_not_harm_those_it_was_computed_with(language_model, caplog):
    def answer(_, jobs):
        for sentences in jobs:
            if sentences.texts == [13]:
                raise InputError("not this")
            if sentences.texts == [14]:
                raise ZeroDivisionError
        return [sentences.texts[0] for sentences in jobs]

    jobs = [Job(Sentences([["a"]], [place]), 3, answer, "same") for place in (12, 13, 14, 15)]
    found = answer_all(language_model, jobs)
    assert [found[0], found[3]] == [12, 15]
    assert isinstance(found[1], InputError)
    assert isinstance(found[2], ZeroDivisionError)
    assert [record.message for record in caplog.records] == ["a request failed"]
