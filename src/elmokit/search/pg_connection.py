"""The connection to an index in PostgreSQL: URLs without secrets in messages, reconnecting."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import psycopg
from pgvector.psycopg import register_vector
from psycopg import Connection, ProgrammingError, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Composed, Identifier, Literal

from elmokit.errors import FormatError, InputError, ServiceError

if TYPE_CHECKING:
    from typing_extensions import LiteralString

Rows = list[tuple[Any, ...]]

_DEFAULT_INDEX = "default"
_EXPECTED_URL = "expected postgresql://USER@HOST:PORT/DATABASE?index=NAME"
_MIN_PGVECTOR = (0, 8)  # the first that goes on searching a graph until k vectors are found
# A server that does not answer is noticed after seconds, unless the URL has other times.
_TIMEOUTS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "tcp_user_timeout": "15000",
}


class Database:
    """The schema of one index, queried over one connection that is made again when it broke.

    In SQL `{s}` stands for the schema. A database that does not answer is a ServiceError: the same
    query may be answered later.
    """

    # Not psycopg_pool: a pool reconnects in the background and raises PoolTimeout when its time is
    # up, where callers need the server's reason at once; and a build's lock is its connection's.

    def __init__(self, address: "PostgresAddress") -> None:
        self.address, self.name, self.schema = address, address.name, address.schema
        self._connection: Connection[tuple[Any, ...]] | None = None
        self._in_transaction = False

    def query(self, query: "LiteralString", /, **values: object) -> Rows:
        """The rows of a query; sent again if the connection turns out to be closed."""
        with self.explaining_errors():
            known = self._connection
            try:
                return self.connection().execute(self.sql(query), values).fetchall()
            except psycopg.OperationalError:
                if self._in_transaction or known is None or not known.closed:
                    raise
            return self.connection().execute(self.sql(query), values).fetchall()

    def execute(self, statement: "LiteralString", /, *, dim: int = 0, **values: object) -> None:
        """Execute a statement, in which `{n}` stands for `dim`."""
        with self.explaining_errors():
            self.connection().execute(self.sql(statement, dim), values or None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block does if it ends well, and nothing otherwise."""
        self.query("SELECT 1")  # a broken connection is made again here, not inside the block
        with self.explaining_errors(), self.connection().transaction():
            self._in_transaction = True
            try:
                yield
            finally:
                self._in_transaction = False

    def connection(self) -> "Connection[tuple[Any, ...]]":
        """A connection; inside a transaction, the transaction's."""
        if self._connection is None or (self._connection.closed and not self._in_transaction):
            self._connection = _connect(self.address)
        return self._connection

    def sql(self, query: "LiteralString", dim: int = 0) -> Composed:
        """SQL with the schema's name filled in."""
        return SQL(query).format(s=Identifier(self.schema), n=Literal(dim))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """Turn errors of psycopg into ours."""
        try:
            yield
        except psycopg.OperationalError as error:
            raise ServiceError(
                f"{self.name}: the database does not answer ({_reason(error)}); try again when it "
                "does",
                status=503,
                retry_after=1,
            ) from None
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            raise FormatError(
                f"{self.name}: the index does not exist any more; build it again"
            ) from None
        except psycopg.Error as error:
            raise InputError(f"{self.name}: PostgreSQL refuses it ({_reason(error)})") from None


@dataclass(frozen=True)
class PostgresAddress:
    """How to reach a database, the schema of an index in it, and its name for messages."""

    conninfo: str = field(repr=False)  # a password may be in it
    schema: str
    name: str

    @classmethod
    def from_url(cls, url: str) -> "PostgresAddress":
        """Parse postgresql://…?index=NAME."""
        base, _, query = url.partition("?")
        parameters = [part for part in query.split("&") if part]
        names = [unquote(part[6:]) for part in parameters if part.startswith("index=")]
        index = names[-1] if names else _DEFAULT_INDEX
        if not re.fullmatch("[a-z0-9_]{1,40}", index):
            raise InputError(
                f"index={index!r}: expected a name of a to z, 0 to 9 and _, 40 characters at most"
            )
        others = "&".join(part for part in parameters if not part.startswith("index="))
        options = _connection_options(f"{base}?{others}" if others else base)
        # Only these are shown: messages go to logs and to the clients of a service.
        host, port, database = (options.get(part, "") for part in ("host", "port", "dbname"))
        server = f"{host}:{port}" if port else host
        shown = f"/{database}?host={host}&" if host.startswith("/") else f"{server}/{database}?"
        conninfo = make_conninfo(**{**_TIMEOUTS, **options})
        return cls(conninfo, f"elmokit_{index}", f"postgresql://{shown}index={index}")


def register_pgvector(connection: "Connection[tuple[Any, ...]]", name: str) -> bool:
    """Make pgvector's types known to a connection; False if the database has no pgvector."""
    row = connection.execute(
        "SELECT e.extversion, n.nspname FROM pg_extension e "
        "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    ).fetchone()
    if row is None:
        return False
    version, schema = row
    if tuple(map(int, version.split(".")[:2])) < _MIN_PGVECTOR:
        raise InputError(
            f"{name}: the database has pgvector {version}, expected 0.8 or later; update it on the "
            "server, then ALTER EXTENSION vector UPDATE"
        )
    connection.execute(
        "SELECT set_config('search_path', quote_ident(%s), false), "
        "set_config('hnsw.iterative_scan', 'strict_order', false)",
        (schema,),
    )
    register_vector(connection)
    return True


def _connect(address: PostgresAddress) -> "Connection[tuple[Any, ...]]":
    # Nothing is prepared: each query is planned for its own values.
    connection = psycopg.connect(address.conninfo, autocommit=True, prepare_threshold=None)
    try:
        register_pgvector(connection, address.name)
    except BaseException:
        connection.close()
        raise
    return connection


def _connection_options(url: str) -> dict[str, str]:
    # What is wrong is not repeated in the message: it may be part of a password.
    try:
        options = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    except ProgrammingError:
        options = {"port": "?"}
    if not re.fullmatch("[0-9,]*", options.get("port", "")) or "@" in options.get("host", ""):
        raise InputError(
            f"the URL of the database cannot be read; {_EXPECTED_URL}, and in a password %40 for "
            "@, %2F for /, %3A for :"
        )
    return options


def _reason(error: psycopg.Error) -> str:
    """The first line of what the server or psycopg says."""
    reason = error.diag.message_primary or str(error) or type(error).__name__
    return reason.splitlines()[0].removeprefix("connection failed: ").strip()
