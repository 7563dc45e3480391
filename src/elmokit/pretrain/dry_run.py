"""A dry run: parameters, memory and time of a run before it begins."""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from elmokit import formats
from elmokit.atomic import write_checkpoint
from elmokit.errors import FormatError, OutputError
from elmokit.formats.pretrained import Pretrained
from elmokit.memory import peak_bytes
from elmokit.pretrain.checkpoint import NAME
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.init_from import inherit
from elmokit.pretrain.run import Run
from elmokit.pretrain.run_dir import RunFolder
from elmokit.pretrain.settings import PretrainingSettings
from elmokit.pretrain.validation import validate
from elmokit.threads import find_device

_UPDATES_TIMED = 3


def estimate(
    corpus: Corpus,
    settings: PretrainingSettings,
    out: str | Path,
    *,
    init_from: Pretrained | None = None,
    device: str | torch.device = "cpu",
) -> str:
    """Parameters, memory, updates and time, after everything was tried that can fail later.

    Every shard is read, a few updates are done, a held-out sentence is scored, and a checkpoint is
    written beside `out` and removed.
    """
    RunFolder(Path(out), writes=False).check(corpus, settings)
    for shard in corpus.shards:
        ids = np.load(shard, mmap_mode="r")
        if not 0 <= ids.min() <= ids.max() < corpus.types:
            raise FormatError(f"{shard}: has ids that no word has; prepare the text again")
    run = Run(corpus, settings, device=find_device(device))
    told = [] if init_from is None else [inherit(run.pretrained, init_from)]
    run.update()
    started = time.perf_counter()
    for _ in range(_UPDATES_TIMED):
        run.update()
    seconds = (time.perf_counter() - started) / _UPDATES_TIMED
    validate(run.pretrained, corpus.valid[:2])
    size = _write_once(run, Path(out))

    counts = {
        "encoder": run.model.bilm.encoder,
        "readers": run.model.bilm.lstms,
        "softmax": run.model.softmax,
    }
    parameters = {
        name: sum(p.numel() for p in part.parameters()) for name, part in counts.items() if part
    }
    hours = seconds * run.updates / 3600
    peak = peak_bytes()
    memory = "" if peak is None else f"{peak / 2**20:,.0f} MB at most so far; "
    return "\n".join(
        [
            *told,
            f"text: {corpus.words:,} words, {corpus.sentences:,} sentences, "
            f"{len(corpus.vocabulary):,} words to predict; "
            f"{len(corpus.valid):,} sentences held out",
            "parameters: "
            + ", ".join(f"{name} {count:,}" for name, count in parameters.items())
            + f"; {sum(parameters.values()):,} in all",
            f"memory: {memory}a checkpoint takes {size / 2**20:,.0f} MB",
            f"updates: {run.updates:,} of {run.words_per_update:,} words, "
            f"{run.updates_per_epoch:,.0f} for all the text once",
            f"time: {run.words_per_update / seconds:,.0f} tokens/s, {hours:,.1f} hours without "
            "validation",
        ]
    )


def _write_once(run: Run, out: Path) -> int:
    """The bytes of a checkpoint, after it was written where the run will be kept."""
    place = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    try:
        with tempfile.TemporaryDirectory(prefix=".elmokit.", dir=place) as folder:
            write_checkpoint(vars(run.checkpoint()), Path(folder, NAME))
            formats.save(run.pretrained, Path(folder, "model"))
            size = (Path(folder) / NAME).stat().st_size
    except OSError as error:
        raise OutputError(f"{place}: cannot be written ({error.strerror or error})") from None
    free = shutil.disk_usage(place).free
    if free < 3 * size:  # two checkpoints while one replaces the other, and the model
        raise OutputError(
            f"{place}: {free / 2**20:,.0f} MB are free, but a run needs {3 * size / 2**20:,.0f} MB"
        )
    return size
