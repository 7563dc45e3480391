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
def client(served):
    return Client(served.url)


def test_the_client_answers_as_the_model_does(client, language_model):
    for layers in ("all", "top", 1, [0, 2]):
        found = client.embed(SENTENCES, layers=layers, directions="forward")
        expected = language_model.embed(SENTENCES, layers=layers, directions="forward")
        for array, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(array, wanted)
    np.testing.assert_array_equal(
        client.encode(TEXTS, layers="concat", pooling="max"),
        language_model.encode(TEXTS, layers="concat", pooling="max"),
    )
    for score, wanted in zip(client.score(TEXTS), language_model.score(TEXTS), strict=True):
        assert (score.words, score.unknown) == (wanted.words, wanted.unknown)
        np.testing.assert_allclose(score.forward, wanted.forward)
        np.testing.assert_allclose(score.backward, wanted.backward)
    assert client.perplexity(TEXTS).geometric_mean == pytest.approx(
        language_model.perplexity(TEXTS).geometric_mean
    )
    assert client.next_words("word1", k=2) == language_model.next_words("word1", k=2)
    assert client.previous_words(["a"]) == language_model.previous_words(["a"])
    assert client.fill("___ cat") == language_model.fill("___ cat")


def test_the_client_asks_every_route(client, served):
    texts = ["A bank lent money .", "The bank of a river ."]
    found = client.contexts("bank", texts, labels=["money", "river"])
    told = served.told("/contexts", {"word": "bank", "texts": texts, "labels": ["money", "river"]})
    assert [use.group for use in found.contexts] == [0, 1]
    assert [*map(list, found.layers[2].points)] == told["layers"][2]["points"]
    alike = client.word_similarity(texts[0], texts[1].split())
    assert (
        alike.layers
        == served.told("/similarity", {"first": texts[0], "second": texts[1]})["layers"]
    )
    hits = client.search("a painter of landscapes", k=2)
    assert [hit.line for hit in hits] == [
        hit["line"]
        for hit in served.told("/search", {"query": "a painter of landscapes", "k": 2})["results"]
    ]
    assert [mix.position for mix in client.layer_weights()] == ["input", "output"]
    assert client.is_alive()
    assert client.is_ready()
    assert "elmokit_requests_total" in client.metrics()
    asked = {
        "/embed",
        "/encode",
        "/score",
        "/next",
        "/fill",
        "/contexts",
        "/similarity",
        "/layer_weights",
    }
    asked |= {"/search", "/health", "/ready", "/metrics"}
    assert set(client.schema()["paths"]) == asked  # a new route wants a method


def test_the_client_needs_no_web_server():
    missing = "sys.modules.update(dict.fromkeys(['fastapi', 'starlette', 'uvicorn']))"
    code = f"import sys; {missing}; import elmokit.server.client"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mistake_is_the_models_error(client, served):
    with pytest.raises(InputError, match="layer 9 was asked for"):
        client.embed(SENTENCES, layers=9)
    with pytest.raises(InputError, match="the limit is 1,024"):
        client.encode(["a"] * 2000)
    with pytest.raises(TypeError, match="expected a list of words"):
        client.embed(["one string"])
    with pytest.raises(TypeError, match="texts is one string"):
        client.encode("one string")
    with pytest.raises(InputError, match="expected http://HOST:PORT"):
        Client("localhost:8000")
    with pytest.raises(ServiceError, match="not found") as caught:
        Client(f"{served.url}/elsewhere").encode(["a"])
    assert caught.value.status == 404


def test_the_client_brings_its_token(serving, language_model):
    locked = serving(language_model, token="secret")
    assert Client(locked.url, "secret").encode(["a"]).shape == (1, 12)
    with pytest.raises(ServiceError, match="the token is missing or wrong") as caught:
        Client(locked.url).encode(["a"])
    assert caught.value.status == 401


def test_a_busy_service_is_asked_again_and_not_for_ever(serving, language_model):
    narrow = serving(language_model, queue=1)
    with narrow.held():
        started = time.monotonic()
        with pytest.raises(ServiceError, match="ask again in a moment") as caught:
            Client(narrow.url, retries=2, most_wait=0.1).encode(["a"])
        assert (caught.value.status, caught.value.retry_after) == (429, 1)
        assert 0.2 <= time.monotonic() - started < 1
        threading.Timer(0.2, narrow.gate.release.set).start()
        assert Client(narrow.url, retries=1).encode(["a"]).shape == (1, 12)


def test_nobody_there_is_an_error_of_the_service():
    with pytest.raises(ServiceError, match=r"http://127\.0\.0\.1:9: .*refused"):
        Client("http://127.0.0.1:9").encode(["a"])
    assert not Client("http://127.0.0.1:9").is_alive()


def test_the_client_waits_until_a_service_is_ready(serving, language_model):
    early = serving(None)
    with pytest.raises(ServiceError, match="still being loaded"):
        Client(early.url).wait_until_ready(0.1)
    assert Client(early.url).is_alive()
    assert not Client(early.url).is_ready()
    threading.Timer(0.2, early.desk.open, [language_model]).start()
    Client(early.url).wait_until_ready()
    assert early.told("/ready")
