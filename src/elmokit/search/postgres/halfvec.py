"""Vectors become what pgvector keeps: numbers of two bytes."""

import struct
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types import TypeInfo

from elmokit.errors import InputError
from elmokit.pooling import Vectors

_LEAST_VERSION = (0, 8)  # the first that looks on in a graph until k are found

# Beyond so many numbers pgvector makes no graph.
MOST_NUMBERS = 4000


@dataclass(frozen=True, eq=False)
class Half:
    """A vector to be sent, (dim,)."""

    numbers: Vectors


def learn_halfvec(connection: "Connection[tuple[Any, ...]]", name: str) -> bool:
    """Teach a connection pgvector's type, if the database has it; whether it does."""
    found = connection.execute(
        "SELECT e.extversion, n.nspname FROM pg_extension e "
        "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    ).fetchone()
    if found is None:
        return False
    version, schema = found
    if tuple(map(int, version.split(".")[:2])) < _LEAST_VERSION:
        raise InputError(
            f"{name}: pgvector {version} is there, expected 0.8 or later; update the server's, "
            "then ALTER EXTENSION vector UPDATE"
        )
    connection.execute(
        "SELECT set_config('search_path', quote_ident(%s), false), "
        "set_config('hnsw.iterative_scan', 'strict_order', false)",
        (schema,),
    )
    info = TypeInfo.fetch(connection, "halfvec")
    assert info is not None
    info.register(connection)
    number = info.oid  # another one in each database

    class OwnDumper(_HalfDumper):
        oid = number

    connection.adapters.register_dumper(Half, OwnDumper)
    return True


class _HalfDumper(Dumper):
    """As halfvec_recv of pgvector reads it: how many, a zero, the numbers, the high byte first."""

    format = Format.BINARY

    def dump(self, obj: Half) -> bytes:
        """The bytes of a vector."""
        return struct.pack(">HH", len(obj.numbers), 0) + obj.numbers.astype(">f2").tobytes()
