import json
from contextlib import ExitStack
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

import elmokit
from elmokit.server.desk import Desk
from elmokit.server.limits import Limits
from elmokit.server.metrics import Metrics
from elmokit.server.running import listening
from made import make_folder


@pytest.fixture(scope="session")
def language_model_folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("served"), softmax_words=9, size=1.5)


@pytest.fixture(scope="session")
def language_model(language_model_folder):
    return elmokit.load(language_model_folder, threads=1)


@pytest.fixture(scope="module")
def serving():
    """Start services that end with the module: a desk and a function that asks them."""
    with ExitStack() as running:

        def start(model, *, token=None, groups=(), **limits):
            desk = Desk(Limits(**limits), Metrics())
            url = running.enter_context(listening(desk, token=token, groups=groups))
            if model is not None:
                desk.open(model)
            return Served(url, desk)

        yield start


@pytest.fixture(scope="module")
def served(serving, language_model):
    return serving(language_model)


class Served:
    """A service, and requests to it through a socket."""

    def __init__(self, url, desk):
        self.url, self.desk = url, desk

    def connect(self):
        return HTTPConnection(urlsplit(self.url).hostname, urlsplit(self.url).port, timeout=20)

    def ask(self, path, body=None, *, method=None, headers=()):
        """The status, the headers and the bytes of an answer; a body that is no bytes is JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = self.connect()
        try:
            connection.request(
                method or ("GET" if body is None else "POST"),
                path,
                body,
                {"Content-Type": "application/json", **dict(headers)},
            )
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def told(self, path, body=None, **settings):
        """The JSON of an answer that is one."""
        status, _, answer = self.ask(path, body, **settings)
        assert status == 200, answer
        return json.loads(answer)

    def refused(self, path, body=None, **settings):
        """The status and the sentence of a refusal."""
        status, _, answer = self.ask(path, body, **settings)
        found = json.loads(answer)
        assert list(found) == ["error"], found
        assert "\n" not in found["error"]
        return status, found["error"]
