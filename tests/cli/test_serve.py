"""The commands serve and page."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

import elmokit
from elmokit.errors import ServiceError
from elmokit.search.index import Index
from elmokit.server import onnxruntime_web
from elmokit.server.client import Client
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from random_models import make_folder
from task_examples import EXAMPLES, tiny_settings
from typed import failed
from waiting import is_running, wait_until

_SHARED = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes share memory, and are seen, on Linux"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), softmax_words=9)


@pytest.fixture
def started(folder):
    """Start `elmo serve` on a free port: the process and its address."""
    processes = []

    def start(*options, computing=("--threads", "1")):
        process = subprocess.Popen(
            [
                sys.executable, "-W", "error", "-m", "elmokit.cli", "serve",
                "--model", folder, "--port", "0", *computing, *options,
            ],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "ELMOKIT_TOKEN": "secret"},
        )  # fmt: skip
        processes.append(process)
        listening = process.stderr.readline()
        assert listening.startswith("listening at http://127.0.0.1:"), listening
        line = process.stderr.readline()
        while line.startswith("compiling "):
            line = process.stderr.readline()
        assert line == "ready\n"
        return process, listening.split()[2].rstrip(",")

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stderr.close()


def test_sigterm_answers_what_waits_refuses_the_rest_and_exits_with_zero(started):
    process, url = started("--batch-wait-milliseconds", "4000")
    client = Client(url, "secret", max_retries=0)
    with pytest.raises(ServiceError, match="token"):
        Client(url).encode(["a"])
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(client.encode, [["a"]]) for _ in range(2)]
        wait_until(lambda: "elmokit_queue_length 2.0\n" in client.metrics())
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not client.is_ready())
        with pytest.raises(ServiceError, match="the service is shutting down") as caught:
            client.encode(["b"])
        assert caught.value.status == 503
        assert [answer.result().shape for answer in waiting] == [(1, 12)] * 2
    assert process.wait(60) == 0
    assert process.stderr.read() == "answering what waits; once more ends at once\n"


@pytest.mark.full
@_SHARED
def test_a_service_of_several_processes_ends_with_its_last_answer(started):
    process, url = started("--batch-wait-milliseconds", "2000", computing=("--processes", "2"))
    client = Client(url, "secret", max_retries=0)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(client.encode, [["a"]]) for _ in range(4)]
        wait_until(lambda: "elmokit_queue_length 4.0\n" in client.metrics())
        family = _family(process.pid)
        assert len(family) == 3  # the two, and the one that makes them
        process.send_signal(signal.SIGTERM)
        assert [answer.result().shape for answer in waiting] == [(1, 12)] * 4
    assert process.wait(60) == 0
    assert process.stderr.read() == "answering what waits; once more ends at once\n"
    wait_until(lambda: not any(map(is_running, family)))


@pytest.mark.full
@_SHARED
def test_the_processes_of_a_service_that_is_killed_have_no_port_and_end(started):
    process, url = started(computing=("--processes", "2"))
    assert Client(url, "secret").encode([["a"]]).shape == (1, 12)
    family = _family(process.pid)
    for number in family:
        os.kill(number, signal.SIGSTOP)
    process.kill()
    process.wait()
    socket.create_server(("127.0.0.1", int(url.rsplit(":", 1)[1]))).close()
    for number in family:
        os.kill(number, signal.SIGCONT)
    wait_until(lambda: not any(map(is_running, family)))


@_SHARED
@pytest.mark.full
def test_layers_are_compiled_before_a_service_is_ready(started, folder, tmp_path, monkeypatch):
    pytest.importorskip("numba")
    expected = elmokit.load(folder, kernel="numba").encode(["a", "b c"])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    _, url = started(computing=("--processes", "2"))
    (compiled,) = tmp_path.iterdir()
    written = compiled.stat().st_mtime_ns
    client = Client(url, "secret")
    assert client.info().kernel == "numba"
    np.testing.assert_array_equal(client.encode(["a", "b c"]), expected)
    assert [path.stat().st_mtime_ns for path in tmp_path.iterdir()] == [written]


def test_worker_processes_take_no_number_of_threads(elmo):
    failed(elmo("serve", "--processes", 2, "--threads", 2), "with one thread each")


def _family(number):
    """The processes that one has started, and those they have started."""
    own = Path(f"/proc/{number}/task/{number}/children").read_text("ascii").split()
    return [number for child in map(int, own) for number in (child, *_family(child))]


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_is_loaded_ends_the_service(tmp_path, number):
    os.mkfifo(tmp_path / "model")  # loading waits for what nobody writes
    process = subprocess.Popen(
        [
            sys.executable, "-m", "elmokit.cli", "serve", "--model", tmp_path / "model",
            "--port", "0",
        ],
        stderr=subprocess.PIPE, text=True,
        # A shell lets what it starts in the background ignore SIGINT, and the tests with it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    try:
        url = process.stderr.readline().split()[2].rstrip(",")
        assert Client(url).is_alive()
        assert not Client(url).is_ready()
        process.send_signal(number)
        assert process.wait(60) != 0
        assert not Client(url).is_alive()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.full
@_SHARED
def test_no_process_and_no_metric_shows_the_token_and_no_log_of_one_that_died(started, tmp_path):
    (tmp_path / "token").write_text("from-a-file\n")
    process, url = started("--token-file", tmp_path / "token", computing=("--processes", "2"))
    client = Client(url, "from-a-file", max_retries=0)
    assert client.encode([["a"]]).shape == (1, 12)
    for wrong in ("from-a-fil", "from-a-files"):
        with pytest.raises(ServiceError, match="the token is missing or wrong") as refused:
            Client(url, wrong, max_retries=0).encode([["a"]])
        assert "from-a-file" not in str(refused.value)
    family = [process.pid, *_family(process.pid)]
    for number in family:
        assert b"from-a-file" not in Path(f"/proc/{number}/cmdline").read_bytes()
        assert b"from-a-file" not in Path(f"/proc/{number}/environ").read_bytes()
    for worker in family[2:]:
        os.kill(worker, signal.SIGKILL)
    with suppress(ServiceError):  # unless the workers were replaced before they were asked
        [client.encode([["a"]]) for _ in range(20)]
    assert "from-a-file" not in repr(client) + client.metrics()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    log = process.stderr.read()
    assert "worker process" in log
    assert "from-a-file" not in log


def test_an_index_and_tasks_are_served(started, folder, tmp_path):
    model, examples = elmokit.load(folder), EXAMPLES["pos"]
    for name in ("one", "two"):
        train_task(
            TASKS["pos"], examples, examples, tmp_path / name,
            settings=tiny_settings(elmo="input", epochs=1), model=model,
        )  # fmt: skip
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe bank of a river .\n", "utf-8")
    Index.build(tmp_path / "index", [str(tmp_path / "text.txt")], model).close()
    process, url = started(
        "--index", tmp_path / "index", "--task", tmp_path / "one", "--task", tmp_path / "two"
    )

    def get(path, form=None):
        headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
        body = None if form is None else json.dumps(form).encode()
        with urlopen(Request(url + path, body, headers), timeout=20) as answer:
            return json.loads(answer.read())

    assert [mix["name"] for mix in get("/layer_weights")["layer_weights"]] == ["one", "two"]
    assert get("/search", {"query": "The bank of a river ."})["results"][0]["line"] == 2
    with urlopen(url, timeout=20) as page:
        assert page.read().startswith(b"<!doctype html>")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert process.stderr.read() == "answering what waits; once more ends at once\n"


def test_an_index_or_a_task_that_is_not_there_ends_the_service(elmo, folder, tmp_path):
    serve = "serve", "--model", folder, "--port", 0
    failed(elmo(*serve, "--index", tmp_path), "no index there; build one first (elmo index build)")
    _, err, code = elmo(*serve, "--task", tmp_path)
    assert code == 1
    says = "no task.json; expected a folder that elmo train made"
    assert err.splitlines()[1] == f"elmo: {tmp_path}: {says}"


def test_an_index_of_another_model_ends_the_service(elmo, folder, tmp_path):
    (tmp_path / "text.txt").write_text("A bank lent money .\n")
    index = tmp_path / "index"
    Index.build(index, [str(tmp_path / "text.txt")], elmokit.load(folder)).close()
    (tmp_path / "other").mkdir()
    other = make_folder(tmp_path / "other", softmax_words=9, size=2.0)
    _, err, code = elmo("serve", "--model", other, "--port", 0, "--index", index)
    assert code == 1
    assert err.splitlines()[1].startswith(f"elmo: {index}: built with another model")


def test_a_taken_port_is_one_line(elmo, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = elmo("serve", "--model", folder, "--port", port)
    failed(done, f"127.0.0.1:{port}: Address already in use; choose another --host or --port")


def test_a_model_that_is_not_there_ends_the_service(elmo, tmp_path):
    _, err, code = elmo("serve", "--model", tmp_path / "x", "--port", 0)
    assert code == 1
    assert err.splitlines()[1] == f"elmo: {tmp_path}/x: no such file or folder"


def test_an_empty_token_is_refused(elmo, monkeypatch):
    monkeypatch.setenv("ELMOKIT_TOKEN", "")
    failed(elmo("serve", "--port", 0), "the token is empty; give one, or none")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has nothing, expected a token on one line"),
        (b"two words\n", "has more than one word, expected a token on one line"),
        (b"\xff\n", "not UTF-8, expected a token on one line"),
    ],
)
def test_a_file_without_one_token_is_refused_and_not_shown(elmo, tmp_path, content, message):
    (tmp_path / "token").write_bytes(content)
    failed(elmo("serve", "--token-file", tmp_path / "token"), f"{tmp_path}/token: {message}")


def test_a_token_on_the_command_line_is_refused(elmo):
    _, err, code = elmo("serve", "--token", "secret")
    assert code == 2
    assert "--token-file" in err
    assert "secret" not in err


def test_the_token_of_a_file_is_in_no_command_line_and_no_log(started, tmp_path):
    (tmp_path / "token").write_text("from-a-file\n")
    process, url = started("--token-file", str(tmp_path / "token"))
    command = subprocess.run(
        ["ps", "-ww", "-o", "args=", str(process.pid)], capture_output=True, text=True, check=True
    ).stdout
    assert "--token-file" in command
    with pytest.raises(ServiceError, match="token"):
        Client(url, "secret").encode(["a"])  # the file counts, not the environment
    assert Client(url, "from-a-file").encode(["a"]).shape
    process.terminate()
    assert "from-a-file" not in command + process.communicate(timeout=60)[1]


def test_without_fastapi_the_install_line_is_named(elmo, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("elmokit.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    failed(elmo("serve"), "a service needs fastapi: pip install 'elmokit[serve]'")


def test_page_writes_a_folder_once(elmo, folder, tmp_path):
    pytest.importorskip("onnx", reason="needs onnx, which is not there")
    package = tmp_path / "onnxruntime-web"
    (package / "dist").mkdir(parents=True)
    settings = {"name": "onnxruntime-web", "version": "1.2.3"}
    (package / "package.json").write_text(json.dumps(settings))
    for name in (onnxruntime_web.RUNTIME, onnxruntime_web.GLUE, onnxruntime_web.WASM):
        (package / "dist" / name).write_text("")
    options = ["--model", folder, "--threads", "1", "--onnxruntime", package]
    _, err, code = elmo("page", tmp_path / "site", *options)
    assert code == 0
    assert f"to look at it: python -m http.server 8080 -d {tmp_path}/site" in err
    assert (tmp_path / "site" / "index.html").is_file()
    failed(elmo("page", tmp_path / "site", *options), "site: exists already; delete it, or give")
    failed(
        elmo("page", tmp_path / "new", *options[:-1], tmp_path), "expected the folder of the npm"
    )
    failed(
        elmo("page", tmp_path / "new", *options[:-2]), "onnxruntime-web 1.30.0 is not in the cach"
    )


def test_without_onnx_the_install_line_is_named(elmo, folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    options = ["--model", folder, "--threads", "1", "--onnxruntime", tmp_path]
    failed(elmo("page", tmp_path / "site", *options), "pip install 'elmokit[page]'")
