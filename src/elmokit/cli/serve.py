"""The commands serve and page: a model as a service with a page, and the page without one."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

from elmokit.cli.options import Load, argument, option, takes_model, takes_settings, tell
from elmokit.errors import InputError
from elmokit.server.limits import Limits
from elmokit.toml_settings import read_settings

_CACHE_BYTES = 2**28  # of word vectors, in all processes together


@takes_settings(Limits(), without=("max_word_characters", "max_open"))
@takes_model("tokenizer", "precision", "kernel")
def serve(
    load: Load,
    given: dict[str, str],
    host: str = option("The address to listen on.", "127.0.0.1", metavar="ADDRESS"),
    port: int = option("The port to listen on; 0 is any free one.", 8000, min=0, max=65535),
    token_file: Path | None = option(
        "A file with the token that requests must have, Authorization: Bearer TOKEN; the "
        "environment variable ELMOKIT_TOKEN may hold it instead.",
        show_default="no token needed",
    ),
    index: str | None = option(
        "The index to search: a folder of elmo index build, or a PostgreSQL URL.",
        metavar="INDEX",
        show_default="a sample of sentences",
    ),
    tasks: list[Path] | None = option(
        "A folder of elmo train, served as /predict/TASK, its layer weights shown on the page; may "
        "be repeated.",
        None,
        "--task",
        metavar="DIR",
        show_default="layer weights of the English model",
    ),
    processes: int | None = option(
        "How many processes share the model, each computing in one thread.",
        min=1,
        show_default="one for each CPU that may be used, up to 8",
    ),
) -> None:
    """Serve a model over HTTP: vectors, perplexities, next words, search; with a page at /.

    The routes are described at /docs. After SIGTERM or Ctrl-C, waiting requests are
    answered, new ones are refused, and the service ends.

    Example: elmo serve --port 8000
    """
    device, threads = load.keywords["device"], load.keywords["threads"]
    try:
        from elmokit.search.index import Index  # noqa: PLC0415  (torch takes seconds)
        from elmokit.search.sample_index import sample_index  # noqa: PLC0415
        from elmokit.search.store import open_store  # noqa: PLC0415
        from elmokit.server.app import listening  # noqa: PLC0415
        from elmokit.server.app_resources import AppResources  # noqa: PLC0415
        from elmokit.server.trained_tasks import (  # noqa: PLC0415
            load_tasks,
            read_shipped_layer_weights,
        )
        from elmokit.server.worker_processes import WorkerPool, default_num_workers  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "elmokit").startswith("elmokit"):
            raise
        raise InputError(f"a service needs {error.name}: pip install 'elmokit[serve]'") from None
    limits = read_settings(Limits(), None, given)
    limits = replace(limits, max_open=4 * limits.max_queued)
    if processes is None:
        processes = 1 if threads else default_num_workers(device)
    elif processes > 1 and (threads or device != "cpu"):
        raise InputError("--processes compute on the CPU, with one thread each; leave it out")
    if index is not None:
        open_store(index).close()  # refuses another folder before clients can connect
    token = _read_token(token_file)
    resources = AppResources(limits)
    with (
        ExitStack() as ending,  # when all are answered
        listening(resources, host=host, port=port, token=token) as url,
    ):
        ending.callback(resources.close)
        tell(f"listening at {url}, loading the model")
        embedder = load(
            tokens_per_batch=limits.tokens_per_batch,
            threads=threads if processes == 1 else 1,
            cache_bytes=_CACHE_BYTES // (processes if processes == 1 else processes + 1),
        )
        embedder.encode("Once.")  # the first text takes a second
        if tasks:
            resources.tasks, resources.layer_weights = load_tasks(tasks)
        else:
            resources.layer_weights = read_shipped_layer_weights(embedder)
        resources.open_index = lambda: (
            sample_index(embedder) if index is None else Index.open(index, embedder)
        )
        resources.index = resources.open_index()
        worker_pool = None
        if processes > 1:
            worker_pool = ending.enter_context(
                closing(WorkerPool(embedder, processes, timeout_seconds=2 * limits.timeout_seconds))
            )
        with _signals() as arrived:  # before, one ends it at once
            resources.open(embedder, worker_pool)
            tell("ready")
            arrived.get()
        tell("answering what waits; once more ends at once")


@takes_model("tokenizer", "align")
def page(
    load: Load,
    folder: Path = argument("OUT", "The folder to write, a new one."),
    onnxruntime: Path | None = option(
        "The folder of the installed npm package onnxruntime-web, such as "
        "node_modules/onnxruntime-web.",
        metavar="DIR",
        show_default="npm downloads it once",
    ),
    index: str | None = option(
        "The index to search: a folder of elmo index build, or a PostgreSQL URL; of at most 10,000 "
        "passages.",
        metavar="INDEX",
        show_default="a sample of sentences",
    ),
    tasks: list[Path] | None = option(
        "A folder of elmo train, its layer weights shown on the page; may be repeated.",
        None,
        "--task",
        metavar="DIR",
        show_default="layer weights of the English model",
    ),
    float32: bool = option(
        "Keep all numbers of the model: four times the size of the int8 that is the default.", False
    ),
) -> None:
    """Write the page of elmo serve as a folder for any static host, with the model inside.

    The browser computes: no server, and no text leaves it. Once loaded, the page works without
    a network. Needs: pip install 'elmokit[page]', and npm or --onnxruntime.

    Example: elmo page site
    """
    from elmokit.search.index import Index  # noqa: PLC0415  (torch takes seconds)
    from elmokit.search.sample_index import sample_index  # noqa: PLC0415
    from elmokit.server.onnxruntime_web import find_onnxruntime_web  # noqa: PLC0415
    from elmokit.server.static_page import check_new, write_page  # noqa: PLC0415
    from elmokit.server.trained_tasks import (  # noqa: PLC0415
        load_tasks,
        read_shipped_layer_weights,
    )

    missing = [name for name in ("onnx", "snowballstemmer") if find_spec(name) is None]
    if missing:
        raise InputError(f"a page needs {' and '.join(missing)}: pip install 'elmokit[page]'")
    check_new(folder)
    runtime = find_onnxruntime_web(onnxruntime, offline=load.keywords["offline"])
    embedder = load()
    weights = load_tasks(tasks)[1] if tasks else read_shipped_layer_weights(embedder)
    with sample_index(embedder) if index is None else Index.open(index, embedder) as opened:
        write_page(
            embedder, folder, index=opened, onnxruntime=runtime, layer_weights=weights,
            int8=not float32,
        )  # fmt: skip
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    tell(f"{folder}: {size / 1e6:,.1f} MB; to look at it: python -m http.server 8080 -d {folder}")


def _read_token(path: Path | None) -> str | None:
    """The token in a file or the environment; everyone on the machine sees a command line."""
    if path is None:
        return os.environ.get("ELMOKIT_TOKEN")
    try:
        token = path.read_text("utf-8").strip()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8, expected a token on one line") from None
    if not token or len(token.split()) > 1:
        found = "more than one word" if token else "nothing"
        raise InputError(f"{path}: has {found}, expected a token on one line")
    return token


@contextmanager
def _signals() -> Iterator["SimpleQueue[int]"]:
    """SIGINT and SIGTERM as they arrive; afterwards they do again what they did before."""
    arrived: SimpleQueue[int] = SimpleQueue()  # the one queue that a handler may put to
    before = {
        number: signal.signal(number, lambda number, _: arrived.put(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
