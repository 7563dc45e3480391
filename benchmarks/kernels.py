"""Speed of the compiled layers: beside AllenNLP, torch's operations, and what memory gives.

    python benchmarks/kernels.py [--before FOLDER] [--sizes small english original]

Prints Markdown tables, and one line of JSON at the end. `--before` is a checkout of another
version of elmokit; without it, this version with torch's operations is compared. AllenNLP takes
part if it is installed, see README.md. Every contender is a process of its own, and they take turns
in each round, on the quiet machine and beside as many niced processes that spin as half the CPUs.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import torch

from elmokit import formats
from elmokit.compiled_code import vector_lanes
from elmokit.model.kernels import KernelStack
from elmokit.model.lstm import LSTMStack
from elmokit.server.client import Client
from embed import HERE, PEERS, count_tokens, gemm_peak, make_pretrained, prose, spinning

PRECISIONS = {"float32": 4, "half": 2, "int8": 1}  # bytes of a weight
SENTENCES_PER_CALL = (1, 4, 8, 32, 64)
SIZES = ("small", "english", "original")
OPERATIONS = {
    "sample": "`sample` of 50 words",
    "fill": "`fill`, one gap in a sentence",
    "next_words": "`next_words`",
    "encode": "`encode` of 50 sentences, one a call",
}
STREAMED_STEPS = 24
REQUESTS = 150

FIRST_VECTOR = """
import sys, time
started = time.perf_counter()
import elmokit, torch
imported = time.perf_counter()
model = elmokit.load(**dict(argument.split("=") for argument in sys.argv[1:]))
loaded = time.perf_counter()
model.embed([["I", "ate", "an", "apple"]])
print(imported - started, loaded - imported, time.perf_counter() - loaded)
"""
KERNEL = """
import sys, time
import torch
from elmokit.model.kernels import choose_kernel
started = time.perf_counter()
choose_kernel("numba", sys.argv[1], torch.empty(1))
print(time.perf_counter() - started)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=SIZES, choices=SIZES)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    parser.add_argument("--rounds", type=int, default=3, help="on the quiet machine")
    parser.add_argument("--busy-rounds", type=int, default=2)
    parser.add_argument(
        "--cpu-time", action="store_true",
        help="CPU time of one thread each, for a machine that has other work",
    )  # fmt: skip
    chosen = parser.parse_args()
    if chosen.cpu_time:
        os.environ.update(OMP_NUM_THREADS="1", BENCHMARK_CLOCK="process_time")
        torch.set_num_threads(1)
    sentences = prose(64)
    print(
        f"{len(sentences)} sentences, {count_tokens(sentences)} tokens; "
        f"{torch.get_num_threads()} threads, vectors of {vector_lanes()} numbers, "
        f"float32 product {gemm_peak() / 1e9:.0f} GFLOP/s, load {os.getloadavg()[0]:.1f}"
    )
    results: list[dict] = []
    for size in chosen.sizes:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            contenders = start_contenders(size, sentences, Path(folder), chosen.before, stack)
            rows = measure(size, contenders, sentences, chosen.rounds, chosen.busy_rounds)
            print_speeds(size, rows)
            results += rows
            if size == "english":
                asked = measure_english(contenders, chosen.rounds, chosen.busy_rounds)
                print_english(asked)
                results += asked
    results += [*measure_processes(chosen.before)]
    results += [*measure_streams(chosen.sizes)]
    print(json.dumps(results))


class Contender:
    """A package in a process of its own, with the same files and sentences."""

    def __init__(self, script: str, *arguments: str | Path, python: Path, version: Path) -> None:
        self._process = subprocess.Popen(
            [python, HERE / script, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(version),
        )  # fmt: skip
        self.first = self._answer()

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def seconds(self, *request: object) -> list[float]:
        """The seconds of passes."""
        assert self._process.stdin is not None
        print(*request, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self):
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def environment(version: Path) -> dict[str, str]:
    """That of a process which imports elmokit from a checkout."""
    return {**os.environ, "PYTHONPATH": str(version / "src")}


def start_contenders(
    size: str, sentences: list, folder: Path, before: Path | None, stack: ExitStack
) -> dict[str, Contender]:
    formats.save(make_pretrained(size), folder / "model", format="bilm-tf")
    files = [str(folder / "model" / name) for name in ("options.json", "weights.hdf5")]
    listed = folder / "sentences.json"
    listed.write_text(json.dumps(sentences), encoding="utf-8")
    here, python = HERE.parent, Path(sys.executable)
    with_english = "english" if size == "english" else ""
    versions = {"now": (here, "numba"), "before": (before or here, "" if before else "torch")}
    contenders = {
        name: Contender(
            "elmokit_peer.py", json.dumps(files), listed, kernel, with_english,
            python=python, version=version,
        )
        for name, (version, kernel) in versions.items()
    }  # fmt: skip
    if "allennlp" in PEERS:
        contenders["allennlp"] = Contender(
            "allennlp_peer.py", *files, listed, python=PEERS["allennlp"], version=here
        )
    for contender in contenders.values():
        stack.enter_context(contender)
    for precision, description in contenders["now"].first.items():
        print(
            f"{size} {precision}: worst cosine to float32 {description['cosine']:.7f}; alone, "
            f"a sentence has {'the same' if description['same_bits_alone'] else 'other'} bits"
        )
    return contenders


def measure(
    size: str, contenders: dict[str, Contender], sentences: list, rounds: int, busy_rounds: int
) -> list[dict]:
    """For each number of sentences and precision, tokens a second: the best of the quiet rounds
    and the median of the busy passes."""
    requests: dict[tuple[str, str, int], Callable[[int], list[float]]] = {}
    for count in SENTENCES_PER_CALL:
        if "allennlp" in contenders:
            run = partial(contenders["allennlp"].seconds, count)
            requests["allennlp", "float32", count] = run
        for name in ("now", "before"):
            for precision in PRECISIONS:
                run = partial(contenders[name].seconds, precision, count)
                requests[name, precision, count] = run
    tokens = {limit: count_tokens(sentences[:limit]) for limit in (4, 8, 16, 32, 64)}
    quiet: dict[tuple[str, str, int], float] = {}
    for _ in range(rounds):
        for key, run in requests.items():
            limit = max(key[2], 16)
            quiet[key] = max(quiet.get(key, 0.0), tokens[limit] / min(run(limit)))
    busy: dict[tuple[str, str, int], list[float]] = {}
    with spinning(max(1, (os.cpu_count() or 1) // 2)):
        for number_done in range(busy_rounds):
            for key, run in requests.items():
                name, _, count = key
                # AllenNLP's threads wait for each other then: a sentence may take seconds.
                if name == "now" or (name == "allennlp" and count in (1, 8) and not number_done):
                    limit = max(count, 16 if name == "now" else 4)
                    busy.setdefault(key, []).extend(tokens[limit] / s for s in run(limit))
    rows = []
    for count in SENTENCES_PER_CALL:
        for precision in PRECISIONS:
            now, before = ("now", precision, count), ("before", precision, count)
            peer = "allennlp", "float32", count
            rows.append({
                "size": size, "sentences": count, "precision": precision,
                "quiet": quiet[now], "before": quiet[before], "allennlp": quiet.get(peer),
                "busy": median(busy[now]) if now in busy else None,
                "allennlp_busy": median(busy[peer]) if peer in busy else None,
            })  # fmt: skip
    return rows


def print_speeds(size: str, rows: list[dict]) -> None:
    """Two tables: the quiet machine, with the factors to AllenNLP and to the speed before; and the
    busy one, with the factor to AllenNLP and the share of the quiet machine's time."""
    print("\n| model | sentences per call | AllenNLP | float32 | half | int8 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for cells in rows_by_count(rows):
        shown = [
            f"{row['quiet']:,.0f} ({factor(row['quiet'], row['allennlp'])}, "
            f"{factor(row['quiet'], row['before'])})"
            for row in cells
        ]
        print_row(size.capitalize(), cells[0]["sentences"], number(cells[0]["allennlp"]), *shown)
    if rows[0]["busy"] is None:
        return
    print("\n| model, busy | sentences per call | AllenNLP | float32 | half | int8 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for cells in rows_by_count(rows):
        shown = [
            f"{row['busy']:,.0f} ({factor(row['busy'], row['allennlp_busy'])}, "
            f"{row['quiet'] / row['busy']:.2f})"
            for row in cells
        ]
        peer = cells[0]["allennlp_busy"]
        print_row(size.capitalize(), cells[0]["sentences"], number(peer), *shown)
    sys.stdout.flush()


def rows_by_count(rows: list[dict]) -> Iterator[list[dict]]:
    for count in SENTENCES_PER_CALL:
        yield [row for row in rows if row["sentences"] == count]


def factor(ours: float, theirs: float | None) -> str:
    return "–" if theirs is None else f"{ours / theirs:.1f} ×"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |")


def measure_english(contenders: dict[str, Contender], rounds: int, busy_rounds: int) -> list[dict]:
    """Milliseconds of what the English language model is asked."""
    rows = []
    for operation in OPERATIONS:
        passes = [
            {name: contenders[name].seconds(operation) for name in ("now", "before")}
            for _ in range(rounds)
        ]
        busy: list[float] = []
        with spinning(max(1, (os.cpu_count() or 1) // 2)):
            for _ in range(busy_rounds):
                busy += contenders["now"].seconds(operation)
        best = {name: 1e3 * min(min(own[name]) for own in passes) for name in passes[0]}
        row = {"operation": operation, "quiet": best["now"], "before": best["before"]}
        rows.append({**row, "busy": 1e3 * median(busy) if busy else None})
    return rows


def print_english(rows: list[dict]) -> None:
    print("\n| English, milliseconds | before | now | × | busy | time × |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        quiet, busy = row["quiet"], row["busy"]
        print_row(
            OPERATIONS[row["operation"]], f"{row['before']:.1f}", f"{quiet:.1f}",
            factor(row["before"], quiet), number(busy), "–" if not busy else factor(busy, quiet),
        )  # fmt: skip
    sys.stdout.flush()


def measure_processes(before: Path | None) -> Iterator[dict]:
    """The first vector of a fresh process, what the kernel takes of it, and the service."""
    here = HERE.parent
    earlier = (before or here, [] if before else ["kernel=torch"])
    print("\n| fresh process, seconds | import | load | first vector | in all |")
    print("| --- | --- | --- | --- | --- |")
    runs = {"before, float32": (*earlier, "float32")} | {
        f"now, {precision}": (here, [], precision) for precision in PRECISIONS
    }
    for name, (version, options, precision) in runs.items():
        command = [sys.executable, "-c", FIRST_VECTOR, f"precision={precision}", *options]
        parts = min(
            (list(map(float, output_of(command, version).split())) for _ in range(4)), key=sum
        )
        print_row(name, *(f"{part:.2f}" for part in (*parts, sum(parts))))
        yield {"first_vector": name, "seconds": parts}

    print("\n| kernel, seconds | compiled, once | from the cache |")
    print("| --- | --- | --- |")
    for precision in PRECISIONS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", KERNEL, precision]
            times = [float(output_of(command, here, NUMBA_CACHE_DIR=folder)) for _ in range(4)]
        print_row(precision, f"{times[0]:.2f}", f"{min(times[1:]):.2f}")
        yield {"kernel": precision, "compiled": times[0], "from_cache": min(times[1:])}

    print("\n| service, one client, one sentence a request | p50, ms |")
    print("| --- | --- |")
    for name, (version, options) in {
        "before": (earlier[0], [] if before else ["--kernel", "torch"]),
        "now, torch's operations": (here, ["--kernel", "torch"]),
        "now": (here, ["--kernel", "numba"]),
        "now, int8": (here, ["--kernel", "numba", "--precision", "int8"]),
    }.items():
        with serving(version, options) as url:
            milliseconds = 1e3 * median(request_seconds(url))
        print_row(name, f"{milliseconds:.2f}")
        yield {"service": name, "p50": milliseconds}


def output_of(command: list[str], version: Path, **variables: str) -> str:
    done = subprocess.run(
        command, check=True, env=environment(version) | variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout


@contextmanager
def serving(version: Path, options: list[str]) -> Iterator[str]:
    """Run `elmo serve` with the English model; yields its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "elmokit.cli", "serve", "--port", "0", *options],
        stderr=subprocess.PIPE, text=True, env=environment(version),
    )  # fmt: skip
    try:
        assert process.stderr is not None
        url = next(word for line in process.stderr for word in line.split() if "://" in word)
        url = url.rstrip(",")
        Client(url).wait_until_ready()
        yield url
    finally:
        process.terminate()
        process.communicate()


def request_seconds(url: str) -> list[float]:
    """Of requests one after the other, on one connection, once the words are known."""
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port)
    headers = {"Content-Type": "application/json", "Accept": "application/x-npz"}
    sentences = prose(64)[:16]
    seconds = []
    for number_sent, sentence in zip(range(REQUESTS + 32), cycle(sentences), strict=False):
        started = time.perf_counter()
        connection.request("POST", "/embed", json.dumps({"texts": [sentence]}), headers)
        response = connection.getresponse()
        body = response.read()
        if number_sent >= 32:
            seconds.append(time.perf_counter() - started)
        assert response.status == 200, body
    connection.close()
    return seconds


def measure_streams(sizes: list[str]) -> Iterator[dict]:
    """How fast one thread reads the weights, and `memchr` the same number of bytes."""
    torch.set_num_threads(1)
    print("\n| a layer, one sentence, one thread | µs a step | GB/s | stream, GB/s | share |")
    print("| --- | --- | --- | --- | --- |")
    with torch.no_grad():
        for size in sizes:
            config = make_pretrained(size).model.bilm.config
            stack = LSTMStack(config)
            for precision in PRECISIONS:
                yield measure_stream(size, stack, precision)


def measure_stream(size: str, stack: LSTMStack, precision: str) -> dict:
    packed = stack.pack(precision, "numba")
    assert isinstance(packed, KernelStack)
    weight, projection = stack.layers[0].recurrent_weight, stack.layers[0].projection
    recurrent = weight.numel() * PRECISIONS[precision]
    projected = 0 if projection is None else projection.numel() * PRECISIONS[precision]
    # Weights of the inputs, as large as the recurrent ones, are read once for all steps.
    num_bytes = STREAMED_STEPS * (recurrent + projected) + recurrent
    dim, cell_size = weight.shape[1], len(weight) // 4
    inputs = torch.randn(STREAMED_STEPS, dim)
    states = torch.zeros(1, 1, dim), torch.zeros(1, 1, cell_size)
    contenders = {
        "kernel": partial(packed.run, inputs, [1] * STREAMED_STEPS, *states, 1),
        "stream": stream(recurrent + projected),
    }
    best = fastest(contenders)
    reached = num_bytes / best["kernel"] / 1e9
    possible = STREAMED_STEPS * (recurrent + projected) / best["stream"] / 1e9
    step = best["kernel"] / STREAMED_STEPS * 1e6
    print_row(
        f"{size.capitalize()}, {precision}", f"{step:.1f}", f"{reached:.0f}", f"{possible:.0f}",
        f"{reached / possible:.2f}",
    )  # fmt: skip
    return {"size": size, "precision": precision, "step": step, "read": reached, "stream": possible}


def stream(num_bytes: int) -> Callable[[], None]:
    """A function that reads so many bytes as often as a sentence reads its weights."""
    memchr = ctypes.CDLL(None).memchr
    memchr.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    memory = torch.zeros(num_bytes, dtype=torch.uint8)

    def read() -> None:
        for _ in range(STREAMED_STEPS):
            memchr(memory.data_ptr(), 1, num_bytes)

    return read


def fastest(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least CPU seconds of each; they take turns."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(4):
        for name, run in contenders.items():
            end = time.perf_counter() + 0.2
            while True:
                started = time.thread_time()
                run()
                best[name] = min(best[name], time.thread_time() - started)
                if time.perf_counter() > end:
                    break
    return best


if __name__ == "__main__":
    main()
