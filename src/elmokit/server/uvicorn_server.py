"""Run the service on a socket: start, idle connections, and a shutdown that answers what waits."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from elmokit.errors import InputError
from elmokit.server.app import create_app
from elmokit.server.app_resources import AppResources

_SECONDS_TO_SEND = 5  # the last responses, once all are computed
_MAX_CONNECTIONS = 1024


@contextmanager
def listening(
    resources: AppResources,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> Iterator[str]:
    """Serve in a thread meanwhile, at the URL that is yielded; port 0 is any free one.

    At the end, requests that wait are answered and new ones refused; then the server stops.
    """
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(resources, token=token),
            http=idle_timeout_protocol(resources.limits.timeout_seconds),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_SECONDS_TO_SEND,
        )
    )
    with _bind(host, port) as bound:
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RuntimeError("the web server did not start; its log says why")
                time.sleep(0.005)
            url_host = f"[{host}]" if ":" in host else host
            yield f"http://{url_host}:{bound.getsockname()[1]}"
        finally:
            resources.batcher.draining = True
            while resources.batcher.num_waiting and thread.is_alive():  # each has a time limit
                time.sleep(0.01)
            server.should_exit = True
            thread.join()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = str(error.strerror).split(" (while")[0]  # Python appends the address there
        raise InputError(f"{host}:{port}: {reason}; choose another --host or --port") from None
    # Send the last bytes of a response at once, not 40 ms later together with more. asyncio sees
    # to that, but not for sockets that `create_server` made; connections inherit the option.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def idle_timeout_protocol(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol that also drops idle connections, which uvicorn would keep for ever.

    Each connection is checked when it begins and every so many seconds. It is dropped if it is
    between two requests and, since the last check, has neither completed the head of another nor
    received a byte of what is left of a response.
    """

    class IdleTimeoutProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._check(None)

        def connection_lost(self, exc: Exception | None) -> None:
            self._next_check.cancel()
            super().connection_lost(exc)

        def _check(self, last_state: object) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            busy = answering and not self.transport.is_closing()
            state = (self.cycle, busy, self.transport.get_write_buffer_size())
            if state == last_state and not busy:
                self.transport.abort()
            else:
                self._next_check = self.loop.call_later(seconds, self._check, state)

    return IdleTimeoutProtocol
