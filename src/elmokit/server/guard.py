"""What comes through a socket becomes a request that is allowed, whole and not too big."""

import asyncio
import hmac
import time
from collections.abc import Awaitable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.errors import ServiceError
from elmokit.server.exchange import EXCHANGE, Exchange, in_time
from elmokit.server.limits import Limits
from elmokit.server.metrics import Metrics

OPEN_PATHS = frozenset({"/health", "/ready"})
PAGE, PAGE_FILES = "/", "/page/"  # a browser brings no token for a page, only for what it asks

# A body that is too big is read on to this many times the limit and thrown away: a client that is
# still sending does not listen.
_PATIENCE = 64
_NOBODY_WAITS = 499  # as nginx counts a client that left


class Guard:
    """Stands before an app: a token, limits, an end for what nobody waits for, and counts.

    `paths` are those of the app's routes; other paths are counted as one.
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
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An exchange as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), _NOBODY_WAITS

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            try:
                await in_time(send(message), self._limits.seconds)
            except TimeoutError:
                raise OSError("the client does not take its answer") from None

        self._open += 1
        exchange = scope[EXCHANGE] = Exchange()
        try:
            await self._exchange(scope, receive, watched)
        except ServiceError as error:
            await refusal(error)(scope, receive, watched)
        except (OSError, ClientDisconnect):
            pass  # nobody is there to be told
        finally:
            self._open -= 1
            exchange.close()
            route = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.count_request(route, status, time.perf_counter() - started)

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in OPEN_PATHS:
            if scope["path"] != PAGE and not scope["path"].startswith(PAGE_FILES):
                self._check_token(scope)
            if self._open > self._limits.open:
                raise ServiceError(
                    f"{self._limits.open} requests are being answered, that is the limit; "
                    "ask again in a moment",
                    status=429,
                    retry_after=1,
                )
        try:
            body = await in_time(self._read(receive), self._limits.seconds)
        except TimeoutError:
            raise ServiceError(
                f"the body did not arrive within {self._limits.seconds:g} seconds", status=408
            ) from None
        scope[EXCHANGE].body_bytes = len(body)
        answering = asyncio.ensure_future(_awaited(self._app(scope, _replay(body), send)))
        leaving = asyncio.ensure_future(_departure(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered = answering.done()
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
        if answered:
            answering.result()

    def _check_token(self, scope: Scope) -> None:
        if self._token is None:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + self._token.encode()):
            raise ServiceError(
                "the token is missing or wrong; send the header Authorization: Bearer TOKEN",
                status=401,
            )

    async def _read(self, receive: Receive) -> bytes:
        body, size, more = bytearray(), 0, True
        while more and size <= _PATIENCE * self._limits.body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            if size <= self._limits.body_bytes:
                body += part
            else:
                body.clear()
        if size > self._limits.body_bytes:
            raise ServiceError(
                f"the body has more than {self._limits.body_bytes:,} bytes, which is the limit; "
                "ask in smaller parts",
                status=413,
            )
        return bytes(body)


def refusal(error: ServiceError) -> JSONResponse:
    """The answer that tells an error of the service."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": str(error)}, error.status, headers)


def _replay(body: bytes) -> Receive:
    """What an app receives when its request has been read already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()  # whether the client leaves is the guard's business
        return messages.pop()

    return receive


async def _departure(receive: Receive) -> None:
    """Until the client has left, or has its answer."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work
