"""Tokens, limits, timeouts and clients that disconnect or hang."""

import json
import time
from contextlib import suppress

import pytest

from elmokit.server import app
from waiting import wait_until

BODY = {"texts": ["a"]}


@pytest.fixture(scope="module")
def limited_service(start_service, language_model):
    """A service with small limits."""
    return start_service(
        language_model,
        max_body_bytes=20_000,
        max_texts=3,
        max_tokens=50,
        max_word_characters=20,
        max_fill_tokens=400,
        max_open=4,
        timeout_seconds=1,
    )


@pytest.fixture(scope="module")
def protected_service(start_service, language_model):
    """A service that needs a token."""
    return start_service(language_model, token="sésame")


@pytest.mark.parametrize("token", [None, "Bearer wrong", "Bearer s", "sésame", "Basic sésame"])
def test_a_missing_or_wrong_token_is_401(protected_service, token):
    headers = {} if token is None else {"Authorization": token.encode()}
    for path, body in [("/encode", BODY), ("/metrics", None), ("/info", None)]:
        status, response_headers, received = protected_service.request(path, body, headers=headers)
        assert (status, response_headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "the token is missing or wrong" in json.loads(received)["error"]


def test_the_token_is_accepted_and_health_needs_none(protected_service):
    headers = {"Authorization": "Bearer sésame".encode()}
    assert protected_service.get_json("/encode", BODY, headers=headers)
    assert protected_service.get_json("/health")
    assert protected_service.get_json("/ready")


@pytest.mark.parametrize(
    ("path", "body", "expected_message"),
    [
        ("/encode", {"texts": ["x " * 10_000]}, "more than 20,000 bytes"),
        ("/encode", {"texts": ["x" * 1_000_000]}, "more than 20,000 bytes"),
        ("/encode", {"texts": ["a"] * 4}, "4 texts were given, the limit is 3"),
        ("/embed", {"texts": ["a b", ["a"] * 60]}, "text 1 brings the request to 66 tokens"),
        ("/next", {"text": "a " * 60}, "62 tokens, the limit is 50"),
        ("/score", {"texts": ["a" * 21]}, "a word of 21 characters, the limit is 20"),
        ("/fill", {"text": ["___"] * 2}, "takes 1,200 tokens, the limit is 400"),
        ("/fill", {"text": ["___"], "k": 200}, "takes 600 tokens"),
    ],
)
def test_a_request_beyond_a_limit_is_413(limited_service, path, body, expected_message):
    status, message = limited_service.get_error(path, body)
    assert (status, expected_message in message) == (413, True), message


def test_ten_megabytes_are_read_to_the_end_and_refused(service):
    status, message = service.get_error("/embed", {"texts": ["a" * 10_000_000]})
    assert (status, "more than 1,048,576 bytes" in message) == (413, True)
    connection = service.connect()  # and so are those that come without a length
    parts = (b"x" * 65536 for _ in range(160))
    connection.request("POST", "/embed", parts, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_that_does_not_arrive_in_time_is_408(limited_service):
    with limited_service.open_socket() as connection:
        connection.sendall(b"POST /encode HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        started = time.monotonic()
        assert limited_service.get_json("/encode", BODY)
        assert time.monotonic() - started < 0.9
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_the_number_of_open_requests_is_limited(limited_service):
    connections = [limited_service.open_socket() for _ in range(4)]
    for connection in connections:
        connection.sendall(b"POST /encode HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
    time.sleep(0.2)
    status, message = limited_service.get_error("/encode", BODY)
    assert (status, "4 requests are being answered" in message) == (429, True)
    assert limited_service.get_json("/health")
    for connection in connections:
        connection.close()
    wait_until(lambda: limited_service.request("/encode", BODY)[0] == 200)


def _answered_embeds(service):
    return service.metric("elmokit_requests_total", route="/embed", status="200")


def test_a_client_that_does_not_read_its_response_affects_nobody(start_service, language_model):
    service = start_service(language_model, timeout_seconds=3, max_response_bytes=2_000_000)
    body = json.dumps({"texts": [[f"w{k}" for k in range(20)]] * 350}).encode()
    with service.open_socket(buffer=4096) as unread:
        unread.sendall(
            b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        assert unread.recv(12) == b"HTTP/1.1 200"
        assert _answered_embeds(service) == 0
        assert service.get_json("/encode", BODY)
        status, _, content = service.request("/embed", json.loads(body))
        if status == 200:
            pytest.skip("the kernel's buffers took the whole response")
        assert (status, b"take most of 2,000,000 bytes" in content) == (429, True)
        wait_until(lambda: _answered_embeds(service) == 1)
    assert len(service.get_json("/embed", json.loads(body))["sentences"]) == 350


@pytest.mark.parametrize(
    "sent", [b"", b"GET /health HTTP/1.1\r\nHo", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /"]
)
def test_a_connection_without_a_request_is_dropped(limited_service, sent):
    with limited_service.open_socket() as connection:
        connection.sendall(sent)
        received = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(1000):
                received += part
    assert received.startswith(b"HTTP/1.1 200 ") == (b"\r\n\r\n" in sent)


def test_idle_connections_do_not_block_the_service(start_service, language_model, monkeypatch):
    monkeypatch.setattr(app, "_MAX_CONNECTIONS", 5)
    service = start_service(language_model, timeout_seconds=2)
    idle_connections = [service.open_socket() for _ in range(5)]
    for connection in idle_connections:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
    wait_until(lambda: service.request("/health")[0] == 503)
    wait_until(lambda: service.request("/health")[0] == 200)
    for connection in idle_connections:
        connection.close()


def test_a_client_that_reads_nothing_is_dropped_in_the_end(
    start_service, language_model, monkeypatch
):
    monkeypatch.setattr(app, "_MAX_CONNECTIONS", 2)  # that of the request is counted too
    service = start_service(language_model, timeout_seconds=1)
    body = json.dumps({"texts": [[f"w{k}" for k in range(20)]] * 350}).encode()
    with service.open_socket(buffer=4096) as unread:
        unread.sendall(
            b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        assert unread.recv(12) == b"HTTP/1.1 200"
        assert service.request("/health")[0] == 503
        wait_until(lambda: service.request("/health")[0] == 200)


def test_vectors_that_would_take_too_much_memory_are_refused(start_service, language_model):
    service = start_service(language_model, max_response_bytes=1000)
    assert service.get_json("/embed", {"texts": [["a"]], "layers": 0})
    status, message = service.get_error("/embed", {"texts": [["a"] * 10]})
    assert (status, "would take 1,728 bytes, the limit is 1,000" in message) == (413, True)


def test_bytes_that_are_not_http_are_400(service):
    with service.open_socket() as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert service.get_json("/health")
