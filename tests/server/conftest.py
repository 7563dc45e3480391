import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from fastapi import APIRouter, Request

import elmokit
from elmokit.search.index import Index
from elmokit.server.desk import Desk
from elmokit.server.exchange import EXCHANGE
from elmokit.server.files import file_routes
from elmokit.server.jobs import Job
from elmokit.server.limits import Limits
from elmokit.server.metrics import Metrics
from elmokit.server.running import listening
from elmokit.server.sentences import Sentences
from elmokit.server.shelf import Shelf, read_layer_weights
from elmokit.server.views import view_routes
from elmokit.tasks.catalog import TASKS
from elmokit.tasks.learn import learn
from made import make_folder
from toys import EXAMPLES, changed

PASSAGES = [
    "A bank lent money to a painter .",
    "The bank of a river , in spring .",
    "Two banks and a painter of landscapes .",
]


@pytest.fixture(scope="session")
def language_model_folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("served"), softmax_words=9, size=1.5)


@pytest.fixture(scope="session")
def language_model(language_model_folder):
    return elmokit.load(language_model_folder, threads=1)


@pytest.fixture(scope="session")
def task_folder(language_model, tmp_path_factory):
    folder, examples = tmp_path_factory.mktemp("my_ner"), EXAMPLES["ner"]
    settings = changed(elmo="both", epochs=1)
    learn(TASKS["ner"], examples, examples, folder, settings=settings, elmo=language_model)
    return folder


@pytest.fixture(scope="session")
def index_folder(language_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched")
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in PASSAGES), "utf-8")
    Index.build(folder / "index", [str(folder / "text.txt")], language_model).close()
    return folder / "index"


@pytest.fixture(scope="session")
def shelf(language_model, task_folder, index_folder):
    with Index.open(index_folder, language_model) as index:
        yield Shelf(index, read_layer_weights([task_folder]))


@pytest.fixture(scope="module")
def serving():
    """Start services that end with the module: a desk and a function that asks them."""
    with ExitStack() as running:

        def start(model, *, token=None, shelf=None, crew=None, **limits):
            desk = Desk(Limits(**limits), Metrics())
            gate = Gate(desk)
            groups = [gate.router, view_routes(desk, shelf or Shelf()), file_routes()]
            url = running.enter_context(listening(desk, token=token, groups=groups))
            running.callback(gate.release.set)
            running.callback(gate.release_aside.set)
            if model is not None:
                desk.open(model, crew)
            return Served(url, desk, gate)

        yield start


@pytest.fixture(scope="module")
def served(serving, language_model, shelf):
    return serving(language_model, shelf=shelf)


class Gate:
    """Routes of its own that keep the model busy, or the thread for texts, until released."""

    def __init__(self, desk):
        self.entered, self.release = threading.Event(), threading.Event()
        self.entered_aside, self.release_aside = threading.Event(), threading.Event()
        self.router = APIRouter()

        @self.router.post("/hold", include_in_schema=False)
        async def hold(request: Request):
            job = Job(Sentences([], []), 1, self._hold, travels=False)
            return await desk.ask(lambda _: job, request.scope[EXCHANGE])

        @self.router.post("/hold_aside", include_in_schema=False)
        async def hold_aside():
            return await desk.aside(self._hold_aside)

    def _hold(self, _, jobs):
        self.entered.set()
        assert self.release.wait(20)
        return ["held" for _ in jobs]

    def _hold_aside(self):
        self.entered_aside.set()
        return self.release_aside.wait(20)


class Served:
    """A service, and requests to it through a socket."""

    def __init__(self, url, desk, gate):
        self.url, self.desk, self.gate = url, desk, gate

    @contextmanager
    def held(self):
        """The model is busy until the block ends."""
        self.gate.entered.clear()
        self.gate.release.clear()
        with ThreadPoolExecutor(1) as pool:
            holding = pool.submit(self.ask, "/hold", b"")
            assert self.gate.entered.wait(20)
            try:
                yield
            finally:
                self.gate.release.set()
        assert holding.result()[0] in (200, 503)

    def connect(self):
        return HTTPConnection(urlsplit(self.url).hostname, urlsplit(self.url).port, timeout=20)

    def connected(self, buffer=None):
        """A socket to the service, which receives so many bytes at once."""
        address = urlsplit(self.url)
        made = socket.socket()
        if buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.settimeout(10)
        made.connect((address.hostname, address.port))
        return made

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
