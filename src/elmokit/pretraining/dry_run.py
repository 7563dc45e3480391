"""A dry run: parameters, memory and time of a run before it starts."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from elmokit import formats
from elmokit.atomic import write_checkpoint
from elmokit.errors import FormatError, OutputError
from elmokit.formats.pretrained import Pretrained
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.run_directory import CHECKPOINT, MODEL, RunDirectory
from elmokit.pretraining.settings import PretrainingSettings
from elmokit.pretraining.trainer import Trainer
from elmokit.pretraining.validation import sample_sentences, validate
from elmokit.process_memory import peak_bytes
from elmokit.progress import duration
from elmokit.scoring import default_streams
from elmokit.threads import find_device

# Steps are timed for so long, and validation on so many words.
_SECONDS_TIMED, _MOST_STEPS_TIMED = 4.0, 50
_WORDS_TIMED = 2000


def dry_run(
    corpus: Corpus,
    settings: PretrainingSettings,
    out: str | Path,
    *,
    init_from: Pretrained | None = None,
    device: str | torch.device = "cpu",
) -> str:
    """Parameters, memory, steps and time, after trying everything that can fail later.

    Every shard is read, a few steps are done, held-out sentences are scored, and a checkpoint is
    written beside `out` and removed.
    """
    checkpoint = RunDirectory(Path(out), corpus, settings, writes=False).read_checkpoint()
    for shard in corpus.shards:
        ids = np.load(shard, mmap_mode="r")
        if not 0 <= ids.min() <= ids.max() < corpus.types:
            raise FormatError(f"{shard}: has ids that no word has; prepare the text again")
    trainer = Trainer(corpus, settings, device=find_device(device))
    start = trainer.start(out, checkpoint, init_from)
    steps_left = trainer.steps_left
    step_seconds = _time_steps(trainer)
    validation_seconds = _time_validation(trainer, steps_left)
    started = time.perf_counter()
    checkpoint_bytes = _write_once(trainer, Path(out))
    saving_seconds = time.perf_counter() - started

    seconds = step_seconds * steps_left + validation_seconds
    if settings.checkpoint_minutes > 0:
        seconds += saving_seconds * (1 + seconds / (60 * settings.checkpoint_minutes))
    else:
        seconds += saving_seconds * steps_left
    model = trainer.model
    modules = {"encoder": model.bilm.encoder, "LSTMs": model.bilm.lstms, "softmax": model.softmax}
    parameters = {
        name: sum(parameter.numel() for parameter in module.parameters())
        for name, module in modules.items()
        if module is not None
    }
    peak = peak_bytes()
    steps_per_epoch = (
        f"{trainer.steps_per_epoch:,.0f}" if trainer.steps_per_epoch >= 1 else "less than one"
    )
    memory = "" if peak is None else f"{peak / 2**20:,.0f} MB at most so far; "
    lines = [
        f"text: {corpus.words:,} words, {corpus.sentences:,} sentences, "
        f"{len(corpus.vocabulary):,} words to predict; {len(corpus.valid):,} sentences held out",
        "parameters: "
        + ", ".join(f"{name} {count:,}" for name, count in parameters.items())
        + f"; {sum(parameters.values()):,} in all",
        f"memory: {memory}a checkpoint takes {checkpoint_bytes / 2**20:,.0f} MB",
        f"steps: {steps_left:,} of {trainer.words_per_step:,} words, {steps_per_epoch} in an epoch",
        f"time: {duration(seconds)}, of which {duration(validation_seconds)} for validation; "
        f"{trainer.words_per_step / step_seconds:,.0f} tokens/s",
    ]
    return "\n".join(lines if start is None else [start, *lines])


def _time_steps(trainer: Trainer) -> float:
    """Seconds per step; the first, which is slower, is not timed."""
    trainer.train_step()
    started, steps = time.perf_counter(), 0
    while steps < _MOST_STEPS_TIMED:
        for _ in range(trainer.settings.encoder_every):  # so that encoder steps have their share
            trainer.train_step()
            steps += 1
        if time.perf_counter() - started > _SECONDS_TIMED:
            break
    return (time.perf_counter() - started) / steps


def _time_validation(trainer: Trainer, steps_left: int) -> float:
    """Seconds of all validations, the last of which is of all held-out text."""
    valid, settings = trainer.corpus.valid, trainer.settings
    if not valid:
        return 0.0
    words = _count_words(sample_sentences(valid, settings.validation_words))
    timed = sample_sentences(valid, _WORDS_TIMED)
    started = time.perf_counter()
    # As many streams as all words make: fewer would take longer for each word.
    validate(trainer.pretrained, timed, streams=default_streams(words))
    seconds_per_word = (time.perf_counter() - started) / _count_words(timed)
    interval = settings.validation_interval or steps_left
    validations = -(-steps_left // interval) if steps_left else 0
    return seconds_per_word * (validations * words + _count_words(valid))


def _count_words(sentences: Sequence[Sequence[str]]) -> int:
    return sum(map(len, sentences))


def _write_once(trainer: Trainer, out: Path) -> int:
    """The size of a checkpoint, after writing one and the model where the run will be."""
    parent = next(path for path in (out, *out.absolute().parents) if path.is_dir())
    try:
        with tempfile.TemporaryDirectory(prefix=".elmokit.", dir=parent) as directory:
            write_checkpoint(vars(trainer.checkpoint()), Path(directory, CHECKPOINT))
            formats.save(trainer.pretrained, Path(directory, MODEL))
            size = Path(directory, CHECKPOINT).stat().st_size
    except OSError as error:
        raise OutputError(f"{parent}: cannot be written ({error.strerror or error})") from None
    free = shutil.disk_usage(parent).free
    if free < 3 * size:  # two checkpoints while one replaces the other, and the model
        raise OutputError(
            f"{parent}: {free / 2**20:,.0f} MB are free, but a run needs {3 * size / 2**20:,.0f} MB"
        )
    return size
