"""A desk becomes an application that a web server runs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

import elmokit
from elmokit.errors import ElmokitError, InputError, ServiceError
from elmokit.server.desk import Desk
from elmokit.server.fault import fault_of
from elmokit.server.guard import Guard, refusal
from elmokit.server.routes import model_routes, state_routes


def make_app(desk: Desk, *, token: str | None = None, groups: Sequence[APIRouter] = ()) -> ASGIApp:
    """The service as ASGI: the model's routes, and those of other `groups`.

    With a `token`, only /health, /ready and the files of the page answer without it.
    """
    if token == "":
        raise InputError("the token is empty; give one, or none at all")

    @asynccontextmanager
    async def working(_: FastAPI) -> AsyncIterator[None]:
        work = asyncio.create_task(desk.work())
        yield
        work.cancel()
        desk.close()

    app = FastAPI(
        title="elmokit",
        summary="Vectors of words in context, and a language model to ask.",
        version=elmokit.__version__,
        lifespan=working,
        docs_url=None,  # they would fetch scripts from elsewhere
        redoc_url=None,
        exception_handlers={
            RequestValidationError: _wrong_form,
            HTTPException: _http_error,
            ElmokitError: _own_error,
            Exception: _bug,
        },
    )
    routers = [model_routes(desk), state_routes(desk), *groups]
    for router in routers:
        app.include_router(router)
    paths = {getattr(route, "path", "") for router in routers for route in router.routes}
    return Guard(
        app,
        limits=desk.limits,
        metrics=desk.metrics,
        token=token,
        paths=frozenset(paths | {"/openapi.json"}),
    )


async def _wrong_form(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _told(400, f"the body is not JSON: {first['ctx']['error']} at {first['loc'][1]}")
    if isinstance(error.body, bytes):
        kind = request.headers.get("content-type", "none")
        return _told(400, f"the content type is {kind}, expected application/json")
    return _told(422, fault_of(error))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return _told(400, "the body is not JSON in UTF-8")
    return JSONResponse(
        {"error": str(error.detail).lower()}, error.status_code, dict(error.headers or {})
    )


async def _own_error(_: Request, error: Exception) -> Response:
    if isinstance(error, ServiceError):
        return refusal(error)
    return _told(422 if isinstance(error, InputError) else 500, str(error))


async def _bug(_: Request, __: Exception) -> Response:
    return _told(500, "something is wrong in the service; its log says what")


def _told(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)
