"""Read damaged and malicious files: python tests/fuzz/fuzz.py --minutes 10 [TARGET ...]

Each execution changes valid files of a target and reads them. It must end within 10 seconds in a
result or an ElmokitError, with at most 1 GB more memory, no program run, no connection made, and
nothing written outside the target's folder. Targets run in processes of their own, so that a crash
of a library is a finding like any other. An execution follows from the target, the seed and its
number: --seed S --first N --executions 1 repeats it. Exits with 1 if anything was found.
"""

import argparse
import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "fuzz")]

SECONDS = 10  # of computing, for an execution
MAX_BYTES = 2**30  # of memory, beside what the process had
KILLED_AFTER = 300  # seconds in which a process says nothing, such as one that waits
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_FORBIDDEN = {
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "subprocess.Popen",
    "socket.connect", "socket.getaddrinfo", "ctypes.dlopen", "pty.spawn",
}  # fmt: skip
_PATHS = {
    "os.mkdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2, "os.remove": 1, "os.rmdir": 1,
    "os.chmod": 1, "os.truncate": 1,
}  # fmt: skip


class Finding(BaseException):
    """What must not happen, beside an exception; no `except Exception` hides it."""


class Sandbox:
    """Notices what the process does outside a folder, and an execution that takes too long."""

    def __init__(self, folder):
        self._folder, self._active, self.problem = str(folder.resolve()), False, ""
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, self._too_late)

    def __enter__(self):
        self._active, self.problem = True, ""
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._active = False

    def _too_late(self, *_):
        raise Finding(f"took more than {SECONDS} seconds")

    def _audit(self, event, arguments):
        if not self._active:
            return
        if event == "open":
            path, _, flags = arguments
            if flags & _WRITING and isinstance(path, str | bytes | os.PathLike):
                self._check(event, path)
        elif event in _PATHS:
            directory = arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
            for path in arguments[: _PATHS[event]]:
                if not isinstance(path, int):
                    inside = "" if directory < 0 else os.readlink(f"/proc/self/fd/{directory}")
                    self._check(event, os.path.join(inside, os.fsdecode(path)))
        elif event in _FORBIDDEN:
            self.problem = f"{event} {arguments!r:.200}"

    def _check(self, event, path):
        place = os.path.realpath(os.fsdecode(path))
        if not place.startswith((self._folder, "/dev/null", "/dev/shm")):
            self.problem = f"{event} {place}, outside the folder"


def run_target(name, *, seed, first, executions, seconds, findings):
    """Execute a target in this process; print a line of JSON now and then, and at the end."""
    faulthandler.enable()
    import torch
    from targets import TARGETS

    torch.set_num_threads(1)
    run = TargetRun(TARGETS[name], findings=findings, seed=seed)
    started = reported = time.monotonic()
    for number in range(first, first + executions):
        now = time.monotonic()
        if now - started > seconds:
            break
        if now - reported > 1:
            reported = now
            _print(target=name, number=number, counts=run.counts, seconds=now - started)
        run.execute(number)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    _print(target=name, counts=run.counts, seconds=time.monotonic() - started, peak_mb=round(peak),
           number=first + run.counts["executions"], end=True)  # fmt: skip
    shutil.rmtree(run.arena)
    sys.stdout.flush()
    os._exit(0)  # threads of a service need not end


class TargetRun:
    """The executions of a target, in a folder of their own."""

    def __init__(self, target, *, findings, seed):
        self._target, self._findings, self._seed = target, findings, seed
        self.counts, self._known, self._changed = Counter(), set(), None
        self.arena = Path(tempfile.mkdtemp(prefix="fuzz-", dir=_fast_folder()))
        self._temporary, self._folder = self.arena / "tmp", self.arena / "files"
        self._temporary.mkdir()
        self._folder.mkdir()
        tempfile.tempdir = str(self._temporary)
        target.make(self._folder)
        self._original = {p: p.read_bytes() for p in self._folder.rglob("*") if p.is_file()}
        self._restore(target.mutate(self._folder, random.Random(0)))  # makes what is made once
        target.read(self._folder)  # what is not changed is not refused
        self._beside = {*os.listdir(self.arena)}
        self._changed = self._directory_times()
        warnings.simplefilter("ignore")
        self._sandbox = Sandbox(self.arena)
        _limit_memory()

    def execute(self, number):
        """Change files, read them, and put them back."""
        name = self._target.name
        before = self._target.mutate(self._folder, random.Random(f"{name}-{self._seed}-{number}"))
        problem = self._read() or self._sandbox.problem or self._left_behind()
        self.counts["executions"] += 1
        if problem:
            self.counts["findings"] += 1
            key = problem.split("\n")[0]
            if key not in self._known:
                self._known.add(key)
                self._keep(number, problem, before)
                _print(target=name, number=number, finding=problem)
        self._restore(before)

    def _read(self):
        """What was wrong with reading the folder; "" if it ended as it should."""
        from elmokit.errors import ElmokitError

        try:
            with self._sandbox:
                self._target.read(self._folder)
            self.counts["results"] += 1
        except ElmokitError:
            self.counts["refusals"] += 1
        except (Exception, Finding) as error:
            return _describe(error)
        return ""

    def _left_behind(self):
        problem = ""
        for name in os.listdir(self._temporary):
            path = self._temporary / name
            problem = f"left {name} in the folder of temporary files"
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return "wrote beside its folder" if {*os.listdir(self.arena)} != self._beside else problem

    def _directory_times(self):
        """When files were last added to each folder, or taken away."""
        folders = {path.parent for path in self._original}
        return {folder: os.stat(folder).st_mtime_ns for folder in folders}

    def _restore(self, before):
        if self._directory_times() != self._changed:
            for path in [path for path in self._folder.rglob("*") if path.is_file()]:
                if path not in self._original:
                    path.unlink()
            self._changed = self._directory_times()
        for path in before:
            if path in self._original:
                path.write_bytes(self._original[path])

    def _keep(self, number, problem, before):
        if self._findings is None:
            return
        name = self._target.name.replace(" ", "-")
        place = Path(self._findings) / f"{name}-{self._seed}-{number}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "problem.txt").write_text(problem, errors="replace")
        for path in (path for path in before if path.exists()):
            file = path.relative_to(self._folder).as_posix().replace("/", "__")
            (place / file).write_bytes(path.read_bytes())


def _print(**record):
    print(json.dumps(record), flush=True)


def _fast_folder():
    """A file system in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _limit_memory():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _describe(error):
    """The kind of error and the line of elmokit it comes from, then the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/elmokit/" in frame.filename] or frames
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}" if own else "?"
    lines = "".join(traceback.format_exception(error))[-6000:]
    return f"{type(error).__name__} at {where}\n{lines}"


def watch_target(name, *, seed, executions, seconds, findings, report=print):
    """Execute a target in a process of its own, started again where it ends by a signal."""
    total, first, peak, took, known = Counter(), 0, 0, 0.0, set()
    deadline = time.monotonic() + seconds
    while first < executions and time.monotonic() < deadline:
        command = [
            sys.executable, __file__, name, "--in-process", "--seed", str(seed), "--first",
            str(first), "--executions", str(executions - first),
            "--minutes", str(max(0.0, deadline - time.monotonic()) / 60),
            *(["--findings", str(findings)] if findings else []),
        ]  # fmt: skip
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "ELMOKIT_OFFLINE": "1", "MALLOC_ARENA_MAX": "2",
            "TORCHINDUCTOR_CACHE_DIR": "/nonexistent",
        }  # fmt: skip
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
            last = _follow(process, report, known)
            errors.seek(0)
            said = errors.read()[-3000:]
        counts = Counter(last.get("counts", {}))
        total += counts
        took += last.get("seconds", 0.0)
        peak = max(peak, last.get("peak_mb", 0))
        if last.get("end"):
            report(f"{name}: {total['executions']:,} executions, {total['findings']:,} findings")
            break
        total["findings"] += 1
        report(f"{name}: the process ended with {process.returncode} after execution "
               f"{last.get('number', first)} (one of the next 1 s)\n{said}")  # fmt: skip
        first = last.get("number", first) + 1
        if not counts["executions"]:
            break
    return {"target": name, **total, "seconds": round(took, 1), "peak_mb": peak}


def _follow(process, report, known):
    """Read what a process prints until it ends; kill one that is silent for too long."""
    last = {}
    signal.signal(signal.SIGALRM, lambda *_: process.kill())
    signal.alarm(10 * KILLED_AFTER)  # importing takes a while
    for line in process.stdout:
        signal.alarm(KILLED_AFTER)
        record = json.loads(line)
        if "finding" in record:
            if record["finding"] not in known:
                known.add(record["finding"])
                report(f"{record['target']}, execution {record['number']}: {record['finding']}")
        else:
            last = record
    signal.alarm(0)
    process.wait()
    return last


def main():
    """Run targets one after the other; print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*", help="all by default")
    parser.add_argument("--minutes", type=float, default=10.0, help="in all")
    parser.add_argument("--executions", type=int, default=10**9, help="at most, of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first execution")
    parser.add_argument("--findings", help="a folder for the files of what is found")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.in_process:
        run_target(
            given.targets[0], seed=given.seed, first=given.first, executions=given.executions,
            seconds=60 * given.minutes, findings=given.findings,
        )  # fmt: skip
    from targets import TARGETS

    unknown = {*given.targets} - {*TARGETS}
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    names = given.targets or [*TARGETS]
    rows = [
        watch_target(
            name, seed=given.seed, executions=given.executions,
            seconds=60 * given.minutes / len(names), findings=given.findings,
        )
        for name in names
    ]  # fmt: skip
    print(f"{'target':16}{'executions':>12}{'results':>10}{'refusals':>10}{'findings':>10}"
          f"{'a second':>10}{'peak MB':>9}")  # fmt: skip
    for row in rows:
        done = row.get("executions", 0)
        print(f"{row['target']:16}{done:12,}{row.get('results', 0):10,}{row.get('refusals', 0):10,}"
              f"{row.get('findings', 0):10,}{done / max(row['seconds'], 1e-9):10,.0f}"
              f"{row['peak_mb']:9,}")  # fmt: skip
    executions = sum(row.get("executions", 0) for row in rows)
    findings = sum(row.get("findings", 0) for row in rows)
    print(json.dumps({"executions": executions, "findings": findings, "seed": given.seed}))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
