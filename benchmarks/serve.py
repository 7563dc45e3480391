"""Latency and throughput of the HTTP service under load, beside direct calls of the embedder.

    python benchmarks/serve.py [--size small] [--seconds 60] [--clients 64]

Starts `elmo serve` with random weights of a published size, or with the English model, and times
the first requests of a browser. Then it measures the capacity (clients that send their next request
as soon as they have a response) and sends requests at half, once and twice that rate, at random
times. A request is one English sentence; its latency counts from the moment it was due. A response
is counted by its status if it is complete. One that is cut short or is not a zip file is broken;
one without even a status is also lost. Prints a table, and one line of JSON at the end.
"""

import argparse
import asyncio
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np
import torch

import elmokit
from elmokit import formats
from elmokit.model.bilm import LanguageModel
from elmokit.pretraining.settings import PRESETS
from elmokit.server.client import Client
from embed import prose

EXAMPLES = Path(__file__).parents[1] / "examples" / "senses.json"
TEXTS = [text for texts in json.loads(EXAMPLES.read_text("utf-8")).values() for text in texts]
# The first requests of a browser: the page, and the contexts of a word in fifteen sentences.
PAGE = {"GET /": ("/", None), "POST /contexts": ("/contexts", {"word": "bank", "texts": TEXTS})}

COUNTED = ["200", "429", "503", "other", "broken", "lost"]
TIMEOUT_SECONDS = 120

SIZES = ("small", "medium", "original", "english")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="small", choices=SIZES)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each measurement")
    parser.add_argument("--clients", type=int, default=64, help="how many measure the capacity")
    options = parser.parse_args()
    sentences = prose(64)
    pretrained = pretrained_of(options.size)
    words = sum(map(len, sentences)) / len(sentences)
    direct = {
        count: call_directly(pretrained, sentences, count, options.seconds) for count in (1, 32)
    }
    for count, rate in direct.items():
        print(f"direct calls of {count:2} sentences: {rate:8.1f} sentences/s")
    with tempfile.TemporaryDirectory() as folder, serving(pretrained, Path(folder, "m")) as url:
        page = {name: time_request(url, *request) for name, request in PAGE.items()}
        check_bits(pretrained, sentences, url)
        load = Load(url, sentences)
        busy = asyncio.run(load.keep_busy(options.clients, options.seconds))
        capacity = busy["answered_per_second"]
        rows = [{"load": "clients", **busy}]
        for share in (0.5, 1.0, 2.0):
            measured = asyncio.run(load.send_at(share * capacity, options.seconds))
            rows.append({"load": share, **measured})
    for name, seconds in page.items():
        print(f"first {name}: {seconds:.3f} s")
    names = ["load", "sent", *COUNTED, "200/s", "of direct", "p50 ms", "p95 ms", "p99 ms"]
    print(" ".join(f"{name:>9}" for name in names))
    for row in rows:
        row["of_direct"] = row["answered_per_second"] / direct[32]
        counts = [row[name] for name in ("load", "sent", *COUNTED)]
        rates = [f"{row['answered_per_second']:.1f}", f"{row['of_direct']:.2f}"]
        times = [f"{row[name]:.1f}" for name in ("p50", "p95", "p99")]
        print(" ".join(f"{cell:>9}" for cell in (*counts, *rates, *times)))
    record = {"size": options.size, "words": words, "direct": direct, "page": page, "results": rows}
    print(json.dumps(record))


def pretrained_of(size: str) -> elmokit.Pretrained:
    """The English model, or one with random weights."""
    if size == "english":
        return elmokit.load().pretrained
    torch.manual_seed(0)
    return elmokit.Pretrained(LanguageModel(elmokit.BiLM(PRESETS[size].bilm(1))))


def call_directly(pretrained, sentences: list, count: int, seconds: float) -> float:
    """Sentences per second of an embedder whose word cache is warm."""
    model = elmokit.Embedder(pretrained)
    model.embed(sentences)
    calls = cycle([sentences[k : k + count] for k in range(0, len(sentences), count)])
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        done += len(model.embed(next(calls)))
    return done / (time.perf_counter() - started)


def check_bits(pretrained, sentences: list, url: str) -> None:
    """Fail unless the service returns the bits of the embedder."""
    for received, expected in zip(
        Client(url).embed(sentences), elmokit.Embedder(pretrained).embed(sentences), strict=True
    ):
        assert np.array_equal(received, expected), "the service's vectors differ"


@contextmanager
def serving(pretrained, folder: Path):
    """Run `elmo serve` in a process of its own; yields its URL."""
    formats.save(pretrained, folder)
    process = subprocess.Popen(
        [sys.executable, "-m", "elmokit.cli", "serve", "--model", folder, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url = process.stderr.readline().split()[2].rstrip(",")
        Client(url).wait_until_ready()
        yield url
    finally:
        process.terminate()
        process.wait()


def time_request(url: str, path: str, form: dict | None) -> float:
    """Seconds until a request like a browser's is answered."""
    body = None if form is None else json.dumps(form).encode()
    started = time.perf_counter()
    with urlopen(Request(url + path, body, {"Content-Type": "application/json"})) as answer:
        answer.read()
    return time.perf_counter() - started


class Load:
    """Requests of one sentence each, over persistent connections."""

    def __init__(self, url: str, sentences: list) -> None:
        self.address = urlsplit(url)
        self.requests = cycle([self._request(sentence) for sentence in sentences])
        self.idle_connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def keep_busy(self, clients: int, seconds: float) -> dict:
        """The responses when each client sends its next request as soon as it has a response."""
        started = time.perf_counter()
        end = started + seconds

        async def client() -> list:
            responses = []
            while (due := time.perf_counter()) < end:
                responses.append(await self._send(due))
            return responses

        by_client = await asyncio.gather(*(client() for _ in range(clients)))
        return self._summarize([response for own in by_client for response in own], started)

    async def send_at(self, rate: float, seconds: float) -> dict:
        """The responses when requests arrive at random times, `rate` per second on average."""
        generator = random.Random(0)
        started = due = time.perf_counter()
        end, tasks = due + seconds, []
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self._send(due)))
            due += generator.expovariate(rate)
        return self._summarize(await asyncio.gather(*tasks), started)

    async def _send(self, due: float) -> "Response":
        """The response to a request that was due then."""
        status, complete, request = None, False, next(self.requests)
        while self.idle_connections and status is None:  # the service may have closed one
            status, complete = await self._exchange(*self.idle_connections.pop(), request)
        if status is None:
            host, port = self.address.hostname, self.address.port
            try:
                made = await asyncio.open_connection(host, port, limit=2**20)
                status, complete = await self._exchange(*made, request)
            except OSError:
                pass
        return Response(status, complete, time.perf_counter() - due)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> tuple[int | None, bool]:
        """The status of a response, None if there is none, and whether it is complete."""
        writer.write(request)
        try:
            status, complete = await asyncio.wait_for(read_response(reader), TIMEOUT_SECONDS)
        except (OSError, asyncio.TimeoutError):
            status, complete = None, False
        if complete:
            self.idle_connections.append((reader, writer))
        else:
            writer.close()
        return status, complete

    def _summarize(self, responses: list["Response"], started: float) -> dict:
        for _, writer in self.idle_connections:
            writer.close()
        self.idle_connections.clear()  # the next measurement has another event loop
        return summarize(responses, time.perf_counter() - started)

    def _request(self, sentence: list[str]) -> bytes:
        body = json.dumps({"texts": [sentence]}).encode()
        return (
            b"POST /embed HTTP/1.1\r\nHost: x\r\nAccept: application/x-npz\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )


async def read_response(reader: asyncio.StreamReader) -> tuple[int | None, bool]:
    """The status of a response, None if there is none, and whether it is complete."""
    head = body = b""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if sized := re.search(rb"\r\ncontent-length: (\d+)", head.lower()):
            body = await reader.readexactly(int(sized[1]))
        else:
            while size := int(await reader.readuntil(b"\r\n"), 16):  # in chunks
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
    except asyncio.IncompleteReadError as error:
        status_line = re.match(rb"HTTP/1.1 (\d{3})", head or error.partial)
        return int(status_line[1]) if status_line else None, False
    status = int(head.split()[1])
    return status, status != 200 or zipfile.is_zipfile(io.BytesIO(body))


@dataclass(frozen=True)
class Response:
    """The status of a response, None if there is none; whether it is complete; its seconds."""

    status: int | None
    complete: bool
    seconds: float


def summarize(responses: list[Response], seconds: float) -> dict:
    """Counts by status, responses per second, and percentiles of their milliseconds."""
    complete = Counter(own.status for own in responses if own.complete)
    taken = [1000 * own.seconds for own in responses if own.complete and own.status == 200]
    p50, p95, p99 = np.percentile(taken or [np.nan], [50, 95, 99])
    return {
        "sent": len(responses),
        "200": complete[200], "429": complete[429], "503": complete[503],
        "other": sum(complete.values()) - complete[200] - complete[429] - complete[503],
        "broken": sum(not own.complete for own in responses),
        "lost": sum(own.status is None for own in responses),
        "answered_per_second": len(taken) / seconds,
        "p50": p50, "p95": p95, "p99": p99,
    }  # fmt: skip


if __name__ == "__main__":
    main()
