import inspect
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from elmokit.errors import InputError, ServiceError
from elmokit.server.client import Client

TEXTS = ["word1 word2 cat. Word3!", ["word4", "word5"], ""]
SENTENCES = [["word1", "cat"], [], ["word4"]]


@pytest.fixture(scope="module")
def client(service):
    return Client(service.url)


def test_the_client_returns_what_the_model_returns(client, language_model):
    for layers in ("all", "top", 1, [0, 2]):
        embedded = client.embed(SENTENCES, layers=layers, directions="forward")
        expected = language_model.embed(SENTENCES, layers=layers, directions="forward")
        for actual_array, expected_array in zip(embedded, expected, strict=True):
            np.testing.assert_array_equal(actual_array, expected_array)
    np.testing.assert_array_equal(
        client.encode(TEXTS, layers="concat", pooling="max"),
        language_model.encode(TEXTS, layers="concat", pooling="max"),
    )
    for score, expected_score in zip(client.score(TEXTS), language_model.score(TEXTS), strict=True):
        assert (score.words, score.unknown) == (expected_score.words, expected_score.unknown)
        np.testing.assert_allclose(score.forward, expected_score.forward)
        np.testing.assert_allclose(score.backward, expected_score.backward)
    assert client.perplexity(TEXTS).geometric_mean == pytest.approx(
        language_model.perplexity(TEXTS).geometric_mean
    )
    assert client.next_words("word1", k=2) == language_model.next_words("word1", k=2)
    assert client.previous_words(["a"]) == language_model.previous_words(["a"])
    assert client.fill("___ cat") == language_model.fill("___ cat")


def test_the_client_has_a_method_for_every_route(client, service):
    texts = ["A bank lent money .", "The bank of a river ."]
    response = client.contexts("bank", texts, labels=["money", "river"])
    body = {"word": "bank", "texts": texts, "labels": ["money", "river"]}
    expected = service.get_json("/contexts", body)
    assert [context.group for context in response.contexts] == [0, 1]
    assert [*map(list, response.layers[2].points)] == expected["layers"][2]["points"]
    similarity = client.word_similarity(texts[0], texts[1].split())
    assert (
        similarity.layers
        == service.get_json("/similarity", {"first": texts[0], "second": texts[1]})["layers"]
    )
    hits = client.search("a painter of landscapes", k=2)
    expected = service.get_json("/search", {"query": "a painter of landscapes", "k": 2})
    assert [hit.line for hit in hits] == [hit["line"] for hit in expected["results"]]
    assert client.info().fingerprint == service.get_json("/info")["fingerprint"]
    assert len(client.predict("ner", ["Ada lived in London ."])) == 1
    assert [weights.position for weights in client.layer_weights()] == ["input", "output"]
    assert client.is_alive()
    assert client.is_ready()
    assert "elmokit_requests_total" in client.metrics()
    source = inspect.getsource(Client)
    for path in client.schema()["paths"]:
        assert f'"{path.split("{")[0]}' in source, f"{path} has no method"


def test_the_client_needs_neither_torch_nor_a_web_server():
    missing = ["torch", "fastapi", "starlette", "uvicorn", "orjson", "prometheus_client"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing})); "
        "from elmokit.server.client import Client; Client('http://localhost')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mistake_raises_what_the_model_raises(client, service):
    with pytest.raises(InputError, match="layer 9 was asked for"):
        client.embed(SENTENCES, layers=9)
    with pytest.raises(InputError, match="the limit is 1,024"):
        client.encode(["a"] * 2000)
    with pytest.raises(InputError, match=r"text 1 has .*, half of a surrogate pair"):
        client.encode(["a", "\ud800"])
    with pytest.raises(InputError, match="expected http://HOST:PORT"):
        Client("localhost:8000")
    with pytest.raises(ServiceError, match="not found") as error_info:
        Client(f"{service.url}/elsewhere").encode(["a"])
    assert error_info.value.status == 404


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.embed(None), "sentences is None, expected lists of words"),
        (lambda client: client.embed(["cat"]), "sentence 0 is one string ('cat'), expected a list"),
        (lambda client: client.embed([["cat", None]]), "sentence 0: word 1 is None, expected a st"),
        (lambda client: client.encode(None), "texts is None, expected a list of texts: [text]"),
        (lambda client: client.encode(["a", None]), "text 1 is None, expected a string or a list"),
        (lambda client: client.encode([7]), "text 0 is 7 (type int), expected a string or a list"),
        (lambda client: client.score("one"), "texts is one string ('one'), expected a list of te"),
        (lambda client: client.next_words(None), "text is None, expected a string or a list of w"),
    ],
)
def test_input_of_a_wrong_type_is_refused_in_plain_words(client, call, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call(client)


def test_one_string_is_encoded_as_one_vector(client, language_model):
    vector = client.encode("word1 word2", normalize_embeddings=True)
    assert vector.shape == (language_model.dim,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_the_client_sends_its_token(start_service, language_model):
    protected = start_service(language_model, token="secret")
    assert Client(protected.url, "secret").encode(["a"]).shape == (1, 12)
    with pytest.raises(ServiceError, match="the token is missing or wrong") as error_info:
        Client(protected.url).encode(["a"])
    assert error_info.value.status == 401


def test_the_client_retries_a_busy_service_a_few_times(start_service, language_model):
    small_service = start_service(language_model, max_queued=1)
    with small_service.model_busy():
        started = time.monotonic()
        with pytest.raises(ServiceError, match="try again in a moment") as error_info:
            Client(small_service.url, max_retries=2, max_wait=0.1).encode(["a"])
        assert (error_info.value.status, error_info.value.retry_after) == (429, 1)
        assert 0.2 <= time.monotonic() - started < 1
        threading.Timer(0.2, small_service.blocking_head.release.set).start()
        assert Client(small_service.url, max_retries=1).encode(["a"]).shape == (1, 12)


def test_no_service_is_a_service_error():
    with pytest.raises(ServiceError, match=r"http://127\.0\.0\.1:9: .*refused"):
        Client("http://127.0.0.1:9").encode(["a"])
    assert not Client("http://127.0.0.1:9").is_alive()


def test_the_client_waits_until_a_service_is_ready(start_service, language_model):
    starting = start_service(None)
    with pytest.raises(ServiceError, match="still being loaded"):
        Client(starting.url).wait_until_ready(0.1)
    assert Client(starting.url).is_alive()
    assert not Client(starting.url).is_ready()
    threading.Timer(0.2, starting.resources.open, [language_model]).start()
    Client(starting.url).wait_until_ready()
    assert starting.get_json("/ready")
