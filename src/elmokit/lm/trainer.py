"""Prepared text becomes a pretrained model: the story of a run, from start to end."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from elmokit.formats.pretrained import Pretrained
from elmokit.lm.checkpoint import read_checkpoint
from elmokit.lm.corpus import Corpus
from elmokit.lm.distributed import Ranks
from elmokit.lm.folder import RunFolder
from elmokit.lm.inherit import inherit
from elmokit.lm.log import Log
from elmokit.lm.run import Run
from elmokit.lm.settings import Settings
from elmokit.lm.validate import Validation, validate


def pretrain(
    corpus: Corpus,
    settings: Settings,
    out: str | Path,
    *,
    init_from: Pretrained | None = None,
    device: str | torch.device = "cpu",
    tell: Callable[[str], None] = lambda line: None,
) -> Validation | None:
    """Train a model; the best one so far stands in `out/model`. Back comes the last validation.

    A run that was stopped at any moment goes on when it is called again with the same arguments,
    and ends with the same weights. `tell` is given lines for people to read.
    """
    device = torch.device(device)
    ranks = Ranks.join(device)
    folder = RunFolder.open(out, corpus, settings, ranks)
    run = Run(corpus, settings, device=device, ranks=ranks)
    if init_from is not None:
        tell(inherit(run.pretrained, init_from))
    if (checkpoint := read_checkpoint(folder.path)) is not None:
        run.go_on(checkpoint)
        tell(f"going on after update {run.done:,} of {run.updates:,}")

    log = Log(folder.path, run, ranks)
    saved, validation = time.monotonic(), None
    while not run.over:
        log.add(run.update())
        if run.due(settings.log_every):
            tell(log.write_progress())

        if run.due(settings.validate_every):
            validation = validate(run.pretrained, corpus.valid, settings, last=run.due(0))
            tell(log.write_validation(validation))
            if validation is None or validation.score < run.best:
                run.best = float("inf") if validation is None else validation.score
                run.best_update = run.done
                folder.save_model(run, validation)

        late = time.monotonic() - saved > 60 * settings.checkpoint_minutes
        if ranks.told_by_first(late) or run.over:
            folder.save_checkpoint(run.checkpoint())
            saved = time.monotonic()
    log.close()
    ranks.leave()
    return validation
