"""The directory of a pretraining run: settings, log, checkpoint, best model."""

import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from elmokit import formats
from elmokit.atomic import (
    DirectoryLock,
    read_checkpoint,
    rename_atomically,
    write_atomically,
    write_checkpoint,
)
from elmokit.errors import InputError, OutputError
from elmokit.formats.pretrained import Pretrained
from elmokit.pretrain.checkpoint import NAME, Checkpoint
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.run import Run
from elmokit.pretrain.settings import PretrainingSettings, changed_settings, parse_settings
from elmokit.pretrain.validation import Validation

SETTINGS, MODEL = "settings.toml", "model"


@dataclass(frozen=True)
class RunFolder:
    """Where a run is kept; only the first rank writes."""

    path: Path
    writes: bool

    def check(self, corpus: Corpus, settings: PretrainingSettings) -> None:
        """Refuse a folder that another text or other settings made."""
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path}: cannot be written (it is a file)")
        checkpoint = read_checkpoint(self.path / NAME, Checkpoint)
        has_model = (self.path / MODEL).exists()
        if checkpoint is None and has_model:
            raise OutputError(
                f"{self.path}: holds a {MODEL}, but no checkpoint of its run; give another --out "
                "(and --init-from, to begin with that model)"
            )
        if checkpoint is not None and not checkpoint.update and not has_model:
            return  # nothing was learnt yet
        if checkpoint is not None and checkpoint.corpus != corpus.fingerprint:
            raise InputError(
                f"{self.path}: this run reads another text than {corpus.folder}; give its own "
                "text, or another --out"
            )
        if checkpoint is not None:
            before = parse_settings(checkpoint.settings, str(self.path / NAME))
            changed = changed_settings(settings, before)
            told = ", ".join(f"{n} {getattr(before, n)} → {getattr(settings, n)}" for n in changed)
            if changed:
                raise InputError(
                    f"{self.path}: this run has other settings ({told}); go on with the same, or "
                    "give another --out (and --init-from, to begin with this model)"
                )

    def claim(self, settings: PretrainingSettings) -> AbstractContextManager[object]:
        """A hold on the folder, which is made, so that no other process trains there."""
        if not self.writes:
            return nullcontext()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            claim = DirectoryLock(
                self.path, f"{self.path}: another process trains there; wait for its end"
            )
            self._tidy(settings)
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written ({error.strerror})") from None
        return claim

    def go_on(self, run: Run) -> bool:
        """Let a run go on from its checkpoint, if there is one."""
        checkpoint = read_checkpoint(self.path / NAME, Checkpoint)
        if checkpoint is None or not checkpoint.update:
            return False
        run.go_on(checkpoint)
        return True

    def save_model(self, run: Run, validation: Validation | None) -> None:
        """Put the model in place of the best one so far."""
        if not self.writes:
            return
        run.model.copy_tied_embedding()
        new, old, place = (self.path / name for name in (".model.new", ".model.old", MODEL))
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        formats.save(replace(run.pretrained, card=_card(run, validation)), new)
        if place.exists():
            place.rename(old)
        rename_atomically(new, place)
        shutil.rmtree(old, ignore_errors=True)

    def best_model(self) -> Pretrained:
        """The model that `save_model` put in place last."""
        return formats.load(self.path / MODEL)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Put the checkpoint in place of the last one."""
        if self.writes:
            write_checkpoint(vars(checkpoint), self.path / NAME)

    def _tidy(self, settings: PretrainingSettings) -> None:
        for left in self.path.glob(".*.unfinished"):  # by a run that was killed
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        text = settings.to_toml().encode()
        write_atomically(self.path / SETTINGS, lambda file: file.write(text))
        old, place = self.path / ".model.old", self.path / MODEL
        if old.exists() and not place.exists():  # killed between two names
            rename_atomically(old, place)


def _card(run: Run, validation: Validation | None) -> str:
    corpus, settings = run.corpus, run.settings
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    return (
        "# An ELMo model\n\n"
        f"Pretrained by elmokit on {corpus.words:,} words in {corpus.sentences:,} sentences, split "
        f"by `{corpus.tokenizer}`; {len(corpus.vocabulary):,} words to predict; {parameters:,} "
        f"parameters; {run.done:,} updates of {run.words_per_update:,} words.\n\n"
        f"Held-out text: {validation or 'none'}.\n\n"
        f"PretrainingSettings:\n\n```toml\n{settings.to_toml()}```\n{_past(run.begun_with)}"
    )


def _past(card: str | None) -> str:
    """What the card of the model that a run began with said."""
    if card is None:
        return ""
    quoted = "".join(f"> {line}".rstrip() + "\n" for line in card.splitlines()) or "> nothing\n"
    return f"\nIt began with the weights of another model, whose card said:\n\n{quoted}"
