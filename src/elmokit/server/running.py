"""An application becomes a service that listens, and ends when all are answered."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from fastapi import APIRouter

from elmokit.errors import InputError
from elmokit.server.app import make_app
from elmokit.server.connection import punctual
from elmokit.server.desk import Desk

# So long, after the last answer was computed, clients may take to receive theirs.
_SECONDS_TO_SEND = 5
_CONNECTIONS = 1024


@contextmanager
def listening(
    desk: Desk,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    groups: Sequence[APIRouter] = (),
) -> Iterator[str]:
    """A service at the address that comes back; port 0 is any free one.

    In the end it drains: requests that wait are answered, new ones are refused, then it is gone.
    """
    app = make_app(desk, token=token, groups=groups)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=punctual(desk.limits.seconds),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_SECONDS_TO_SEND,
        )
    )
    with _bound(host, port) as bound:
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RuntimeError("the web server did not start; its log says why")
                time.sleep(0.005)
            named = f"[{host}]" if ":" in host else host
            yield f"http://{named}:{bound.getsockname()[1]}"
        finally:
            desk.draining = True
            while desk.waiting and thread.is_alive():  # none waits longer than its limit
                time.sleep(0.01)
            server.should_exit = True
            thread.join()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = str(error.strerror).split(" (while")[0]  # where, Python says there
        raise InputError(f"{host}:{port}: {reason}; choose another --host or --port") from None
