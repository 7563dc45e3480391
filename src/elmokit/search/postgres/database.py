"""An address becomes a database that is asked: a connection that broke is made anew."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection, errors
from psycopg.sql import SQL, Composed, Identifier, Literal

from elmokit.errors import FormatError, InputError, ServiceError
from elmokit.search.postgres.address import Address
from elmokit.search.postgres.halfvec import learn_halfvec

if TYPE_CHECKING:
    from typing_extensions import LiteralString

Rows = list[tuple[Any, ...]]


class Database:
    """The schema of an index in a database: a connection, made when it is needed.

    In questions `{s}` is the schema. What cannot be asked now is a ServiceError, as of any service;
    asked later, it may be answered.
    """

    def __init__(self, address: Address) -> None:
        self.address, self.name, self.schema = address, address.name, address.schema
        self._connection: Connection[tuple[Any, ...]] | None = None
        self._changing = False

    def ask(self, question: "LiteralString", **values: object) -> Rows:
        """The rows of an answer. Where the connection broke meanwhile, a new one is asked."""
        with self.explained():
            known = self._connection
            try:
                return self.connection().execute(self.sql(question), values).fetchall()
            except psycopg.OperationalError:
                if self._changing or known is None or not known.closed:
                    raise
            return self.connection().execute(self.sql(question), values).fetchall()

    def do(self, order: "LiteralString", *, numbers: int = 0, **values: object) -> None:
        """Carry out an order, in which `{n}` is the number."""
        with self.explained():
            self.connection().execute(self.sql(order, numbers), values or None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is done until the block ends is kept when it ends well, and nothing otherwise."""
        self.ask("SELECT 1")  # a connection that broke is made again here, not in the midst
        with self.explained(), self.connection().transaction():
            self._changing = True
            try:
                yield
            finally:
                self._changing = False

    def connection(self) -> "Connection[tuple[Any, ...]]":
        """A connection; within a transaction, its own."""
        if self._connection is None or (self._connection.closed and not self._changing):
            self._connection = _connect(self.address)
        return self._connection

    def sql(self, question: "LiteralString", number: int = 0) -> Composed:
        """A question or an order with the schema's name in it."""
        return SQL(question).format(s=Identifier(self.schema), n=Literal(number))

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """What goes wrong with a database, as a sentence."""
        try:
            yield
        except psycopg.OperationalError as error:
            raise ServiceError(
                f"{self.name}: the database does not answer ({_reason(error)}); ask again when it "
                "does",
                status=503,
                retry_after=1,
            ) from None
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            raise FormatError(
                f"{self.name}: the index is not there any more; build it again"
            ) from None
        except psycopg.Error as error:
            raise InputError(f"{self.name}: PostgreSQL refuses it ({_reason(error)})") from None


def _connect(address: Address) -> "Connection[tuple[Any, ...]]":
    # Nothing is prepared: each question is planned for its own values.
    connection = psycopg.connect(address.conninfo, autocommit=True, prepare_threshold=None)
    try:
        learn_halfvec(connection, address.name)
    except BaseException:
        connection.close()
        raise
    return connection


def _reason(error: psycopg.Error) -> str:
    """The first line of what the server or the driver says."""
    said = error.diag.message_primary or str(error) or type(error).__name__
    return said.splitlines()[0].removeprefix("connection failed: ").strip()
