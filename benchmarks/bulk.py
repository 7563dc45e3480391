"""Embed a corpus into a folder of shards: how fast, and what is there after kills.

    python benchmarks/bulk.py throughput            # 1 and 2 local processes, and 2 Ray actors
    python benchmarks/bulk.py kills --engine ray    # the driver and a worker killed ten times
    python benchmarks/bulk.py million               # 1,000,000 sentences to the end
    python benchmarks/bulk.py stream                # a Ray Dataset larger than the object store

The text is English Wikipedia, a sentence on each line; --text names another file of paragraphs.
Each run is `elmo embed` in a process of its own. Prints a table, and one line of JSON.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import elmokit
from elmokit.bulk import open_shards, row_vectors
from elmokit.bulk.shards import ShardFolder
from elmokit.files import TextFile, read_lines
from elmokit.formats import Pretrained
from elmokit.model.bilm import BiLM, LanguageModel
from two_million import TEXT, split_sentences

LARGEST_DIFFERENCE = 2e-6
OBJECT_STORE_BYTES = 100_000_000
# Of a random model, whose speed is that of reading and writing.
TINY = elmokit.BiLMConfig(
    projection_size=16,
    cell_size=32,
    num_layers=2,
    characters=elmokit.CharacterConfig(
        max_characters=50, embedding_size=4, filters=((1, 8), (2, 16), (3, 16)), highway_layers=1
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("command", choices=["throughput", "kills", "million", "stream"])
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--sentences", type=int, help="how many there are")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--model", help="a model's name or folder; for million, a random tiny one")
    parser.add_argument("--text", default=str(TEXT), help="paragraphs, one on each line")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = {"throughput": throughput, "kills": kills, "million": million, "stream": stream}
        results = commands[args.command](args, Path(folder))
    print(json.dumps({"command": args.command, **results}))


def throughput(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Words per second of each engine, from its first shard to its last."""
    corpus, words = write_corpus(folder, args.text, args.sentences or 24_000)
    options = ["--layers", "mean", "--pooling", "mean", "--rows-per-shard", "500"]
    options += ["--model", args.model] if args.model else []
    results: dict[str, Any] = {"sentences": count_rows(corpus), "words": words}
    print("| engine | words/s | of one process | whole command, s | peak memory, MB |")
    print("| --- | --- | --- | --- | --- |")
    runs = [("local", 1, []), ("local", 2, []), ("ray", 2, [])]
    for engine, workers, more in runs:
        out = folder / f"{engine}-{workers}"
        run = Run(corpus, out, [*options, *more, "--workers", str(workers)], engine, workers)
        started = time.monotonic()
        with measuring_memory(run.process.pid) as memory:
            run.wait()
        seconds = time.monotonic() - started
        speed = words_per_second(out)
        name = f"{engine}, {workers}"
        results[name] = {"words_per_second": speed, "seconds": seconds, "memory": memory.peak}
        ratio = speed / results["local, 1"]["words_per_second"]
        print(f"| {name} | {speed:,.0f} | {ratio:.2f} | {seconds:.1f} | {memory.peak / 1e6:,.0f} |")
    return results


def kills(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill the driver and one of its workers in turn, until the run has ended by itself."""
    corpus, words = write_corpus(folder, args.text, args.sentences or 12_000)
    out = folder / "out"
    options = ["--layers", "mean", "--rows-per-shard", "100"]
    options += ["--model", args.model] if args.model else []
    choose = random.Random(args.seed)
    log, run, drivers = [], None, 0
    total = len(range(0, count_rows(corpus), 100))
    while len(log) < args.kills:
        if run is None:
            run = Run(corpus, out, [*options, "--workers", "2"], args.engine, 2)
            drivers += 1
        before = len(ShardFolder(str(out)).shards()) if out.exists() else 0
        # The first shard that this driver or its new worker writes, and up to some more.
        target = min(before + choose.randint(1, max(1, total // (args.kills + 2))), total - 1)
        run.wait_for_shards(target)
        time.sleep(choose.uniform(0, 0.2))
        victim = "driver" if len(log) % 2 else "worker"
        pid = run.process.pid if victim == "driver" else choose.choice(run.workers() or [0])
        if not pid:
            continue  # the worker that was killed has no successor yet
        os.kill(pid, signal.SIGKILL)
        there = len(ShardFolder(str(out)).shards())
        log.append((victim, there))
        print(f"killed the {victim} at {there} of {total} shards", flush=True)
        if victim == "driver":
            run.process.wait()
            run = None
    if run is None:
        run = Run(corpus, out, [*options, "--workers", "2"], args.engine, 2)
        drivers += 1
    run.wait()
    rows, duplicates, difference = compare(corpus, out, args.model)
    left = [path.name for path in out.iterdir() if path.name.startswith(".")]
    print("| engine | kills | drivers | rows in | rows out | duplicates | largest difference |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {args.engine} | {len(log)} | {drivers} | {count_rows(corpus):,} | {rows:,} | "
        f"{duplicates} | {difference:.1g} |"
    )
    assert rows == count_rows(corpus)
    assert not duplicates
    assert not left, left
    assert difference <= LARGEST_DIFFERENCE
    return {
        "engine": args.engine, "words": words, "kills": log, "drivers": drivers, "rows": rows,
        "duplicates": duplicates, "largest_difference": difference,
    }  # fmt: skip


def million(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Embed a large corpus with a small model to the end."""
    corpus, words = write_corpus(folder, args.text, args.sentences or 1_000_000)
    model = args.model or write_tiny_model(folder)
    out = folder / "out"
    options = ["--layers", "mean", "--pooling", "mean", "--model", model, "--workers", "2"]
    started = time.monotonic()
    run = Run(corpus, out, options, args.engine, 2)
    with measuring_memory(run.process.pid) as memory:
        run.wait()
    seconds = time.monotonic() - started
    shards, manifest = open_shards(out)
    numbers = range(manifest.corpus.num_shards)
    ids = np.concatenate([shards.read_shard(n, ["id"])["id"].to_numpy() for n in numbers])
    assert np.array_equal(ids, np.arange(count_rows(corpus)))
    size = sum(path.stat().st_size for path in out.iterdir())
    print("| engine | rows | words | s | words/s | peak memory, MB | output, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {args.engine}, 2 | {len(ids):,} | {words:,} | {seconds:,.0f} | {words / seconds:,.0f} "
        f"| {memory.peak / 1e6:,.0f} | {size / 1e6:,.0f} |"
    )
    return {
        "engine": args.engine, "rows": len(ids), "words": words, "seconds": seconds,
        "memory": memory.peak, "bytes": size,
    }  # fmt: skip


def stream(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The vectors of every word of a Dataset, through an object store that is too small."""
    import ray

    corpus, words = write_corpus(folder, args.text, args.sentences or 200_000)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(
        "local", num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1",
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES, _temp_dir=str(folder / "ray"),
    )  # fmt: skip
    model = args.model or write_tiny_model(folder)
    started = time.monotonic()
    with measuring_memory(os.getpid()) as memory:
        texts = ray.data.read_text(str(corpus)).repartition(target_num_rows_per_block=2000)
        encoded = elmokit.ray.embed(texts, model=model, layers="mean", workers=2)
        encoded.write_parquet(str(folder / "out"))
    seconds = time.monotonic() - started
    tables = [pq.read_table(path) for path in (folder / "out").glob("*.parquet")]
    rows, size = sum(map(len, tables)), sum(table.nbytes for table in tables)
    assert sum(len(table["words"].combine_chunks().flatten()) for table in tables) == words
    spilled = sum(
        path.stat().st_size
        for path in (folder / "ray").glob("session_*/ray_spilled_objects*/*")
        if path.is_file()
    )
    ray.shutdown()
    print("| object store, MB | rows | vectors, MB | s | peak memory, MB | spilled to disk, MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(
        f"| {OBJECT_STORE_BYTES / 1e6:,.0f} | {rows:,} | {size / 1e6:,.0f} | {seconds:,.0f} "
        f"| {memory.peak / 1e6:,.0f} | {spilled / 1e6:,.0f} |"
    )
    return {
        "rows": rows, "words": words, "bytes": size, "seconds": seconds, "memory": memory.peak,
        "spilled": spilled,
    }  # fmt: skip


def write_tiny_model(folder: Path) -> str:
    elmokit.formats.save(Pretrained(LanguageModel(BiLM(TINY))), folder / "tiny")
    return str(folder / "tiny")


class Run:
    """`elmo embed` in a process of its own."""

    def __init__(
        self, corpus: Path, out: Path, options: Sequence[str], engine: str, workers: int
    ) -> None:
        self._out, self._engine = out, engine
        command = [sys.executable, "-m", "elmokit.cli", "embed", str(corpus), f"{out}/"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"}
        self.process = subprocess.Popen(
            [*command, "--engine", engine, "--threads", "1", *options],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait(self) -> None:
        _, errors = self.process.communicate()
        if self.process.returncode:
            raise SystemExit(errors)

    def wait_for_shards(self, number: int) -> None:
        """Until there are so many."""
        while not self._out.exists() or len(ShardFolder(str(self._out)).shards()) < number:
            if self.process.poll() is not None:
                raise SystemExit(f"ended too early: {self.process.communicate()[1]}")
            time.sleep(0.005)

    def workers(self) -> list[int]:
        """The processes that compute: the driver's children, or Ray's actors."""
        found = descendants(self.process.pid)
        if self._engine == "ray":
            return [pid for pid in found if command_of(pid).startswith("ray::MapWorker")]
        return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has ended
        return []
    children = [int(child) for text in lists for child in text.split()]
    return children + [each for child in children for each in descendants(child)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


class Memory:
    """The most memory that processes had together, what they share being counted once."""

    peak = 0


@contextmanager
def measuring_memory(pid: int) -> Iterator[Memory]:
    memory, ended = Memory(), threading.Event()

    def measure() -> None:
        while not ended.wait(0.5):
            pids = [pid, *descendants(pid)]
            memory.peak = max(memory.peak, sum(map(proportional_bytes, pids)))

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()


def proportional_bytes(pid: int) -> int:
    """A process's memory; of pages that n processes share, an n-th."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def write_corpus(folder: Path, text: str, sentences: int) -> tuple[Path, int]:
    """A file of so many sentences, and how many words they have."""
    path, words, left = folder / "corpus.txt", 0, sentences
    with open(path, "w", encoding="utf-8") as target:
        while left:  # the text again, if it is too short
            with TextFile(text).open() as opened:
                paragraphs = read_lines(opened, text)
                for sentence in islice(split_sentences(paragraphs), left):
                    target.write(" ".join(sentence) + "\n")
                    words += len(sentence)
                    left -= 1
    return path, words


def count_rows(corpus: Path) -> int:
    with open(corpus, "rb") as file:
        return sum(1 for _ in file)


def words_per_second(out: Path) -> float:
    """From the first shard to the last, so without the start of processes."""
    paths = sorted(out.glob("part-*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    words = sum(
        len(text.split())
        for path in paths[1:]
        for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
    )
    nanoseconds = paths[-1].stat().st_mtime_ns - paths[0].stat().st_mtime_ns
    return words / nanoseconds * 1e9


def compare(corpus: Path, out: Path, model: str | None) -> tuple[int, int, float]:
    """Rows in the shards, ids that are there twice, and the largest difference from `embed`."""
    embedder = elmokit.load(model)
    shards, manifest = open_shards(out)
    lines = corpus.read_text("utf-8").splitlines()
    ids: list[int] = []
    largest = 0.0
    for number in range(manifest.corpus.num_shards):
        table: pa.Table = shards.read_shard(number)
        rows = table["id"].to_pylist()
        ids += rows
        assert table["text"].to_pylist() == [lines[row] for row in rows]
        if number % 10:
            continue  # a tenth of the vectors is computed again
        expected = embedder.embed([lines[row].split() for row in rows], layers="mean")
        for found, array in zip(row_vectors(table), expected, strict=True):
            largest = max(largest, float(np.abs(found - array[0]).max(initial=0)))
    return len(ids), len(ids) - len({*ids}), largest


if __name__ == "__main__":
    main()
