"""A service under load becomes latencies and throughput, beside the embedder called directly.

    python benchmarks/serve.py [--size small] [--seconds 10] [--clients 32]

It starts `elmo serve` with random weights of a published size, or with the English model that
ships, finds what it answers when so many
clients never rest (its capacity), then sends requests at half, once and twice that rate, whether
they are answered or not. A request is one English sentence; its latency counts from the moment it
was due. A table for people, one JSON line last for machines.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import torch

import elmokit
from elmokit import formats
from elmokit.config import SIZES
from elmokit.model.language_model import LanguageModel
from elmokit.server.client import Client
from embed import prose


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="small", choices=[*SIZES, "english"])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=32, help="that never rest")
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
        check_bits(pretrained, sentences, url)
        load = Load(url, sentences)
        busy = asyncio.run(load.keep_busy(chosen.clients, chosen.seconds))
        capacity = busy["answered_per_second"]
        rows = [{"load": "clients", **busy}]
        for share in (0.5, 1.0, 2.0):
            found = asyncio.run(load.send_at(share * capacity, chosen.seconds))
            rows.append({"load": share, **found})
    print(f"{'load':>8} {'asked/s':>8} {'answered/s':>10} {'of direct':>9} ", end="")
    print(f"{'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8}  statuses")
    for row in rows:
        row["of_direct"] = row["answered_per_second"] / direct[32]
        print(
            f"{row['load']:>8} {row['asked_per_second']:8.1f} {row['answered_per_second']:10.1f} "
            f"{row['of_direct']:9.2f} {row['p50']:8.1f} {row['p95']:8.1f} {row['p99']:8.1f}  "
            f"{row['statuses']}"
        )
    print(json.dumps({"size": chosen.size, "words": words, "direct": direct, "results": rows}))


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
    """Stop if the service's vectors are not the embedder's; the service then knows the words."""
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


class Load:
    """Requests of one sentence each to a service."""

    def __init__(self, url: str, sentences: list) -> None:
        self.address = urlsplit(url)
        self.requests = cycle([self._request(sentence) for sentence in sentences])

    async def keep_busy(self, clients: int, seconds: float) -> dict:
        """What is answered when each client asks again as soon as it is answered."""
        end = time.perf_counter() + seconds

        async def client() -> list:
            found = []
            while (due := time.perf_counter()) < end:
                found.append(await self._ask(due))
            return found

        answers = await asyncio.gather(*(client() for _ in range(clients)))
        return summary([answer for some in answers for answer in some], seconds)

    async def send_at(self, rate: float, seconds: float) -> dict:
        """What is answered when requests arrive at random, so many a second on average."""
        draw = random.Random(0)
        due = time.perf_counter()
        end, tasks = due + seconds, []
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self._ask(due)))
            due += draw.expovariate(rate)
        return summary(await asyncio.gather(*tasks), seconds)

    async def _ask(self, due: float) -> tuple[int, float]:
        """The status, and the seconds since the request was due."""
        reader, writer = await asyncio.open_connection(self.address.hostname, self.address.port)
        writer.write(next(self.requests))
        answer = await reader.read(-1)
        writer.close()
        return int(answer.split(b" ", 2)[1]), time.perf_counter() - due

    def _request(self, sentence: list[str]) -> bytes:
        body = json.dumps({"texts": [sentence]}).encode()
        return (
            b"POST /embed HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: application/x-npz\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )


def summary(answers: list[tuple[int, float]], seconds: float) -> dict:
    """Rates, and percentiles of the milliseconds that good answers took."""
    taken = [took * 1000 for status, took in answers if status == 200]
    p50, p95, p99 = np.percentile(taken, [50, 95, 99])
    return {
        "asked_per_second": len(answers) / seconds,
        "answered_per_second": len(taken) / seconds,
        "p50": p50, "p95": p95, "p99": p99,
        "statuses": dict(Counter(status for status, _ in answers)),
    }  # fmt: skip


if __name__ == "__main__":
    main()
