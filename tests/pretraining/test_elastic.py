"""Ranks and machines that are really killed, under torchrun: the run ends with the same bits."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.trainer import pretrain
from elmokit.toml_settings import to_toml
from random_models import make_corpus
from tiny_run import SENTENCES, assert_equal_runs, changed
from waiting import wait_until

pytestmark = pytest.mark.full

SETTINGS = changed(
    micro_batches=2, batch_size=8, dropout=0.2, softmax_gradient="dense", schedule="constant",
    validation_interval=0, log_interval=1, shard_optimizer=True, threads=1,
)  # fmt: skip


class Run:
    """A run under torchrun on some machines, which here are agents with a rank each."""

    def __init__(self, folder, ranks_of_machine):
        self.out, self._folder, self._ranks = folder / "run", folder, ranks_of_machine
        self._log = open(folder / "log.txt", "w")
        self._processes = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    def start_machine(self, machines):
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", machines,
            "--nproc-per-node", str(self._ranks), "--max-restarts", "3", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"127.0.0.1:{self._port}", "--rdzv-id", "elmokit",
            "--local-addr", "127.0.0.1", "--rdzv-conf",
            f"last_call_timeout=2,is_host={not self._processes}",
            "-m", "elmokit", "pretrain", str(self._folder / "corpus"), "--config",
            str(self._folder / "settings.toml"), "--out", str(self.out),
        ]  # fmt: skip
        # With torch 2.13, an agent whose store is shared does not tell machines that join where.
        shared = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if ":" in machines else {}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **shared}
        process = subprocess.Popen(
            command, env=environment, stderr=self._log, stdout=self._log, start_new_session=True
        )
        self._processes.append(process)
        return process

    def accepts(self):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self._port)) == 0

    def finish_after(self, more):
        """Stop the ranks where they are; the run, started again, has so many steps more."""
        for number in self.ranks()[0].values():
            os.kill(number, signal.SIGSTOP)  # torchrun kills them after half a minute
        steps = max(self.steps()) + more
        write_settings(self._folder, steps)
        return steps

    def steps(self):
        """The steps of the log, in their order."""
        path = self.out / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["update"] for line in lines if line.endswith("}")]

    def wait_for_steps(self, count):
        """Wait until some more steps are done."""
        before = len(self.steps())
        wait_until(lambda: len(self.steps()) >= before + count, 200)

    def ranks(self):
        """The processes of each rank, and how many ranks the run has now."""
        found, sizes = {}, set()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                command = (folder / "cmdline").read_bytes()
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            variables = dict(v.partition(b"=")[::2] for v in environment)
            if str(self.out).encode() in command and b"RANK" in variables:
                found[int(variables[b"RANK"])] = int(folder.name)
                sizes.add(int(variables[b"WORLD_SIZE"]))
        return found, sizes

    def wait_for_ranks(self, count):
        wait_until(lambda: self.ranks()[1] == {count} and len(self.ranks()[0]) == count, 200)

    def wait(self):
        for process in self._processes:
            process.wait(500)
        return [process.returncode for process in self._processes]

    def close(self):
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for number in self.ranks()[0].values():
            os.kill(number, signal.SIGKILL)
        self._log.close()


def parent_of(number):
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def write_settings(folder, steps):
    (folder / "settings.toml").write_text(to_toml(changed(**{**vars(SETTINGS), "steps": steps})))


@contextmanager
def running(folder, ranks_of_machine, steps):
    make_corpus(folder / "corpus", SENTENCES, valid=SENTENCES[:3], shards=3)
    write_settings(folder, steps)
    run = Run(folder, ranks_of_machine)
    try:
        yield run
    except AssertionError as error:
        said = (folder / "log.txt").read_text()[-3000:]
        raise AssertionError(f"{error}\n{said}") from error
    finally:
        run.close()


def uninterrupted(folder, steps):
    settings = changed(**{**vars(SETTINGS), "steps": steps, "shard_optimizer": False})
    pretrain(Corpus.open(folder / "corpus"), settings, folder / "uninterrupted")
    return folder / "uninterrupted"


def test_a_killed_rank_is_started_again_and_the_run_ends_with_the_same_bits(tmp_path):
    with running(tmp_path, 2, 100_000) as run:
        run.start_machine("1")
        for rank in (1, 0):
            run.wait_for_ranks(2)
            wait_until(run.out.is_dir, 200)
            run.wait_for_steps(5)
            ranks = run.ranks()[0]
            if rank == 0:
                steps = run.finish_after(20)
            os.kill(ranks[rank], signal.SIGKILL)
            wait_until(lambda killed=ranks[rank]: killed not in run.ranks()[0].values(), 60)
        assert run.wait() == [0]
        assert run.steps()[:steps] == list(range(1, steps + 1))
        assert_equal_runs(uninterrupted(tmp_path, steps), run.out)


def test_a_lost_machine_is_done_without_and_taken_back(tmp_path):
    """Two ranks to one and back: the same command, and nothing else is told."""
    with running(tmp_path, 1, 100_000) as run:
        run.start_machine("1:2")
        wait_until(run.accepts, 200)  # the first is the one that others meet at
        lost = run.start_machine("1:2")
        run.wait_for_ranks(2)
        run.wait_for_steps(5)
        of_lost = [number for number in run.ranks()[0].values() if parent_of(number) == lost.pid]
        assert len(of_lost) == 1
        for number in (lost.pid, *of_lost):
            os.kill(number, signal.SIGKILL)
        run.wait_for_ranks(1)
        run.wait_for_steps(5)
        steps = run.finish_after(20)
        run.start_machine("1:2")
        run.wait_for_ranks(2)
        codes = run.wait()
        assert [codes[0], codes[2]] == [0, 0]
        assert run.steps()[:steps] == list(range(1, steps + 1))
        assert_equal_runs(uninterrupted(tmp_path, steps), run.out)
