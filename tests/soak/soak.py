"""Kill resumable work at random moments, and fill its disk: python tests/soak/soak.py

Each work is a command on a tiny model and a small text. It is run once to its end. Then it is
killed with SIGKILL at random moments and started again, until a run reaches its end; what it wrote
must be equal, bit for bit, to what the first run wrote, with no file more or less. That is repeated
until the command was killed --kills times. Then the same on a disk that is full at random moments:
the command must end with a message of its own, and when there is space again, reach its end with
the same bits. The disk is a tmpfs, which only root may mount. Exits with 1 if anything was found.
"""

import argparse
import gc
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS)]

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["ELMOKIT_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

SECONDS = 300  # a command that takes longer hangs
DISK_BYTES = 2**26
SERVER_BYTES = 2**28  # of a database's disk, most of which its empty files take
_BUSY = "another process"  # what a command says while the killed one's children still end


@dataclass(frozen=True)
class Work:
    """What can be interrupted: it reads the folder `inputs` and writes into the folder `out`."""

    name: str
    make: Any  # (inputs): write what it reads
    run: Any  # (inputs, out): do the work, in a process of its own
    results: Any  # (out): what must be equal, by name
    clear: Any = None  # (out): remove the results that are not in `out`
    revive: Any = None  # (): after its disk was full
    surroundings: Any = None  # a context manager around all runs: (inputs)
    on_disk: bool = True  # whether `out` is the disk that it fills


WORKS: dict[str, Work] = {}


def work(name, *, make, results=None, **others):
    """Register a function that does the work."""

    def register(run):
        WORKS[name] = Work(name, make, run, results or files_of, **others)
        return run

    return register


def files_of(out, without=()):
    """The digests of all files of a folder, by their paths."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and not any(path.match(pattern) for pattern in without)
    }


def elmo(*arguments):
    """Run a command of `elmo` in this process."""
    import elmokit.cli

    sys.argv = ["elmo", *map(str, arguments)]
    elmokit.cli.main()


def _make_text(inputs, lines=600):
    from random_models import make_folder

    (inputs / "model").mkdir()
    make_folder(inputs / "model")
    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "red", "blue", "old", "new"]
    chosen = random.Random(0)
    text = (" ".join(chosen.choices(words, k=chosen.randrange(1, 12))) for _ in range(lines))
    (inputs / "text.txt").write_text("".join(f"{line} .\n" for line in text))


@work("embed", make=_make_text)
def _embed(inputs, out):
    elmo("embed", inputs / "text.txt", out / "vectors.hdf5", "--model", inputs / "model",
         "--tokens-per-batch", 64)  # fmt: skip


def _bulk_results(out):
    """The shards, and the manifest without what tells the time."""
    return files_of(out, without=("progress*",))


@work("embed in bulk", make=_make_text, results=_bulk_results)
def _embed_in_bulk(inputs, out):
    elmo("embed", inputs / "text.txt", f"{out / 'shards'}/", "--model", inputs / "model",
         "--engine", "local", "--workers", 2)  # fmt: skip


def _make_lines(inputs):
    _make_text(inputs, lines=30_000)


@work("prepare", make=_make_lines)
def _prepare(inputs, out):
    import elmokit.pretraining.text_chunks as chunks

    chunks.CHUNK_BYTES = 2**14  # many parts, although the text is small
    elmo("prepare", inputs / "text.txt", "--out", out / "corpus", "--tokenizer", "spaces",
         "--workers", 2)  # fmt: skip


def _make_corpus(inputs):
    from elmokit.toml_settings import to_toml
    from random_models import make_corpus
    from tiny_run import SENTENCES, changed

    make_corpus(inputs / "corpus", SENTENCES, valid=SENTENCES[:6], shards=2)
    settings = changed(steps=24, validation_interval=8, threads=1)
    (inputs / "settings.toml").write_text(to_toml(settings))


def _run_results(out):
    """All files; of the log the steps and the validations, of the checkpoint its values.

    Lines of progress are about the time and the losses since the last one, or since a start. Pickle
    stores a text once if it is one object, which it no longer is when it was read.
    """
    import torch
    from torch.utils import _pytree as pytree

    path = out / "run" / "log.jsonl"
    log = [json.loads(line) for line in path.read_text().splitlines()]
    checkpoint = torch.load(out / "run" / "checkpoint.pt", weights_only=True)
    values, _ = pytree.tree_flatten_with_path(checkpoint)
    return {
        **files_of(out, without=("log.jsonl", "checkpoint.pt", "tensorboard/*")),
        "log.jsonl": [line if "sampled_loss" not in line else line["update"] for line in log],
        "checkpoint.pt": {
            pytree.keystr(path): value.numpy().tobytes() if torch.is_tensor(value) else value
            for path, value in values
        },
    }


@work("pretrain", make=_make_corpus, results=_run_results)
def _pretrain(inputs, out):
    elmo("pretrain", inputs / "corpus", "--config", inputs / "settings.toml", "--out", out / "run")


def _make_tagged(inputs):
    from elmokit.toml_settings import to_toml
    from task_examples import tiny_settings

    _make_text(inputs)
    tags = {"cat": "S-ANIMAL", "dog": "S-ANIMAL"}
    lines = (inputs / "text.txt").read_text().splitlines()[:16]
    (inputs / "train.conll").write_text(
        "".join(
            "".join(f"{word} X X {tags.get(word, 'O')}\n" for word in line.split()) + "\n"
            for line in lines
        )
    )
    settings = tiny_settings(epochs=5, elmo="both", hidden_size=4)
    (inputs / "settings.toml").write_text(to_toml(settings))


def _task_results(out):
    """All files; of the log what does not tell the time."""
    log = [json.loads(line) for line in (out / "ner" / "log.jsonl").read_text().splitlines()]
    lines = [{k: v for k, v in line.items() if k not in ("seconds", "time")} for line in log]
    return {**files_of(out, without=("log.jsonl",)), "log.jsonl": lines}


@work("train", make=_make_tagged, results=_task_results)
def _train(inputs, out):
    elmo("train", "ner", "--train", inputs / "train.conll", "--dev", inputs / "train.conll",
         "--out", out / "ner", "--model", inputs / "model", "--config", inputs / "settings.toml",
         "--threads", 1)  # fmt: skip


def _index_results(out):
    """The files of an index; of its database of passages the rows, which may lie anywhere."""
    found = files_of(out, without=("*.sqlite*", "*.db*"))
    for path in [*out.rglob("*.sqlite"), *out.rglob("*.db")]:
        with sqlite3.connect(path) as rows:
            found[path.relative_to(out).as_posix()] = "\n".join(rows.iterdump())
    return found


def _build(inputs, *where):
    elmo("index", "build", inputs / "text.txt", *where, "--model", inputs / "model",
         "--threads", 1)  # fmt: skip


def _make_passages(inputs):
    _make_text(inputs, lines=200)


@work("index (FAISS)", make=_make_passages, results=_index_results)
def _build_in_folder(inputs, out):
    _build(inputs, "--out", out / "index")


@contextmanager
def _database(inputs):
    """A server of PostgreSQL of this process, whose disk is the one that is filled."""
    import pytest

    from databases import start_server

    tempfile.tempdir = str(inputs / "disk")
    (inputs / "disk").mkdir()
    try:
        with _disk(inputs / "disk", SERVER_BYTES), start_server() as server:
            tempfile.tempdir = None
            yield {"server": server}
    except pytest.skip.Exception as error:
        raise NotHereError(str(error)) from None
    finally:
        tempfile.tempdir = None


def _rows(out, server):
    tables = server.run(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'elmokit_soak' "
        "ORDER BY 1"
    )
    return {
        name: hashlib.sha256(
            "\n".join(sorted(map(str, server.run(f"SELECT * FROM elmokit_soak.{name}")))).encode()
        ).hexdigest()
        for (name,) in tables
    }


@work(
    "index (PostgreSQL)",
    make=_make_passages,
    results=_rows,
    clear=lambda out, server: server.run("DROP SCHEMA IF EXISTS elmokit_soak CASCADE"),
    revive=lambda server: server.revive(),
    surroundings=_database,
    on_disk=False,
)
def _build_in_database(inputs, out, server):
    _build(inputs, "--store", server.address("soak"))


@contextmanager
def _file_server(inputs):
    """A server that sends a file slowly, in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        from faulty_server import FaultyServer

        server = FaultyServer()
        server.files["/weights.bin"] = (inputs / "weights.bin").read_bytes()
        server.etags["/weights.bin"] = '"1"'
        server.seconds_per_block = 0.004
        os.write(writer, server.url.encode())
        server.serve_forever()
    try:
        yield {"url": os.read(reader, 1000).decode()}
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _make_file(inputs):
    (inputs / "weights.bin").write_bytes(random.Random(0).randbytes(2**22))


@work("download", make=_make_file, surroundings=_file_server)
def _download(inputs, out, url):
    from elmokit.errors import ElmokitError
    from elmokit.file_download import RemoteFile, download

    try:
        download(RemoteFile("weights.bin", (f"{url}/weights.bin",)), out / "weights.bin")
    except ElmokitError as error:
        sys.exit(f"elmo: {error}")


class NotHereError(Exception):
    """Work that cannot be done here; the message says what is missing."""


class Found(Exception):  # noqa: N818
    """What must not happen."""


class Soak:
    """The runs of a work, and what they were compared with."""

    def __init__(self, chosen, folder, seed):
        self._work, self._random = chosen, random.Random(f"{chosen.name}-{seed}")
        self._inputs, self._out = folder / "inputs", folder / "out"
        self._log = folder / "log.txt"
        self._inputs.mkdir()
        self._out.mkdir()
        chosen.make(self._inputs)
        self._given = {}
        self.counts = {"kills": 0, "killed to the end": 0, "disk full": 0, "longest": 0}

    @contextmanager
    def prepared(self):
        """Around all runs: what the work needs, and the result of an uninterrupted run."""
        with ExitStack() as stack:
            if self._work.surroundings is not None:
                self._given = stack.enter_context(self._work.surroundings(self._inputs))
            self._finish()  # the first is slower
            self._expected = self._results()
            if not self._expected:
                raise Found("nothing was written")
            self._clear()
            self._finish()
            self._compare("two uninterrupted runs")
            yield

    def kill(self, times):
        """Kill the work, start it again until it ends, and so on; compare each end."""
        while self.counts["kills"] < times:
            self._clear()
            in_turn = 0
            while self._killed_after(self._random.uniform(0, 1.1 * self._seconds)):
                self.counts["kills"] += 1
                in_turn += 1
            self.counts["longest"] = max(self.counts["longest"], in_turn)
            self._compare(f"after {in_turn} kills")
            self.counts["killed to the end"] += 1

    def fill_disk(self, times):
        """Let the disk be full at some moment; then make space, and compare what is written."""
        with ExitStack() as stack:
            disk = self._out
            if self._work.on_disk:
                self._clear()
                stack.enter_context(_disk(disk, DISK_BYTES))
                self._finish()
                most = 2.5 * sum(p.stat().st_size for p in disk.rglob("*") if p.is_file())
            else:
                disk, most = self._inputs / "disk", 2**22
            for _ in range(20 * times):
                if self.counts["disk full"] == times:
                    return
                self._clear()
                free = int(self._random.uniform(0, most))
                with _filled(disk, free):
                    code, said = self._run()
                if self._work.revive is not None:
                    self._work.revive(**self._given)
                if code == 0:
                    self._compare(f"with {free:,} bytes free")
                    continue
                if code != 1 or "elmo: " not in said or "Traceback" in said:
                    raise Found(f"with {free:,} bytes free it ended with {code}: {said[-1500:]}")
                self.counts["disk full"] += 1
                self._finish()
                self._compare(f"after {free:,} bytes filled the disk")

    def _finish(self):
        started = time.monotonic()
        code, said = self._run()
        self._seconds = time.monotonic() - started
        if code:
            raise Found(f"ended with {code}: {said[-1500:]}")

    def _run(self):
        """Run the work to its end, which is once more where another process is still at it."""
        until = time.monotonic() + SECONDS
        while True:
            child = self._start()
            while not (ended := os.waitpid(child, os.WNOHANG))[0]:
                if time.monotonic() > until:
                    os.killpg(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    raise Found(f"took more than {SECONDS} seconds: {self._log.read_text()[-900:]}")
                time.sleep(0.005)
            code, said = os.waitstatus_to_exitcode(ended[1]), self._log.read_text(errors="replace")
            if code != 1 or _BUSY not in said or time.monotonic() > until:
                return code, said
            time.sleep(0.05)

    def _killed_after(self, seconds):
        """Kill the work after so long, alone or with its children; False if it had ended."""
        child = self._start()
        until = time.monotonic() + seconds
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() >= until:
                with_children = self._random.random() < 0.5 and os.getpgid(child) == child
                (os.killpg if with_children else os.kill)(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return True
            time.sleep(0.0005)
        code, said = os.waitstatus_to_exitcode(ended[1]), self._log.read_text(errors="replace")
        if code == 1 and _BUSY in said:
            time.sleep(0.05)
            return self._killed_after(seconds)
        # Killed when all was written, it may be refused: there is a result already.
        if code and not self._is_complete():
            raise Found(f"when started again it ended with {code}: {said[-1500:]}")
        return False

    def _start(self):
        child = os.fork()
        if child:
            return child
        code = 1  # unless it ends otherwise
        try:
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            self._work.run(self._inputs, self._out, **self._given)
            code = 0
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            code = 1 if isinstance(end.code, str) else end.code or 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _results(self):
        given = self._given if self._work.results is _rows else {}
        return self._work.results(self._out, **given)

    def _clear(self):
        for path in self._out.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self._work.clear is not None:
            self._work.clear(self._out, **self._given)

    def _is_complete(self):
        try:
            return self._results() == self._expected
        except (OSError, ValueError):
            return False

    def _compare(self, when):
        found = self._results()
        different = sorted(
            name
            for name in {*found, *self._expected}
            if found.get(name) != self._expected.get(name)
        )
        if different:
            raise Found(f"{when}: {', '.join(different)} differ")


@contextmanager
def _disk(folder, size):
    """A file system of so many bytes at an empty folder."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        raise NotHereError(f"a tmpfs cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def _filled(folder, free):
    """Leave so many bytes of a file system free."""
    filler = folder / ".filler"
    found = os.statvfs(folder)
    size = max(0, found.f_bavail * found.f_frsize - free)
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size) if size else None
    try:
        yield
    finally:
        filler.unlink()


def soak(chosen, *, kills, full, seed):
    """One row of the table."""
    started, problem = time.monotonic(), ""
    counts = {}
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        try:
            runs = Soak(chosen, Path(folder), seed)
            counts = runs.counts
            with runs.prepared():
                runs.kill(kills)
                runs.fill_disk(full)
        except NotHereError as missing:
            problem = f"not here: {missing}"
        except Found as found:
            problem = f"FOUND: {found}"
    return {
        "work": chosen.name, **counts, "seconds": round(time.monotonic() - started, 1),
        "problem": problem,
    }  # fmt: skip


def main():
    """Do all works in turn; print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("works", nargs="*", help=f"all by default: {', '.join(WORKS)}")
    parser.add_argument("--kills", type=int, default=100, help="of each work")
    parser.add_argument("--full", type=int, default=20, help="how often its disk is full")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    unknown = {*given.works} - {*WORKS}
    if unknown:
        parser.error(f"no work {', '.join(sorted(unknown))}; there are {', '.join(WORKS)}")
    _import_all()
    print(
        f"{'work':20}{'kills':>7}{'in turn':>9}{'ends':>6}{'disk full':>11}{'seconds':>9}  result"
    )
    rows = []
    for name in given.works or WORKS:
        row = soak(WORKS[name], kills=given.kills, full=given.full, seed=given.seed)
        rows.append(row)
        print(
            f"{name:20}{row.get('kills', 0):7}{row.get('longest', 0):9}"
            f"{row.get('killed to the end', 0):6}{row.get('disk full', 0):11}"
            f"{row['seconds']:9}  {row['problem'] or 'equal'}", flush=True,
        )  # fmt: skip
    findings = sum(row["problem"].startswith("FOUND") for row in rows)
    print(json.dumps({"date": time.strftime("%Y-%m-%d"), "findings": findings, "works": rows}))
    sys.exit(1 if findings else 0)


def _import_all():
    """What commands import takes seconds; a fork has it at once."""
    import httpx
    import torch
    import torch._dynamo

    with suppress(ImportError):
        import torch.utils.tensorboard

    httpx.Client().close()  # its certificates are read once
    torch.set_num_threads(1)
    gc.freeze()


if __name__ == "__main__":
    main()
