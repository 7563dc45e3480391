import json
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import elmokit
from elmokit.search.index import Index
from elmokit.server.app import listening
from elmokit.server.app_resources import AppResources
from elmokit.server.limits import Limits
from elmokit.server.onnxruntime_web import PACKAGE, find_onnxruntime_web
from elmokit.server.static_page import write_page
from elmokit.server.trained_tasks import load_tasks
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from random_models import make_folder
from static_host import StaticHost
from task_examples import EXAMPLES, tiny_settings

PASSAGES = [
    "A bank lent money to a painter .",
    "The bank of a river , in spring .",
    "Two banks and a painter of landscapes .",
]


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
ARGUMENTS = [
    "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
]  # fmt: skip
BROWSER_TIMEOUT = 30_000  # milliseconds
BROWSER_SETTINGS = {"viewport": {"width": 1200, "height": 800}, "reduced_motion": "reduce"}
REFUSED = "Failed to load resource"  # logged by the browser for every error response


@pytest.fixture(scope="session")
def language_model_folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), softmax_words=9, size=1.5)


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
    folder = tmp_path_factory.mktemp("index")
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in PASSAGES), "utf-8")
    Index.build(folder / "index", [str(folder / "text.txt")], language_model).close()
    return folder / "index"


@pytest.fixture(scope="session")
def index(language_model, index_folder):
    with Index.open(index_folder, language_model) as index:
        yield index


@pytest.fixture(scope="module")
def start_service():
    """A function that starts services, which end with the module."""
    with ExitStack() as exit_stack:

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
            url = exit_stack.enter_context(listening(resources, token=token))
            service = RunningService(url, resources)
            exit_stack.callback(service.blocking_head.release.set)
            if model is not None:
                resources.open(model, worker_pool)
            return service

        yield start


@pytest.fixture(scope="module")
def service(start_service, language_model, index, task_folder):
    tasks, layer_weights = load_tasks([task_folder])
    return start_service(language_model, index=index, layer_weights=layer_weights, tasks=tasks)


@pytest.fixture(scope="session")
def onnxruntime():
    folder = Path(__file__).parents[2] / "packages" / "elmokit-js" / "node_modules" / PACKAGE
    if not folder.is_dir():
        pytest.skip("needs onnxruntime-web: run `npm install` in packages/elmokit-js")
    return find_onnxruntime_web(folder)


@pytest.fixture(scope="session")
def static_folder(language_model, index, task_folder, onnxruntime, tmp_path_factory):
    """The page with the model inside, which has the same as `service` and the same numbers."""
    folder = tmp_path_factory.mktemp("page") / "site"
    _, weights = load_tasks([task_folder])
    write_page(
        language_model, folder, index=index, onnxruntime=onnxruntime, layer_weights=weights,
        int8=False,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def static_site(static_folder):
    """The page on a static host, in a folder below its root."""
    with StaticHost(static_folder) as host:
        yield host


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api",
        reason="needs playwright (pip install playwright), which is not there",
    )
    if CHROMIUM is None:
        pytest.skip("needs Chromium, which is not installed")
    playwright.expect.set_options(timeout=BROWSER_TIMEOUT)
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def visit(browser):
    """Open the page of a service without animation; at the end no page may have logged an error."""
    contexts, errors = [], []

    def open_page(url, *, refusals=False, **settings):
        context = browser.new_context(**BROWSER_SETTINGS | settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(BROWSER_TIMEOUT)
        page.on("pageerror", lambda error: errors.append(str(error)))

        def record(message):
            expected = refusals and message.text.startswith(REFUSED)
            if message.type in ("error", "warning") and not expected:
                errors.append(message.text)

        page.on("console", record)
        page.goto(url)
        if url != "about:blank":
            page.locator("html[data-started]").wait_for(state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors


class BlockingHead:
    """A trained head that keeps the model busy until it is released."""

    def __init__(self):
        self.entered, self.release = threading.Event(), threading.Event()

    def predict_json(self, texts):
        self.entered.set()
        assert self.release.wait(20)
        return texts


class RunningService:
    """A service, and requests to it through a socket."""

    def __init__(self, url, resources):
        self.url, self.resources, self.batcher = url, resources, resources.batcher
        self.blocking_head = BlockingHead()

    def metric(self, sample, **labels):
        """The value of a sample of the metrics, 0 where nothing was counted yet."""
        return self.resources.metrics.registry.get_sample_value(sample, labels) or 0.0

    @contextmanager
    def model_busy(self):
        """The model is busy until the block ends."""
        head, tasks = self.blocking_head, self.resources.tasks
        head.entered.clear()
        head.release.clear()
        self.resources.tasks = {**tasks, "block": head}
        with ThreadPoolExecutor(1) as pool:
            blocking = pool.submit(self.request, "/predict/block", {"texts": []})
            assert head.entered.wait(20)
            self.resources.tasks = tasks
            try:
                yield
            finally:
                head.release.set()
        assert blocking.result()[0] in (200, 503)

    def connect(self):
        return HTTPConnection(urlsplit(self.url).hostname, urlsplit(self.url).port, timeout=20)

    def open_socket(self, buffer=None):
        """A socket to the service; `buffer` is how many bytes it receives at once."""
        address = urlsplit(self.url)
        opened = socket.socket()
        if buffer:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        opened.settimeout(10)
        opened.connect((address.hostname, address.port))
        return opened

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
        status, _, content = self.request(path, body, **settings)
        assert status == 200, content
        return json.loads(content)

    def get_error(self, path, body=None, **settings):
        """The status and the message of an error."""
        status, _, content = self.request(path, body, **settings)
        error = json.loads(content)
        assert list(error) == ["error"], error
        assert "\n" not in error["error"]
        return status, error["error"]
