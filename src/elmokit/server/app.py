"""The ASGI application: routes, the page, the API's documentation, and error responses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import elmokit
from elmokit.errors import ElmokitError, InputError, ServiceError
from elmokit.server import routes
from elmokit.server.app_resources import AppResources
from elmokit.server.middleware import GuardMiddleware
from elmokit.server.responses import error_response, service_error_response

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
