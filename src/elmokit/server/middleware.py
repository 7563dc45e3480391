"""ASGI middleware: authentication, limits, timeouts, clients that disconnect, and metrics."""

import asyncio
import time
from contextlib import ExitStack

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.errors import ServiceError
from elmokit.server.auth import check_token
from elmokit.server.limits import Limits
from elmokit.server.metrics import Metrics
from elmokit.server.responses import service_error_response

UNLIMITED_PATHS = frozenset({"/health", "/ready"})

CONTEXT = "elmokit.request_context"  # its key in an ASGI scope

_SMALL_BODY_BYTES = 512
# A body that is too large is read up to this many times the limit and thrown away: a client that
# is still sending does not listen for a response.
_MAX_DISCARDED = 64
_CLIENT_CLOSED_REQUEST = 499  # as nginx counts it


class RequestContext(ExitStack):
    """Callbacks for the end of a request, when its response is sent or given up."""

    body_bytes = 0

    @property
    def is_small(self) -> bool:
        """Whether its texts are tokenized sooner than another thread would have its turn."""
        return self.body_bytes <= _SMALL_BODY_BYTES


class GuardMiddleware:
    """Checks requests before the app gets them, ends those nobody waits for, and counts all.

    Requests are counted by route, of which `paths` are those without parameters.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        metrics: Metrics,
        token: str | None,
        paths: frozenset[str],
    ) -> None:
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._token = token
        self._paths = paths
        self._num_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), _CLIENT_CLOSED_REQUEST

        async def send_in_time(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            try:
                with anyio.fail_after(self._limits.timeout_seconds):
                    await send(message)
            except TimeoutError:
                raise OSError("the client does not receive its response") from None

        self._num_open += 1
        try:
            with RequestContext() as context:
                scope[CONTEXT] = context
                await self._handle(scope, receive, send_in_time)
        except ServiceError as error:
            await service_error_response(error)(scope, receive, send_in_time)
        except (OSError, ClientDisconnect):
            pass  # there is no one to respond to
        finally:
            self._num_open -= 1
            route = scope["path"]
            if route not in self._paths:
                route = getattr(scope.get("route"), "path", "other")
            self._metrics.count_request(route, status, time.perf_counter() - started)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        check_token(scope, self._token)
        if path not in UNLIMITED_PATHS and self._num_open > self._limits.max_open:
            raise ServiceError(
                f"{self._limits.max_open} requests are being answered, which is the limit; "
                "try again in a moment",
                status=429,
                retry_after=1,
            )
        try:
            with anyio.fail_after(self._limits.timeout_seconds):
                body = await self._read_body(receive)
        except TimeoutError:
            raise ServiceError(
                f"the body did not arrive within {self._limits.timeout_seconds:g} seconds",
                status=408,
            ) from None
        scope[CONTEXT].body_bytes = len(body)
        with anyio.CancelScope() as answering:
            watcher = asyncio.create_task(_cancel_on_disconnect(receive, answering))
            try:
                await self._app(scope, _replay(body), send)
            finally:
                watcher.cancel()

    async def _read_body(self, receive: Receive) -> bytes:
        limit = self._limits.max_body_bytes
        body, size, more = bytearray(), 0, True
        while more and size <= _MAX_DISCARDED * limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            if size <= limit:
                body += part
            else:
                body.clear()
        if size > limit:
            raise ServiceError(
                f"the body has more than {limit:,} bytes, which is the limit; "
                "split it into smaller requests",
                status=413,
            )
        return bytes(body)


def _replay(body: bytes) -> Receive:
    """The `receive` of an app whose request has been read already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()  # disconnects are the middleware's business
        return messages.pop()

    return receive


async def _cancel_on_disconnect(receive: Receive, answering: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    answering.cancel()
