"""A token, limits on what comes in, and patience with clients that has an end."""

import json
import time
from contextlib import suppress

import pytest

from elmokit.server import running
from waiting import wait_until

FORM = {"texts": ["a"]}


@pytest.fixture(scope="module")
def strict(serving, language_model):
    """A service with small limits."""
    return serving(
        language_model,
        body_bytes=20_000, texts=3, tokens=50, word_characters=20, fill_tokens=400, open=4,
        seconds=1,
    )  # fmt: skip


@pytest.fixture(scope="module")
def locked(serving, language_model):
    """A service that wants a token."""
    return serving(language_model, token="sésame")


@pytest.mark.parametrize("token", [None, "Bearer wrong", "Bearer s", "sésame", "Basic sésame"])
def test_without_the_token_there_is_no_answer(locked, token):
    headers = {} if token is None else {"Authorization": token.encode()}
    for path, body in [("/encode", FORM), ("/metrics", None), ("/openapi.json", None)]:
        status, found, answer = locked.ask(path, body, headers=headers)
        assert (status, found["WWW-Authenticate"]) == (401, "Bearer")
        assert "the token is missing or wrong" in json.loads(answer)["error"]


def test_with_the_token_there_is_an_answer_and_health_needs_none(locked):
    headers = {"Authorization": "Bearer sésame".encode()}
    assert locked.told("/encode", FORM, headers=headers)
    assert locked.told("/health")
    assert locked.told("/ready")


@pytest.mark.parametrize(
    ("path", "form", "says"),
    [
        ("/encode", {"texts": ["x " * 10_000]}, "more than 20,000 bytes"),
        ("/encode", {"texts": ["x" * 1_000_000]}, "more than 20,000 bytes"),
        ("/encode", {"texts": ["a"] * 4}, "4 texts were given, the limit is 3"),
        ("/embed", {"texts": ["a b", ["a"] * 60]}, "text 1 makes 66 words to read"),
        ("/next", {"text": "a " * 60}, "62 words to read, the limit is 50"),
        ("/score", {"texts": ["a" * 21]}, "a word of 21 characters, the limit is 20"),
        ("/fill", {"text": ["___"] * 2}, "make 1,200 words to read, the limit is 400"),
        ("/fill", {"text": ["___"], "k": 200}, "make 600 words to read"),
    ],
)
def test_too_much_is_refused(strict, path, form, says):
    status, sentence = strict.refused(path, form)
    assert (status, says in sentence) == (413, True), sentence


def test_ten_megabytes_are_heard_out_and_refused(served):
    status, sentence = served.refused("/embed", {"texts": ["a" * 10_000_000]})
    assert (status, "more than 1,048,576 bytes" in sentence) == (413, True)
    connection = served.connect()  # and so are those that come without a length
    parts = (b"x" * 65536 for _ in range(160))
    connection.request("POST", "/embed", parts, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_that_does_not_come_is_not_waited_for(strict):
    with strict.connected() as slow:
        slow.sendall(b"POST /encode HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        started = time.monotonic()
        assert strict.told("/encode", FORM)
        assert time.monotonic() - started < 0.9
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")


def test_only_so_many_requests_are_open(strict):
    slow = [strict.connected() for _ in range(4)]
    for one in slow:
        one.sendall(b"POST /encode HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
    time.sleep(0.2)
    status, sentence = strict.refused("/encode", FORM)
    assert (status, "4 requests are being answered" in sentence) == (429, True)
    assert strict.told("/health")
    for one in slow:
        one.close()
    wait_until(lambda: strict.ask("/encode", FORM)[0] == 200)


def test_a_client_that_does_not_read_its_answer_harms_nobody(serving, language_model):
    generous = serving(language_model, seconds=1, answer_bytes=2_000_000)
    body = json.dumps({"texts": [[f"w{k}" for k in range(20)]] * 350}).encode()
    with generous.connected(buffer=4096) as deaf:
        deaf.sendall(
            b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        assert deaf.recv(12) == b"HTTP/1.1 200"
        assert generous.desk.metrics.requests["/embed", 200] == 0
        assert generous.told("/encode", FORM)
        status, sentence = generous.refused("/embed", json.loads(body))
        assert (status, "take most of 2,000,000 bytes" in sentence) == (429, True)
        wait_until(lambda: generous.desk.metrics.requests["/embed", 200] == 1)
    assert len(generous.told("/embed", json.loads(body))["sentences"]) == 350


@pytest.mark.parametrize(
    "said", [b"", b"GET /health HTTP/1.1\r\nHo", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /"]
)
def test_a_connection_that_brings_no_request_is_dropped(strict, said):
    with strict.connected() as idle:
        idle.sendall(said)
        answer = b""
        with suppress(ConnectionResetError):
            while part := idle.recv(1000):
                answer += part
    assert answer.startswith(b"HTTP/1.1 200 ") == (b"\r\n\r\n" in said)


def test_idle_connections_do_not_shut_the_service(serving, language_model, monkeypatch):
    monkeypatch.setattr(running, "_CONNECTIONS", 5)
    small = serving(language_model, seconds=2)
    idle = [small.connected() for _ in range(5)]
    for one in idle:
        one.sendall(b"GET /health HTTP/1.1\r\n")
    wait_until(lambda: small.ask("/health")[0] == 503)
    wait_until(lambda: small.ask("/health")[0] == 200)
    for one in idle:
        one.close()


def test_a_client_that_takes_nothing_is_dropped_in_the_end(serving, language_model, monkeypatch):
    monkeypatch.setattr(running, "_CONNECTIONS", 2)  # the one that asks is counted too
    small = serving(language_model, seconds=1)
    body = json.dumps({"texts": [[f"w{k}" for k in range(20)]] * 350}).encode()
    with small.connected(buffer=4096) as deaf:
        deaf.sendall(
            b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        assert deaf.recv(12) == b"HTTP/1.1 200"
        assert small.ask("/health")[0] == 503
        wait_until(lambda: small.ask("/health")[0] == 200)


def test_vectors_that_would_take_too_much_memory_are_refused(serving, language_model):
    small = serving(language_model, answer_bytes=1000)
    assert small.told("/embed", {"texts": [["a"]], "layers": 0})
    status, sentence = small.refused("/embed", {"texts": [["a"] * 10]})
    assert (status, "would take 1,728 bytes, the limit is 1,000" in sentence) == (413, True)


def test_what_is_no_http_is_refused(served):
    with served.connected() as odd:
        odd.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert odd.recv(100).startswith(b"HTTP/1.1 400 ")
    assert served.told("/health")
