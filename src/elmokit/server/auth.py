"""Authentication: the bearer token, and the paths that are public without it."""

import hmac

from starlette.types import Scope

from elmokit.errors import ServiceError

# A browser sends no token for a page and its files, only for the requests that the page makes.
PUBLIC_PATHS = frozenset({"/", "/docs", "/health", "/openapi.json", "/ready"})
PUBLIC_FOLDERS = ("/page/", "/static-offline-docs/")


def check_token(scope: Scope, token: str | None) -> None:
    """Raise ServiceError 401 unless the path is public, or the request has the service's token."""
    path = scope["path"]
    if token is None or path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDERS):
        return
    given = dict(scope["headers"]).get(b"authorization", b"")
    if not hmac.compare_digest(given, b"Bearer " + token.encode()):
        raise ServiceError(
            "the token is missing or wrong; send the header Authorization: Bearer TOKEN",
            status=401,
        )
