"""Pretraining: from a prepared corpus to a trained model."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from elmokit.errors import ConfigError
from elmokit.formats.pretrained import Pretrained
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.distributed import Ranks
from elmokit.pretrain.init_from import inherit
from elmokit.pretrain.logger import Log
from elmokit.pretrain.run import Run
from elmokit.pretrain.run_dir import RunFolder
from elmokit.pretrain.settings import PretrainingSettings
from elmokit.pretrain.validation import Validation, validate


def pretrain(
    corpus: Corpus,
    settings: PretrainingSettings,
    out: str | Path,
    *,
    init_from: Pretrained | None = None,
    device: str | torch.device = "cpu",
    tell: Callable[[str], None] = lambda line: None,
) -> Validation | None:
    """Train a model; the best one so far stands in `out/model`.

    Back comes how well that one does on all held-out text; None if there is no such text, or if
    it was told before. A run that was stopped at any moment goes on when it is called again with
    the same arguments, and ends with the same weights. `tell` is given lines for people to read.
    """
    device = Ranks.device(device)
    ranks = Ranks.join(device)
    if not ranks.first:
        tell = _silently
    folder = RunFolder(Path(out), writes=ranks.first)
    folder.check(corpus, settings)
    with folder.claim(settings):
        ranks.told_by_first(None)  # the others wait until the folder is there
        run = Run(corpus, settings, device=device, ranks=ranks)
        if folder.go_on(run):
            tell(f"going on after update {run.done:,} of {run.updates:,}")
        elif init_from is not None:
            tell(inherit(run.pretrained, init_from))
            run.begun_with = init_from.card
        if run.done != ranks.told_by_first(run.done):
            raise ConfigError(f"{out}: ranks do not see the same files there; use a shared disk")

        if not run.done:
            folder.save_checkpoint(run.checkpoint())  # the folder is this run's from now on
        log = Log(folder.path, run, ranks)
        saved, judged = time.monotonic(), None
        while not run.over:
            log.add(run.update())
            if run.due(settings.log_interval):
                tell(log.write_progress())

            if run.due(settings.validation_interval):
                validation = validate(run.pretrained, corpus.valid, words=settings.validation_words)
                tell(log.write_validation(validation))
                if run.is_best(None if validation is None else validation.score):
                    folder.save_model(run, validation)

            late = time.monotonic() - saved > 60 * settings.checkpoint_minutes
            if ranks.told_by_first(late) or run.over:
                folder.save_checkpoint(run.checkpoint())
                saved = time.monotonic()
        if ranks.first and corpus.valid and not log.finished:
            judged = validate(folder.best_model(), corpus.valid)
            tell(f"the best model, all held-out text: {log.write_last(judged)}")
        log.close()
        ranks.leave()
        return judged


def _silently(line: str) -> None:
    """What ranks but the first have to say."""
