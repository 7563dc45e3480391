"""A folder or an address becomes what keeps an index: a store, or the site of a build."""

from contextlib import AbstractContextManager
from pathlib import Path

from elmokit.errors import InputError
from elmokit.search.folder import FolderStore
from elmokit.search.folder_site import FolderSite
from elmokit.search.recipe import Begun
from elmokit.search.site import Site
from elmokit.search.store import Store

_SCHEMES = ("postgresql://", "postgres://")


def open_store(place: str | Path) -> Store:
    """The store of an index that is there."""
    if not is_address(place):
        return FolderStore.open(Path(place))
    check_driver()
    from elmokit.search.postgres.store import DatabaseStore  # noqa: PLC0415  an extra

    return DatabaseStore.open(str(place))


def begin_site(place: str | Path, begun: Begun, *, dim: int) -> AbstractContextManager[Site]:
    """The site of a build that begins, or goes on; its vectors have `dim` numbers."""
    if not is_address(place):
        return FolderSite.begin(Path(place), begun)
    check_driver()
    from elmokit.search.postgres.site import DatabaseSite  # noqa: PLC0415  an extra

    return DatabaseSite.begin(str(place), begun, dim=dim)


def is_address(place: str | Path) -> bool:
    """Whether it is of a database, and not a folder."""
    return isinstance(place, str) and place.startswith(_SCHEMES)


def check_driver() -> None:
    """Refuse a database without psycopg, and say how to get it."""
    try:
        import psycopg  # noqa: F401, PLC0415  an extra
    except ImportError:  # it, or the library that it needs
        raise InputError(
            "an index in PostgreSQL needs psycopg: pip install 'elmokit[postgres]'"
        ) from None
