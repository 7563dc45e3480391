"""The files of the page become answers that a browser keeps until they change."""

import hashlib
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from elmokit.server.guard import PAGE, PAGE_FILES

_FOLDER, _FIRST = Path(__file__).parent / "page", "index.html"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    "Cache-Control": "no-cache",  # kept, but asked for each time: a new elmokit shows at once
    "Content-Security-Policy": (
        "default-src 'self'; img-src data:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def file_routes() -> APIRouter:
    """The page at /, and what it loads."""
    router = APIRouter()
    for path in sorted(_FOLDER.iterdir()):
        if path.suffix in _KINDS:
            place = PAGE if path.name == _FIRST else PAGE_FILES + path.name
            _add(router, place, path)
    return router


def _add(router: APIRouter, place: str, path: Path) -> None:
    content = path.read_bytes()
    headers = {**_HEADERS, "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}

    async def file(request: Request) -> Response:
        known = request.headers.get("if-none-match", "").split(",")
        if headers["ETag"] in (tag.strip().removeprefix("W/") for tag in known):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=_KINDS[path.suffix], headers=headers)

    router.add_api_route(place, file, methods=["GET", "HEAD"], include_in_schema=False)
