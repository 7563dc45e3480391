"""A complete response counts by its status, any other as broken or lost."""

import asyncio
import io
import zipfile
from itertools import cycle

import pytest

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def serve(script):
    return script("serve")


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("0.npy", b"numbers")
    return file.getvalue()


def answer(status, body, *, chunked=False):
    if chunked:
        head, body = b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        head = b"Content-Length: %d" % len(body)
    return b"HTTP/1.1 %d X\r\n%b\r\n\r\n%b" % (status, head, body)


GOOD, PARTS = answer(200, zipped()), answer(200, zipped(), chunked=True)


@pytest.mark.parametrize(
    ("content", "status", "complete"),
    [
        (GOOD, 200, True),
        (PARTS, 200, True),
        (answer(429, b"{}"), 429, True),
        (GOOD[:-1], 200, False),
        (PARTS[:-5], 200, False),  # the last chunk, which is empty
        (PARTS[:60], 200, False),
        (answer(200, b""), 200, False),
        (answer(200, zipped()[:-30]), 200, False),
        (answer(429, b"{}")[:-1], 429, False),
        (b"HTTP/1.1 200", 200, False),
        (b"HT", None, False),
        (b"", None, False),
    ],
)
def test_an_incomplete_response_is_broken(serve, content, status, complete):
    async def hear():
        reader = asyncio.StreamReader()
        reader.feed_data(content)
        reader.feed_eof()
        return await serve.read_response(reader)

    assert asyncio.run(hear()) == (status, complete)


def test_every_request_is_counted_once_whatever_its_response(serve):
    content = [
        GOOD,
        PARTS,
        answer(429, b"{}"),
        answer(503, b"{}"),
        GOOD[:-1],
        b"",
        answer(500, b"{}"),
    ]

    async def send_all():
        replies = cycle(content)

        async def connected(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(next(replies))
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            load = serve.Load(f"http://127.0.0.1:{port}", [["a"]])
            answers = [await load._send(0.0) for _ in content]
        return [*answers, await load._send(0.0)]  # and one when nobody is there any more

    summary = serve.summarize(asyncio.run(send_all()), 2.0)
    counted = {name: summary[name] for name in ("sent", *serve.COUNTED)}
    assert counted == {
        "sent": 8, "200": 2, "429": 1, "503": 1, "other": 1, "broken": 3, "lost": 2,
    }  # fmt: skip
    assert summary["answered_per_second"] == 1
    assert serve.summarize([], 1.0)["sent"] == 0
