"""ASGI middleware: authentication, limits, timeouts, clients that disconnect, and metrics."""

import asyncio
import hmac
import time

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.errors import ServiceError
from elmokit.server.app_resources import AppResources, RequestContext
from elmokit.server.limits import busy
from elmokit.server.responses import service_error_response

CONTEXT = "elmokit.request_context"  # its key in an ASGI scope

_UNLIMITED_PATHS = frozenset({"/health", "/ready"})
# A browser sends no token for a page and its files, only for the requests that the page makes.
_PUBLIC_PATHS = _UNLIMITED_PATHS | {"/", "/docs", "/openapi.json"}
_PUBLIC_FOLDERS = ("/page/", "/static-offline-docs/")
# A body that is too large is read up to this many times the limit and thrown away: a client that
# is still sending does not listen for a response.
_MAX_DISCARDED = 64
_CLIENT_CLOSED_REQUEST = 499  # as nginx counts it


class GuardMiddleware:
    """Checks requests before the app gets them, ends those nobody waits for, and counts all.

    Requests are counted by route, of which `paths` are those without parameters.
    """

    def __init__(
        self, app: ASGIApp, resources: AppResources, *, token: str | None, paths: frozenset[str]
    ) -> None:
        self._app = app
        self._resources = resources
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self._paths = paths
        self._num_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), _CLIENT_CLOSED_REQUEST

        async def send_in_time(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            try:
                with anyio.fail_after(self._resources.limits.timeout_seconds):
                    await send(message)
            except TimeoutError:
                raise OSError("the client does not receive its response") from None

        self._num_open += 1
        try:
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
            seconds = time.perf_counter() - started
            self._resources.metrics.count_request(route, status, seconds)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._check_token(scope)
        limits = self._resources.limits
        if scope["path"] not in _UNLIMITED_PATHS and self._num_open > limits.max_open:
            raise busy(
                f"{limits.max_open} requests are being answered, which is the limit; "
                "try again in a moment"
            )
        try:
            with anyio.fail_after(limits.timeout_seconds):
                body = await _read_body(Request(scope, receive), limits.max_body_bytes)
        except TimeoutError:
            raise ServiceError(
                f"the body did not arrive within {limits.timeout_seconds:g} seconds", status=408
            ) from None
        with (
            RequestContext(self._resources, len(body)) as scope[CONTEXT],
            anyio.CancelScope() as answering,
        ):
            watcher = asyncio.create_task(_cancel_on_disconnect(receive, answering))
            try:
                await self._app(scope, _replay(body), send)
            finally:
                watcher.cancel()

    def _check_token(self, scope: Scope) -> None:
        path = scope["path"]
        is_public = path in _PUBLIC_PATHS or path.startswith(_PUBLIC_FOLDERS)
        if self._authorization is None or is_public:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, self._authorization):
            raise ServiceError(
                "the token is missing or wrong; send the header Authorization: Bearer TOKEN",
                status=401,
            )


async def _read_body(request: Request, limit: int) -> bytes:
    body, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            body += part
        elif size > _MAX_DISCARDED * limit:
            break
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
