"""Resuming runs, and run directories that are refused."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import threading
import time
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import elmokit
from elmokit.atomic import DirectoryLock
from elmokit.errors import FormatError, InputError, OutputError
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.run_directory import RunDirectory
from elmokit.pretraining.settings import names_of_0_1
from elmokit.pretraining.trainer import Trainer, pretrain
from random_models import make_corpus
from tiny_run import SENTENCES, TINY, changed, weights_of


def run_of(directory):
    """All that a finished run has: weights, checkpoint, and the steps in its log."""
    checkpoint = torch.load(directory / "checkpoint.pt", weights_only=True)
    log = (directory / "log.jsonl").read_text().splitlines()
    return (
        weights_of(directory),
        {name: weight.tolist() for name, weight in checkpoint["weights"].items()},
        [json.loads(line)["update"] for line in log],
    )


def train_slowly(corpus, directory):
    """A run that waits, so that it can be killed, after each step from the 10th on."""
    train_step = Trainer.train_step

    def train_step_and_wait(trainer):
        if trainer.step >= 10:
            time.sleep(0.5)
        return train_step(trainer)

    Trainer.train_step = train_step_and_wait
    pretrain(corpus, TINY, directory)


@pytest.mark.full
def test_a_killed_run_ends_with_the_same_weights(corpus, uninterrupted, tmp_path):
    process = multiprocessing.get_context("fork").Process(
        target=train_slowly, args=(corpus, tmp_path)
    )
    process.start()
    log = tmp_path / "log.jsonl"
    while not (log.exists() and '"update": 8' in log.read_text()):
        assert process.is_alive(), "ended before it could be killed"
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    pretrain(corpus, TINY, tmp_path)
    assert run_of(tmp_path) == run_of(uninterrupted)


@pytest.mark.full
@pytest.mark.parametrize("failing", range(0, 30, 3))
def test_a_run_that_fails_at_any_write_ends_with_the_same_weights(
    corpus, uninterrupted, tmp_path, monkeypatch, failing
):
    """Fails before or after the n-th rename, as a kill there would."""
    renames = 0

    def rename_or_fail(*paths):
        nonlocal renames
        renames += 1
        if renames == failing // 2 + 1:
            if failing % 2:
                rename(*paths)
            raise KeyboardInterrupt
        return rename(*paths)

    rename = Path.replace
    monkeypatch.setattr(Path, "replace", rename_or_fail)
    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, TINY, tmp_path)
    pretrain(corpus, TINY, tmp_path)
    assert run_of(tmp_path) == run_of(uninterrupted)


@pytest.mark.full
def test_a_checkpoint_of_0_1_is_resumed(corpus, uninterrupted, tmp_path):
    def report(line):
        if line.startswith("step 12"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, TINY, tmp_path, report=report)
    stored = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    old_names = {
        "step": "update", "hidden": "output", "cell": "memory", "best_score": "best",
        "best_step": "best_update", "initial_card": "begun_with",
    }  # fmt: skip
    stored = {old_names.get(name, name): value for name, value in stored.items()}
    old_names = {"remaining": "left", "last_ids": "read"}
    stored["positions"] = [
        {old_names.get(name, name): value for name, value in position.items()}
        for position in stored["positions"]
    ]
    settings = names_of_0_1({f.name: getattr(TINY, f.name) for f in fields(TINY)})
    stored["settings"] = "".join(f"{n} = {json.dumps(v)}\n" for n, v in settings.items())
    torch.save(stored, tmp_path / "checkpoint.pt")
    pretrain(corpus, TINY, tmp_path)
    assert run_of(tmp_path) == run_of(uninterrupted)


def test_a_finished_run_continues_when_more_steps_are_asked_for(corpus, tmp_path):
    constant = {"schedule": "constant", "validation_interval": 4}
    pretrain(corpus, changed(steps=16, **constant), tmp_path / "at_once")
    pretrain(corpus, changed(steps=8, **constant), tmp_path / "in_two")
    lines = []
    longer = changed(steps=16, **constant)
    validation = pretrain(corpus, longer, tmp_path / "in_two", report=lines.append)
    assert lines[0] == "resuming after step 8 of 16"
    assert validation is not None
    assert run_of(tmp_path / "in_two")[:2] == run_of(tmp_path / "at_once")[:2]
    assert "steps = 16" in (tmp_path / "in_two" / "settings.toml").read_text()
    with pytest.raises(InputError, match=r"has done 16 steps, more than the 8 that"):
        pretrain(corpus, changed(steps=8, **constant), tmp_path / "in_two")


def test_intervals_and_threads_may_change_when_a_run_is_resumed(corpus, tmp_path):
    pretrain(corpus, changed(steps=8), tmp_path)
    pretrain(corpus, changed(steps=9, validation_interval=3, log_interval=1, threads=1), tmp_path)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 9


def test_a_run_without_a_model_says_so(corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, changed(validation_interval=0), tmp_path, report=interrupt)
    with pytest.raises(FormatError, match=r"run has not saved a model yet.*validation_interval"):
        elmokit.load(tmp_path)


def test_a_finished_run_is_left_as_it_is(corpus, uninterrupted):
    before, log = weights_of(uninterrupted), (uninterrupted / "log.jsonl").read_bytes()
    with open(uninterrupted / "log.jsonl", "ab") as file:
        file.write(b"\0\0\0\n{")  # as a loss of power may leave it
    assert pretrain(corpus, TINY, uninterrupted) is None
    assert weights_of(uninterrupted) == before
    assert (uninterrupted / "log.jsonl").read_bytes() == log


def test_another_corpus_or_other_settings_are_refused(corpus, uninterrupted, tmp_path):
    with pytest.raises(
        InputError, match=r"batch_size 4, now 8, and seed 0, now 1; resume.*another --out"
    ):
        pretrain(corpus, changed(batch_size=8, seed=1), uninterrupted)
    assert "batch_size = 4" in (uninterrupted / "settings.toml").read_text()
    other = make_corpus(tmp_path / "other", SENTENCES)
    record = json.loads((other / "corpus.json").read_text()) | {"fingerprint": "f" * 64}
    (other / "corpus.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="was started with another corpus; resume"):
        pretrain(Corpus.open(other), TINY, uninterrupted)


def test_a_model_without_a_checkpoint_is_not_overwritten(corpus, uninterrupted, tmp_path):
    """Of another run, or of this one, whose checkpoint was removed when it had ended."""
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    (folder / "checkpoint.pt").unlink()
    with pytest.raises(OutputError, match=r"holds a model, but no checkpoint of its run; give"):
        pretrain(corpus, TINY, folder)
    assert weights_of(folder) == weights_of(uninterrupted)


def test_a_run_without_a_step_may_start_with_other_settings(corpus, uninterrupted, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, changed(seed=5, checkpoint_minutes=60.0), tmp_path, report=interrupt)
    before = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert before["step"] == 0
    pretrain(corpus, TINY, tmp_path)
    assert weights_of(tmp_path) == weights_of(uninterrupted)


def interrupt(line):
    raise KeyboardInterrupt


def test_a_file_that_is_no_checkpoint_is_named(corpus, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match="not a checkpoint of elmokit"):
        pretrain(corpus, TINY, tmp_path)


def fill_the_disk(corpus, folder, box):
    """A run of which no file may be larger than a little."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = (folder / "checkpoint.pt").stat().st_size // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        pretrain(corpus, TINY, folder)
    except OutputError as error:
        box.put(str(error))


def test_a_full_disk_does_not_harm_the_last_checkpoint(
    corpus, uninterrupted, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    monkeypatch.setattr(Trainer, "finished", property(lambda trainer: trainer.step >= 10))
    pretrain(corpus, TINY, folder)
    before = (folder / "checkpoint.pt").read_bytes()
    monkeypatch.undo()
    context = multiprocessing.get_context("fork")
    box = context.Queue()
    process = context.Process(target=fill_the_disk, args=(corpus, folder, box))
    process.start()
    assert "cannot be written" in box.get(timeout=60)
    process.join()
    assert (folder / "checkpoint.pt").read_bytes() == before
    pretrain(corpus, TINY, folder)
    assert weights_of(folder) == weights_of(uninterrupted)


def test_a_directory_that_cannot_be_created_is_named(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        pretrain(corpus, TINY, tmp_path / "file" / "run")


def test_weights_do_not_depend_on_when_checkpoints_are_written(corpus, uninterrupted, tmp_path):
    settings = changed(checkpoint_minutes=1e9)
    pretrain(corpus, settings, tmp_path / "run")
    assert weights_of(tmp_path / "run") == weights_of(uninterrupted)


def test_a_directory_in_which_another_process_trains_is_refused(corpus, uninterrupted):
    with (
        DirectoryLock(uninterrupted, "busy"),
        pytest.raises(InputError, match="another process is writing it"),
    ):
        pretrain(corpus, TINY, uninterrupted)


def test_a_run_that_has_begun_is_waited_for_and_says_so(corpus, tmp_path):
    pretrain(corpus, TINY, tmp_path / "run")
    directory = RunDirectory(tmp_path / "run", corpus, TINY, writes=True)
    held = DirectoryLock(tmp_path / "run", "busy")
    lines = []

    def tell(line):
        lines.append(line)
        threading.Timer(0.3, held.release).start()

    with directory.lock(wait_seconds=60, tell=tell):
        pass
    (line,) = lines
    assert "waiting for the process that wrote it to end, 60 seconds at most" in line


def test_the_lock_of_a_run_that_has_not_begun_is_not_waited_for(corpus, tmp_path):
    (tmp_path / "run").mkdir()
    directory = RunDirectory(tmp_path / "run", corpus, TINY, writes=True)
    lines, started = [], time.monotonic()
    with (
        DirectoryLock(tmp_path / "run", "busy"),
        pytest.raises(InputError, match="another process is writing it"),
        directory.lock(wait_seconds=60, tell=lines.append),
    ):
        pass
    assert time.monotonic() - started < 30
    assert not lines
