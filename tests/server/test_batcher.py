"""Requests that wait together are computed together, and none affects the others."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.server.model_calls import ModelCall, run_calls
from waiting import wait_until

SENTENCES = [[f"word{k}" for k in range(length)] for length in (1, 9, 3, 3, 17, 2, 30, 5)]


@pytest.fixture(scope="module")
def small_service(start_service, language_model):
    """A service with a short queue and small batches."""
    return start_service(language_model, max_queued=3, timeout_seconds=1, tokens_per_batch=40)


def test_requests_that_arrive_together_are_one_batch_with_unchanged_bits(service, language_model):
    def embed(sentence):
        return service.get_json("/embed", {"texts": [sentence]})["sentences"][0]["vectors"]

    before = _batches_up_to(service)
    with ThreadPoolExecutor(len(SENTENCES)) as pool:
        with service.model_busy():
            futures = [pool.submit(embed, sentence) for sentence in SENTENCES]
            wait_until(lambda: service.batcher.num_waiting == 1 + len(SENTENCES))
        embedded = [np.float32(future.result()) for future in futures]
    after = _batches_up_to(service)
    counts = (after["4.0"] - before["4.0"], after["8.0"] - before["8.0"])
    assert counts == (1, 2)  # the blocking one alone, and the others together
    assert after["+Inf"] - before["+Inf"] == 2
    for sentence, vectors in zip(SENTENCES, embedded, strict=True):
        (alone,) = language_model.embed([sentence])
        np.testing.assert_array_equal(vectors, alone)
    for vectors, expected in zip(embedded, language_model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(vectors, expected)


def _batches_up_to(service):
    """How many batches had at most so many requests."""
    bounds = ("1.0", "4.0", "8.0", "+Inf")
    sample = "elmokit_batch_requests_bucket"
    return {bound: service.metric(sample, le=bound) for bound in bounds}


def test_requests_of_all_kinds_are_answered_as_each_alone(service, language_model):
    requests = [
        ("/embed", {"texts": [["a", "b"]]}),
        ("/embed", {"texts": [["c"]], "layers": "top", "directions": "forward"}),
        ("/encode", {"texts": ["A dog. A cat."]}),
        ("/score", {"texts": ["word1 word2"]}),
        ("/score", {"texts": [["word3"]]}),
        ("/next", {"text": "word1"}),
        ("/fill", {"text": "___ word1", "k": 1}),
        ("/fill", {"text": "no gap"}),
    ]
    alone = [service.request(path, body) for path, body in requests]
    with ThreadPoolExecutor(len(requests)) as pool:
        with service.model_busy():
            futures = [pool.submit(service.request, path, body) for path, body in requests]
            wait_until(lambda: service.batcher.num_waiting == 1 + len(requests))
        together = [future.result() for future in futures]
    for (status, _, body), (_, _, expected) in zip(together, alone, strict=True):
        response = json.loads(body)
        assert status == (422 if "error" in response else 200)
        assert _rounded(response) == _rounded(json.loads(expected))


def _rounded(value):
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    # A perplexity is an exponential: what is 2e-6 in a vector is relative to its size.
    return pytest.approx(value, rel=2e-6, abs=2e-6) if isinstance(value, float) else value


def test_a_batch_is_limited_by_tokens(small_service):
    with ThreadPoolExecutor(2) as pool:
        with small_service.model_busy():
            before = small_service.metric("elmokit_tokens_total")
            futures = [
                pool.submit(small_service.get_json, "/embed", {"texts": [["a"] * 28]}) for _ in "12"
            ]
            wait_until(lambda: small_service.batcher.num_waiting == 3)
        assert all(len(future.result()["sentences"]) == 1 for future in futures)
    assert small_service.metric("elmokit_tokens_total") == before + 60
    batches = _batches_up_to(small_service)
    assert batches["1.0"] == batches["+Inf"]


def test_a_full_queue_refuses_with_retry_after(small_service):
    with ThreadPoolExecutor(2) as pool, small_service.model_busy():
        futures = [
            pool.submit(small_service.request, "/encode", {"texts": ["a"]}) for _ in range(2)
        ]
        wait_until(lambda: small_service.batcher.num_waiting == 3)
        status, headers, body = small_service.request("/encode", {"texts": ["a"]})
        assert (status, headers["Retry-After"]) == (429, "1")
        assert "3 requests are waiting, the limit is 3" in json.loads(body)["error"]
        assert small_service.get_json("/health") == {"status": "alive"}
        small_service.blocking_head.release.set()
        assert [future.result()[0] for future in futures] == [200, 200]
    assert small_service.get_json("/encode", {"texts": ["a"]})


def test_a_timeout_is_503_and_the_service_goes_on(small_service):
    with small_service.model_busy():
        status, message = small_service.get_error("/score", {"texts": ["a"]})
        assert (status, "no answer within 1 seconds" in message) == (503, True)
        wait_until(lambda: small_service.batcher.num_waiting == 0)
    assert small_service.get_json("/score", {"texts": ["word1"]})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/encode", {"texts": [["a"]]}),
        ("/contexts", {"word": "bank", "texts": [["a", "bank"], ["the", "bank"]]}),
        ("/similarity", {"first": ["a"], "second": ["b"]}),
    ],
)
def test_the_timeout_covers_what_is_computed_from_vectors(small_service, path, body):
    entered, release = threading.Event(), threading.Event()

    def block():
        entered.set()
        return release.wait(20)

    with ThreadPoolExecutor(1) as pool:
        try:
            with small_service.model_busy():
                future = pool.submit(small_service.get_error, path, body)
                wait_until(lambda: small_service.batcher.num_waiting == 2)
                blocking = small_service.resources.text_thread.submit(block)
                assert entered.wait(20)
            status, message = future.result(10)  # the vectors are computed, the response is not
        finally:
            release.set()
        assert (status, "no answer within 1 seconds" in message) == (503, True)
        assert blocking.result() is True


def test_a_client_that_disconnects_is_removed_from_the_queue(service):
    tokens = service.metric("elmokit_tokens_total")
    with service.model_busy():
        for _ in range(5):
            connection = service.connect()
            connection.request(
                "POST", "/embed", b'{"texts": [["a"]]}', {"Content-Type": "application/json"}
            )
            wait_until(lambda: service.batcher.num_waiting == 2)
            connection.close()
            wait_until(lambda: service.batcher.num_waiting == 1)
    assert service.get_json("/embed", {"texts": [["b"]]})
    assert service.metric("elmokit_tokens_total") == tokens + 3  # "b" and two special tokens
    assert service.metric("elmokit_requests_total", route="/embed", status="499") == 5


def test_a_service_is_alive_but_not_ready_until_its_model_is_loaded(start_service, language_model):
    starting = start_service(None)
    assert starting.get_json("/health") == {"status": "alive"}
    assert starting.get_error("/ready") == (503, "the model is still being loaded")
    assert starting.get_error("/encode", {"texts": ["a"]})[0] == 503
    starting.resources.open(language_model)
    assert starting.get_json("/ready") == {"status": "ready"}
    starting.batcher.draining = True
    assert starting.get_error("/ready") == (503, "the service is shutting down")
    status, headers, _ = starting.request("/encode", {"texts": ["a"]})
    assert (status, headers["Retry-After"]) == (503, "1")


def test_a_call_that_fails_does_not_affect_its_batch(language_model, caplog):
    def run(_, sentences):
        if ["wrong"] in sentences:
            raise InputError("not this")
        if ["broken"] in sentences:
            raise ZeroDivisionError
        return [" ".join(words) for words in sentences]

    batch = [[["a"], ["b", "c"]], [["wrong"]], [["broken"]], [["d"]]]
    results = run_calls(language_model, [ModelCall(run, texts, 3, "same") for texts in batch])
    assert [results[0], results[3]] == [["a", "b c"], ["d"]]
    assert isinstance(results[1], InputError)
    assert isinstance(results[2], ZeroDivisionError)
    assert [record.message for record in caplog.records] == ["a request failed"]
