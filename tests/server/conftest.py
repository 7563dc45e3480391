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
from elmokit.server.app_resources import AppResources, load_tasks, run_in
from elmokit.server.limits import Limits
from elmokit.server.middleware import CONTEXT
from elmokit.server.model_calls import ModelCall
from elmokit.server.uvicorn_server import listening
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from random_models import make_folder
from task_examples import EXAMPLES, tiny_settings

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
    settings = tiny_settings(elmo="both", epochs=1)
    train_task(TASKS["ner"], examples, examples, folder, settings=settings, model=language_model)
    return folder


@pytest.fixture(scope="session")
def index_folder(language_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched")
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in PASSAGES), "utf-8")
    Index.build(folder / "index", [str(folder / "text.txt")], language_model).close()
    return folder / "index"


@pytest.fixture(scope="session")
def index(language_model, index_folder):
    with Index.open(index_folder, language_model) as index:
        yield index


@pytest.fixture(scope="module")
def serving():
    """Start services that end with the module."""
    with ExitStack() as running:

        def start(
            model,
            *,
            token=None,
            index=None,
            open_index=None,
            layer_weights=(),
            tasks=None,
            worker_pool=None,
            **limits,
        ):
            resources = AppResources(Limits(**limits))
            resources.index, resources.open_index = index, open_index
            resources.layer_weights, resources.tasks = layer_weights, tasks or {}
            gate = Gate(resources)
            url = running.enter_context(listening(resources, token=token, routers=[gate.router]))
            running.callback(gate.release.set)
            running.callback(gate.release_text_thread.set)
            if model is not None:
                resources.open(model, worker_pool)
            return Served(url, resources, gate)

        yield start


@pytest.fixture(scope="module")
def served(serving, language_model, index, task_folder):
    tasks, layer_weights = load_tasks([task_folder])
    return serving(language_model, index=index, layer_weights=layer_weights, tasks=tasks)


class Gate:
    """Routes that keep the model busy, or the thread for texts, until they are released."""

    def __init__(self, resources):
        self.entered, self.release = threading.Event(), threading.Event()
        self.entered_text_thread, self.release_text_thread = threading.Event(), threading.Event()
        self.router = APIRouter()

        @self.router.post("/hold", include_in_schema=False)
        async def hold(request: Request):
            call = ModelCall(self._hold, None, 1, in_worker=False)
            async with resources.batcher.admit():
                return await request.scope[CONTEXT].run(call)

        @self.router.post("/hold_text_thread", include_in_schema=False)
        async def hold_text_thread():
            return await run_in(resources.text_thread, self._hold_text_thread)

    def _hold(self, _, __):
        self.entered.set()
        assert self.release.wait(20)
        return "held"

    def _hold_text_thread(self):
        self.entered_text_thread.set()
        return self.release_text_thread.wait(20)


class Served:
    """A service, and requests to it through a socket."""

    def __init__(self, url, resources, gate):
        self.url, self.resources, self.gate = url, resources, gate
        self.batcher = resources.batcher

    def metric(self, sample, **labels):
        """The value of a sample of the metrics, 0 where nothing was counted yet."""
        return self.resources.metrics.registry.get_sample_value(sample, labels) or 0.0

    @contextmanager
    def held(self):
        """The model is busy until the block ends."""
        self.gate.entered.clear()
        self.gate.release.clear()
        with ThreadPoolExecutor(1) as pool:
            holding = pool.submit(self.request, "/hold", b"")
            assert self.gate.entered.wait(20)
            try:
                yield
            finally:
                self.gate.release.set()
        assert holding.result()[0] in (200, 503)

    def connect(self):
        return HTTPConnection(urlsplit(self.url).hostname, urlsplit(self.url).port, timeout=20)

    def open_socket(self, buffer=None):
        """A socket to the service, which receives so many bytes at once."""
        address = urlsplit(self.url)
        made = socket.socket()
        if buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.settimeout(10)
        made.connect((address.hostname, address.port))
        return made

    def request(self, path, body=None, *, method=None, headers=()):
        """The status, headers and content of a response; unless it is bytes, a body is JSON."""
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

    def get_json(self, path, body=None, **settings):
        """The JSON of a response with status 200."""
        status, _, answer = self.request(path, body, **settings)
        assert status == 200, answer
        return json.loads(answer)

    def get_error(self, path, body=None, **settings):
        """The status and the message of an error."""
        status, _, answer = self.request(path, body, **settings)
        body = json.loads(answer)
        assert list(body) == ["error"], body
        assert "\n" not in body["error"]
        return status, body["error"]
