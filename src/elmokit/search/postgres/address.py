"""An address of PostgreSQL becomes where an index is, and a name that tells no secret."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from elmokit.errors import InputError

_DEFAULT_INDEX = "default"
_EXPECTED = "expected postgresql://USER@HOST:PORT/DATABASE?index=NAME"
# A server that is not there is noticed after seconds, unless the address says otherwise.
_PATIENCE = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "tcp_user_timeout": "15000",
}


@dataclass(frozen=True)
class Address:
    """How to reach a database, the schema of an index there, and what messages call it."""

    conninfo: str = field(repr=False)  # a password may be in it
    schema: str
    name: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """The parts of an address; `index=` among its parameters names the index."""
        base, _, query = url.partition("?")
        parameters = [part for part in query.split("&") if part]
        names = [unquote(part[6:]) for part in parameters if part.startswith("index=")]
        index = names[-1] if names else _DEFAULT_INDEX
        if not re.fullmatch("[a-z0-9_]{1,40}", index):
            raise InputError(
                f"index={index!r}: expected a name of a to z, 0 to 9 and _, 40 characters at most"
            )
        others = "&".join(part for part in parameters if not part.startswith("index="))
        found = _parse(f"{base}?{others}" if others else base)
        # Nothing but these is shown: a message goes to logs and to those who ask a service.
        host, port, name = (found.get(part, "") for part in ("host", "port", "dbname"))
        where = f"{host}:{port}" if port else host
        shown = f"/{name}?host={host}&" if host.startswith("/") else f"{where}/{name}?"
        conninfo = make_conninfo(**{**_PATIENCE, **found})
        return cls(conninfo, f"elmokit_{index}", f"postgresql://{shown}index={index}")


def _parse(url: str) -> dict[str, str]:
    """The parameters of a connection. What is wrong is not repeated: it may be of a password."""
    try:
        found = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    except ProgrammingError:
        found = {"port": "?"}
    if not re.fullmatch("[0-9,]*", found.get("port", "")) or "@" in found.get("host", ""):
        raise InputError(
            f"the address of the database cannot be read; {_EXPECTED}, and in a password %40 for "
            "@, %2F for /, %3A for :"
        )
    return found
