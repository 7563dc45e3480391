"""A service under load becomes latencies and throughput, beside the embedder called directly.

    python benchmarks/serve.py [--size small] [--seconds 60] [--clients 64]

It starts `elmo serve` with random weights of a published size, or with the English model that
ships, and times the page and its first question. Then it finds what the service answers when so
many clients never rest (its capacity), and sends requests at half, once and twice that rate,
whether they are answered or not. A request is one English sentence; its latency counts from the
moment it was due. An answer counts by its status when it is whole; one that is cut short or is no
zip is broken, and one without even a status is lost too. A table for people, one JSON line last
for machines.
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
from elmokit.config import SIZES
from elmokit.model.bilm import LanguageModel
from elmokit.server.client import Client
from embed import prose

EXAMPLES = Path(__file__).parents[1] / "examples" / "senses.json"
TEXTS = [text for texts in json.loads(EXAMPLES.read_text("utf-8")).values() for text in texts]
# What a browser asks for first: the page, and the uses of a word in fifteen sentences.
PAGE = {"GET /": ("/", None), "POST /contexts": ("/contexts", {"word": "bank", "texts": TEXTS})}

COUNTED = ["200", "429", "503", "other", "broken", "lost"]
PATIENCE = 120  # seconds after which an answer is not waited for any more


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="small", choices=[*SIZES, "english"])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=64, help="that never rest")
    chosen = parser.parse_args()
    sentences = prose(64)
    pretrained = pretrained_of(chosen.size)
    words = sum(map(len, sentences)) / len(sentences)
    direct = {
        count: call_directly(pretrained, sentences, count, chosen.seconds) for count in (1, 32)
    }
    for count, rate in direct.items():
        print(f"directly, {count:2} sentences a call: {rate:8.1f} sentences/s")
    with tempfile.TemporaryDirectory() as folder, serving(pretrained, Path(folder, "m")) as url:
        page = {name: time_answer(url, *asked) for name, asked in PAGE.items()}
        check_bits(pretrained, sentences, url)
        load = Load(url, sentences)
        busy = asyncio.run(load.keep_busy(chosen.clients, chosen.seconds))
        capacity = busy["answered_per_second"]
        rows = [{"load": "clients", **busy}]
        for share in (0.5, 1.0, 2.0):
            found = asyncio.run(load.send_at(share * capacity, chosen.seconds))
            rows.append({"load": share, **found})
    for name, seconds in page.items():
        print(f"{name}, the first after the service was ready: {seconds:.3f} s")
    names = ["load", "asked", *COUNTED, "200/s", "of direct", "p50 ms", "p95 ms", "p99 ms"]
    print(" ".join(f"{name:>9}" for name in names))
    for row in rows:
        row["of_direct"] = row["answered_per_second"] / direct[32]
        counts = [row[name] for name in ("load", "asked", *COUNTED)]
        rates = [f"{row['answered_per_second']:.1f}", f"{row['of_direct']:.2f}"]
        times = [f"{row[name]:.1f}" for name in ("p50", "p95", "p99")]
        print(" ".join(f"{told:>9}" for told in (*counts, *rates, *times)))
    told = {"size": chosen.size, "words": words, "direct": direct, "page": page, "results": rows}
    print(json.dumps(told))


def pretrained_of(size: str) -> elmokit.Pretrained:
    """A model of that size."""
    if size == "english":
        return elmokit.load().pretrained
    torch.manual_seed(0)
    return elmokit.Pretrained(LanguageModel(elmokit.BiLM(SIZES[size])))


def call_directly(pretrained, sentences: list, count: int, seconds: float) -> float:
    """Sentences a second of an embedder that has met the words."""
    model = elmokit.Embedder(pretrained)
    model.embed(sentences)
    calls = cycle([sentences[k : k + count] for k in range(0, len(sentences), count)])
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        done += len(model.embed(next(calls)))
    return done / (time.perf_counter() - started)


def check_bits(pretrained, sentences: list, url: str) -> None:
    """Stop if the service's vectors are not the embedder's."""
    for found, expected in zip(
        Client(url).embed(sentences), elmokit.Embedder(pretrained).embed(sentences), strict=True
    ):
        assert np.array_equal(found, expected), "the service's vectors differ"


@contextmanager
def serving(pretrained, folder: Path):
    """The address of `elmo serve` in a process of its own."""
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


def time_answer(url: str, path: str, form: dict | None) -> float:
    """Seconds until a question to a service is answered, as a browser asks it."""
    body = None if form is None else json.dumps(form).encode()
    started = time.perf_counter()
    with urlopen(Request(url + path, body, {"Content-Type": "application/json"})) as answer:
        answer.read()
    return time.perf_counter() - started


class Load:
    """Requests of one sentence each to a service, over connections that are kept."""

    def __init__(self, url: str, sentences: list) -> None:
        self.address = urlsplit(url)
        self.requests = cycle([self._request(sentence) for sentence in sentences])
        self.kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def keep_busy(self, clients: int, seconds: float) -> dict:
        """What is answered when each client asks again as soon as it is answered."""
        started = time.perf_counter()
        end = started + seconds

        async def client() -> list:
            found = []
            while (due := time.perf_counter()) < end:
                found.append(await self._ask(due))
            return found

        answers = await asyncio.gather(*(client() for _ in range(clients)))
        return self._ended([answer for some in answers for answer in some], started)

    async def send_at(self, rate: float, seconds: float) -> dict:
        """What is answered when requests arrive at random, so many a second on average."""
        draw = random.Random(0)
        started = due = time.perf_counter()
        end, tasks = due + seconds, []
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self._ask(due)))
            due += draw.expovariate(rate)
        return self._ended(await asyncio.gather(*tasks), started)

    async def _ask(self, due: float) -> "Answer":
        """What a request that was due then has brought."""
        status, whole, request = None, False, next(self.requests)
        while self.kept and status is None:  # one that is kept may have been closed since
            status, whole = await self._exchange(*self.kept.pop(), request)
        if status is None:
            host, port = self.address.hostname, self.address.port
            try:
                made = await asyncio.open_connection(host, port, limit=2**20)
                status, whole = await self._exchange(*made, request)
            except OSError:
                pass
        return Answer(status, whole, time.perf_counter() - due)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> tuple[int | None, bool]:
        """The status of an answer, if one came, and whether it is whole."""
        writer.write(request)
        try:
            status, whole = await asyncio.wait_for(heard(reader), PATIENCE)
        except (OSError, asyncio.TimeoutError):
            status, whole = None, False
        if whole:
            self.kept.append((reader, writer))
        else:
            writer.close()
        return status, whole

    def _ended(self, answers: list["Answer"], started: float) -> dict:
        for _, writer in self.kept:
            writer.close()
        self.kept.clear()  # another measurement has another loop
        return summary(answers, time.perf_counter() - started)

    def _request(self, sentence: list[str]) -> bytes:
        body = json.dumps({"texts": [sentence]}).encode()
        return (
            b"POST /embed HTTP/1.1\r\nHost: x\r\nAccept: application/x-npz\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )


async def heard(reader: asyncio.StreamReader) -> tuple[int | None, bool]:
    """The status of an answer, if one came, and whether it is whole: a good one is a zip."""
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
        begun = re.match(rb"HTTP/1.1 (\d{3})", head or error.partial)
        return int(begun[1]) if begun else None, False
    status = int(head.split()[1])
    return status, status != 200 or zipfile.is_zipfile(io.BytesIO(body))


@dataclass(frozen=True)
class Answer:
    """The status of an answer, None where there is none; whether it is whole; and its seconds."""

    status: int | None
    whole: bool
    seconds: float


def summary(answers: list[Answer], seconds: float) -> dict:
    """Counts, a rate, and percentiles of the milliseconds that good answers took."""
    whole = Counter(answer.status for answer in answers if answer.whole)
    taken = [a.seconds * 1000 for a in answers if a.whole and a.status == 200]
    p50, p95, p99 = np.percentile(taken or [np.nan], [50, 95, 99])
    return {
        "asked": len(answers),
        "200": whole[200], "429": whole[429], "503": whole[503],
        "other": sum(whole.values()) - whole[200] - whole[429] - whole[503],
        "broken": sum(not answer.whole for answer in answers),
        "lost": sum(answer.status is None for answer in answers),
        "answered_per_second": len(taken) / seconds,
        "p50": p50, "p95": p95, "p99": p99,
    }  # fmt: skip


if __name__ == "__main__":
    main()
