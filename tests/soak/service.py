"""The service at its capacity among clients that misbehave: python tests/soak/service.py

`elmo serve` runs with a tiny model in two processes. Clients send their next request as soon as
they have a response. Meanwhile others go away before their response, send or receive slowly, and
send what is no request; every minute a process of the service is killed. A request is lost if no
complete response with a status comes within a minute. Memory is that of all processes of the
service. It is flat if the last quarter of the time needs at most a tenth more than the second one.
Exits with 1 if a request was lost, a status was 500, or memory was not flat.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS)]

ANSWER_SECONDS = 60
GROWTH = 1.1  # of memory that counts as flat
TOKEN = "a-token-of-the-soak"
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "red", "blue", "unheard-of", "."]


class Clients:
    """All clients of a service, and what they were answered."""

    def __init__(self, url, seed):
        self._host, port = re.fullmatch(r"http://([\d.]+):(\d+)", url).groups()
        self._port = int(port)
        self._random = random.Random(seed)
        self.statuses, self.misbehaved, self.seconds = Counter(), Counter(), []
        self.lost = []

    def request(self):
        """The bytes of a valid request."""
        count = self._random.choice([1, 1, 2, 8])
        texts = [
            " ".join(self._random.choices(WORDS, k=self._random.randrange(1, 30)))
            for _ in range(count)
        ]
        path = self._random.choice(["/encode", "/encode", "/embed", "/score"])
        body = json.dumps({"texts": texts}).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + body

    async def ask(self):
        """Send requests, each when the last one was answered."""
        while True:
            started = time.perf_counter()
            status, reason = 0, "no answer in time"
            try:
                status, reason = await asyncio.wait_for(self._answer(), ANSWER_SECONDS)
            except asyncio.TimeoutError:  # in Python 3.10 not the built-in one
                pass
            except OSError as error:
                reason = repr(error)
            if status == 0:
                self.lost.append(f"{reason} after {time.perf_counter() - started:.2f} s")
            self.statuses[status] += 1
            if status == 200:
                self.seconds.append(time.perf_counter() - started)
            elif status:
                await asyncio.sleep(self._random.uniform(0.1, 0.5))

    async def _answer(self):
        """The status of a complete response, 0 if it is not one."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(self.request())
            with suppress(OSError):  # refused before it was read: the answer says why
                await writer.drain()
            said = await reader.read(-1)
        finally:
            writer.close()
        head, end, body = said.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if not end:
            return 0, f"closed after {len(said)} bytes"
        if length is not None and len(body) != int(length[1]):
            return 0, f"{len(body)} bytes of {int(length[1])}"
        if length is None and not body.endswith(b"0\r\n\r\n"):
            return 0, "a response without an end"
        return int(head.split()[1]), ""

    async def vanish(self):
        """Send a request or a part of it, and go away."""
        while True:
            await asyncio.sleep(self._random.uniform(0, 0.1))
            sent = self.request()
            if self._random.random() < 0.5:
                sent = sent[: self._random.randrange(len(sent))]
            await self._misbehave("vanished", self._send(sent, self._random.uniform(0, 0.02)))

    async def garble(self):
        """Send what is no request."""
        while True:
            await asyncio.sleep(self._random.uniform(0, 0.2))
            sent = bytearray(self.request())
            kind = self._random.randrange(4)
            if kind == 0:
                sent = self._random.randbytes(self._random.randrange(2000))
            elif kind == 1:
                for _ in range(8):
                    sent[self._random.randrange(len(sent))] = self._random.randrange(256)
            elif kind == 2:
                sent = b"GET / HTTP/1.1\r\n" + b"X-Header: y\r\n" * 5000
            else:
                sent = bytes(sent).replace(b"Content-Length: ", b"Content-Length: -")
            await self._misbehave("garbage", self._send(bytes(sent), 0.2))

    async def dawdle(self):
        """Send a request byte by byte, or receive a response slowly."""
        while True:
            await self._misbehave("slow", self._dawdle())

    async def _dawdle(self):
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=100)
        try:
            sent = self.request()
            if self._random.random() < 0.5:
                for byte in sent:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.1)
            else:
                writer.write(sent)
            while await reader.read(64):
                await asyncio.sleep(0.05)
        finally:
            writer.close()

    async def _send(self, content, seconds):
        _, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(content)
            await writer.drain()
            await asyncio.sleep(seconds)
        finally:
            writer.transport.abort() if self._random.random() < 0.5 else writer.close()

    async def _misbehave(self, kind, doing):
        self.misbehaved[kind] += 1
        with suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(doing, ANSWER_SECONDS)


async def watch(service, every, killed, memory):
    """Kill a worker every so often, and measure memory."""
    chosen, last = random.Random(0), time.monotonic()
    while True:
        await asyncio.sleep(2)
        memory.append(sum(map(used_bytes, [service.pid, *descendants(service.pid)])))
        if time.monotonic() - last < every:
            continue
        last = time.monotonic()
        workers = [pid for root in children(service.pid) for pid in children(root)]
        for pid in chosen.sample(workers, min(len(workers), chosen.choice([1, 1, 1, 2]))):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)


def children(pid):
    """The processes that a process has started."""
    try:
        threads = [*Path(f"/proc/{pid}/task").iterdir()]
        return [int(n) for t in threads for n in (t / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid):
    """The processes that a process has started, and those that they have."""
    return [number for child in children(pid) for number in (child, *descendants(child))]


def used_bytes(pid):
    """The memory of a process; what several share is divided among them."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"(?m)^Pss: +(\d+) kB", text)
    return 1024 * int(found[1]) if found else 0


async def soak(service, url, *, seconds, every, clients, seed):
    """The results of so many seconds."""
    crowd = Clients(url, seed)
    killed, memory = [], []
    started = time.monotonic()
    work = [crowd.ask() for _ in range(clients)]
    work += [crowd.vanish() for _ in range(3)] + [crowd.garble() for _ in range(2)]
    work += [crowd.dawdle() for _ in range(8)] + [watch(service, every, killed, memory)]
    tasks = [asyncio.create_task(job) for job in work]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    took = round(time.monotonic() - started)
    pending = {*tasks}
    while pending:  # before Python 3.12, wait_for may lose a cancellation
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    for task in done:
        task.result()  # a failure of this program
    quarter = max(1, len(memory) // 4)
    early = statistics.median(memory[quarter : 2 * quarter])
    late = statistics.median(memory[-quarter:])
    times = sorted(crowd.seconds)
    return {
        "seconds": took,
        "requests": sum(crowd.statuses.values()),
        "statuses": dict(sorted(crowd.statuses.items())),
        "lost": len(crowd.lost),
        "lost_reasons": crowd.lost[:5],
        "misbehaved": dict(crowd.misbehaved),
        "killed": len(killed),
        "p50_ms": round(1000 * times[len(times) // 2], 1),
        "p99_ms": round(1000 * times[int(0.99 * len(times))], 1),
        "memory_mb": [round(early / 2**20, 1), round(late / 2**20, 1)],
        "is_flat": late < GROWTH * early,
    }


def main():
    """Start the service, run all clients, print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kill-every", type=float, default=60.0, help="seconds")
    parser.add_argument("--clients", type=int, default=24, help="that behave")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    from random_models import make_folder

    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "log.txt"), "w+") as log:
        model = Path(folder, "model")
        model.mkdir()
        make_folder(model, softmax_words=9)
        service = subprocess.Popen(
            [
                sys.executable, "-m", "elmokit", "serve", "--model", str(model), "--port", "0",
                "--processes", "2", "--timeout-seconds", "15", "--max-queued", "16",
            ],
            stderr=log, env={**os.environ, "ELMOKIT_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            url = _wait_until_ready(service, Path(folder, "log.txt"))
            result = asyncio.run(
                soak(
                    service, url, seconds=60 * given.minutes, every=given.kill_every,
                    clients=given.clients, seed=given.seed,
                )
            )  # fmt: skip
            alive = service.poll() is None
            service.terminate()
            code = service.wait(60)
        finally:
            service.kill()
            service.wait()
        said = Path(folder, "log.txt").read_text()
    answered = result["statuses"]
    result["date"] = time.strftime("%Y-%m-%d")
    result["token_in_log"] = TOKEN in said
    for name, value in result.items():
        print(f"{name:16} {value}")
    print(json.dumps(result))
    wrong = result["lost"] or 500 in answered or not result["is_flat"] or not alive or code
    if wrong or result["token_in_log"]:
        print(said[-3000:])
        sys.exit(1)


def _wait_until_ready(service, log):
    until = time.monotonic() + 600
    while "ready" not in log.read_text():
        if service.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the service did not start: {log.read_text()[-2000:]}")
        time.sleep(0.1)
    return re.search(r"listening at (http://[\d.]+:\d+)", log.read_text())[1]


if __name__ == "__main__":
    main()
