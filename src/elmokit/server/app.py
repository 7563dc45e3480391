"""The service: its ASGI application, the responses to errors, and the server that listens."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

import elmokit
from elmokit.errors import ElmokitError, InputError, ServiceError
from elmokit.server import routes
from elmokit.server.app_resources import AppResources
from elmokit.server.middleware import GuardMiddleware
from elmokit.server.responses import error_response, service_error_response

_SECONDS_TO_SEND = 5  # the last responses, once all are computed
_MAX_CONNECTIONS = 1024

_PAGE = Path(__file__).parent / "page"
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",  # stored, but revalidated: a new version shows at once
    "Content-Security-Policy": (
        "default-src 'self'; img-src data:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def create_app(resources: AppResources, *, token: str | None = None) -> ASGIApp:
    """The service as an ASGI application.

    With a `token`, only /health, /ready, the page, /docs and the schema are public.
    """
    if token == "":
        raise InputError("the token is empty; give one, or none at all")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batching = asyncio.create_task(resources.batcher.process_queues())
        yield
        batching.cancel()
        resources.close_threads()

    # The middleware checks the token; this is for the schema, so that /docs asks for it.
    bearer = Depends(HTTPBearer(scheme_name="token", auto_error=False))
    app = FastAPIOffline(  # the same as FastAPI, but /docs loads nothing from elsewhere
        title="elmokit",
        summary="Contextual word vectors and a language model.",
        version=elmokit.__version__,
        lifespan=lifespan,
        dependencies=[] if token is None else [bearer],
        redoc_url=None,
        favicon_url="data:,",
        redirect_slashes=False,
        exception_handlers=dict.fromkeys(
            (RequestValidationError, HTTPException, ElmokitError, Exception), _respond_to_error
        ),
    )
    routers = (routes.router, routes.exploration_router, routes.service_router)
    for router in routers:
        app.include_router(router)
    page = PageFiles(directory=_PAGE)
    app.mount("/page", page)
    app.add_api_route("/", page.index, methods=["GET", "HEAD"], include_in_schema=False)
    for methods in app.openapi()["paths"].values():
        for operation in methods.values():  # /docs shows only the summary of a closed route
            operation["summary"] = operation.pop("description")
    paths = {getattr(route, "path", "") for router in routers for route in router.routes}
    paths |= {"/", "/docs", "/openapi.json"}
    return GuardMiddleware(app, resources, token=token, paths=frozenset(paths))


class PageFiles(StaticFiles):
    """The page's files, with headers that keep it from loading anything from elsewhere."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """A file, or 304 where the browser has it already."""
        response = super().file_response(*args, **kwargs)
        if isinstance(response, FileResponse) and str(response.path).endswith(".js"):
            # Python before 3.12, and some systems, know another type.
            response.headers["Content-Type"] = "text/javascript; charset=utf-8"
        response.headers.update(_PAGE_HEADERS)
        return response

    async def index(self, request: Request) -> Response:
        """The page itself."""
        return await self.get_response("index.html", request.scope)


async def _respond_to_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        return _invalid_request(request, error)
    if isinstance(error, HTTPException):
        status = error.status_code
        message = "the body is not JSON in UTF-8" if status == 400 else error.detail.lower()
        return error_response(status, message, error.headers)
    if isinstance(error, ServiceError):
        return service_error_response(error)
    if isinstance(error, ElmokitError):
        return error_response(422 if isinstance(error, InputError) else 500, str(error))
    return error_response(500, "an error in the service; its log says more")


def _invalid_request(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        where = f"{first['ctx']['error']} at {first['loc'][1]}"
        return error_response(400, f"the body is not JSON: {where}")
    if isinstance(error.body, bytes):
        content_type = request.headers.get("content-type", "none")
        return error_response(400, f"the content type is {content_type}, expected application/json")
    return error_response(422, describe_invalid(error))


def describe_invalid(error: RequestValidationError) -> str:
    """One sentence: which part of a body is wrong, what it is, and what was expected."""
    if error.body is None:
        return "the body is empty, expected JSON"
    first = error.errors()[0]
    name, value, location = "the body", error.body, ["body"]
    for part in first["loc"][1:]:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            break  # the name of a missing field, or of an alternative that was tried
        name = str(part) if len(location) == 1 else f"{name}[{part}]"
        location.append(part)
    if first["type"] == "missing":
        return f"{name}: {first['loc'][-1]} is missing"
    if first["type"] == "extra_forbidden":
        return f"{name} is not a field of this request"
    messages = (e["msg"] for e in error.errors() if [*e["loc"][: len(location)]] == location)
    expected = dict.fromkeys(message[:1].lower() + message[1:] for message in messages)
    text = ascii(value)
    abbreviated = text if len(text) <= 60 else f"{text[:60]}…"
    return f"{name} is {abbreviated}: {', or '.join(expected)}"


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
