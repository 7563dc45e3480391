"""The bytes of a connection become requests; one on which nothing happens is dropped."""

import asyncio
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol


def punctual(seconds: float) -> type[H11Protocol]:
    """The protocol of connections that are looked after: uvicorn would keep idle ones for ever.

    They are looked at when they begin and every so many seconds. One that is between two requests
    and has brought no head of another, nor taken a byte of what is left of an answer, since the
    last look, is dropped.
    """

    class Punctual(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            _send_at_once(transport)
            self._look(None)

        def connection_lost(self, exc: Exception | None) -> None:
            self._looking.cancel()
            super().connection_lost(exc)

        def _look(self, last: object) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            busy = answering and not self.transport.is_closing()
            now = (self.cycle, busy, self.transport.get_write_buffer_size())
            if now == last and not busy:
                self.transport.abort()
            else:
                self._looking = self.loop.call_later(seconds, self._look, now)

    return Punctual


def _send_at_once(transport: asyncio.Transport) -> None:
    """Keep the kernel from holding an answer's last bytes back, 40 ms or so, to send more at once.

    asyncio asks for this by itself, but not of sockets that `socket.create_server` made.
    """
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
