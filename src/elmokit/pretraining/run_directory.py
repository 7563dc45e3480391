"""The directory of a pretraining run: settings, checkpoint, best model, and the log.

The log is JSON lines; it is also shown as lines of progress, and in TensorBoard.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from elmokit import formats
from elmokit.atomic import (
    BusyDirectoryError,
    ResumableDirectory,
    read_checkpoint,
    write_atomically,
    write_checkpoint,
)
from elmokit.errors import OutputError
from elmokit.formats.pretrained import Pretrained
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.distributed import ProcessGroup
from elmokit.pretraining.settings import PretrainingSettings, parse_settings
from elmokit.pretraining.training_windows import Position
from elmokit.pretraining.validation import Validation
from elmokit.progress import duration
from elmokit.toml_settings import to_toml

if TYPE_CHECKING:
    from elmokit.pretraining.trainer import StepResult, Trainer

SETTINGS, CHECKPOINT, MODEL, LOG = "settings.toml", "checkpoint.pt", "model", "log.jsonl"

_FINAL = "perplexity_of_best"  # in the log, a validation of the best model on all held-out text

_SECONDS_BETWEEN_TRIES = 0.2  # to lock the directory

_REMEDY = "resume with the same, or give another --out (and --init-from, to start from this model)"


@dataclass(frozen=True)
class Checkpoint:
    """All state of a run except its text. Random choices follow from the seed and `step`."""

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    hidden: Tensor  # (directions, layers, batch_size, projection_size)
    cell: Tensor  # (directions, layers, batch_size, cell_size)
    positions: list[Position]  # of each micro-batch's streams, one for each direction
    best_score: float
    best_step: int
    settings: str  # as TOML
    corpus: str  # its fingerprint
    initial_card: str | None = None  # the card of the model that the weights came from

    @classmethod
    def from_stored(cls, **values: Any) -> "Checkpoint":
        """The checkpoint of stored values, those that 0.1 wrote too."""
        values = _renamed(values, _KEYS_OF_0_1)
        values["positions"] = [_renamed(p, _POSITION_KEYS_OF_0_1) for p in values["positions"]]
        return cls(**values)


_KEYS_OF_0_1 = {
    "update": "step", "output": "hidden", "memory": "cell", "best": "best_score",
    "best_update": "best_step", "begun_with": "initial_card",
}  # fmt: skip
_POSITION_KEYS_OF_0_1 = {"left": "remaining", "read": "last_ids"}


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}


class RunDirectory:
    """The files of a run; only the first rank writes."""

    def __init__(
        self, path: Path, corpus: Corpus, settings: PretrainingSettings, *, writes: bool
    ) -> None:
        self.path = path
        self._settings, self._writes = settings, writes
        manifest = {**settings.fixed, "corpus": corpus.fingerprint}
        self._directory = ResumableDirectory(path, manifest, manifest_name=None, remedy=_REMEDY)

    @contextmanager
    def lock(
        self, *, wait_seconds: float = 0.0, tell: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """Exclusive use of the directory, which is created; ranks that do not write need none.

        If another process has the lock of a run that has begun, wait so long for its end.
        """
        until: float | None = None
        with ExitStack() as stack:
            while self._writes:
                try:
                    stack.enter_context(self._directory)
                    break
                except BusyDirectoryError:
                    if until is None:
                        has_begun = (self.path / CHECKPOINT).exists()
                        until = time.monotonic() + (wait_seconds if has_begun else 0.0)
                        if tell is not None and has_begun and wait_seconds:
                            tell(
                                f"{self.path}: waiting for the process that wrote it to end, "
                                f"{wait_seconds:.0f} seconds at most"
                            )
                    if time.monotonic() >= until:
                        raise
                    time.sleep(_SECONDS_BETWEEN_TRIES)
            yield

    def read_checkpoint(self) -> Checkpoint | None:
        """The checkpoint to resume from, None if no step is done yet.

        InputError if the run was started with another corpus or with other settings.
        """
        path, has_model = self.path / CHECKPOINT, (self.path / MODEL).exists()
        checkpoint = read_checkpoint(path, Checkpoint.from_stored)
        if checkpoint is None and has_model:
            raise OutputError(
                f"{self.path}: holds a {MODEL}, but no checkpoint of its run; give another --out "
                "(and --init-from, to start from that model)"
            )
        if checkpoint is None or not (checkpoint.step or has_model):
            return None
        before = parse_settings(checkpoint.settings, str(path))
        self._directory.check_manifest({**before.fixed, "corpus": checkpoint.corpus})
        return checkpoint

    def write_settings(self) -> None:
        if self._writes:
            with self._directory.explaining_errors():
                write_atomically(self.path / SETTINGS, to_toml(self._settings))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        if self._writes:
            write_checkpoint(vars(checkpoint), self.path / CHECKPOINT)

    def save_model(self, pretrained: Pretrained, card: str) -> None:
        """Replace the best model so far."""
        if self._writes:
            pretrained.model.copy_tied_embedding()
            save = partial(formats.save, replace(pretrained, card=card))
            self._directory.replace_directory(MODEL, save)

    def load_best_model(self) -> Pretrained:
        return formats.load(self.path / MODEL)


class TrainingLog:
    """The log of a run; what was logged after the checkpoint it resumes from is removed.

    TensorBoard's files are written where tensorboard is installed.
    """

    def __init__(self, directory: Path, trainer: "Trainer", group: ProcessGroup) -> None:
        self._path, self._trainer, self._group = directory / LOG, trainer, group
        self._tensorboard: Any = None
        self._final_step = -1  # of the last validation on all held-out text
        if group.is_first:
            self._remove_after(trainer.step)
            with suppress(ImportError):  # an extra, and slow to import
                from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

                folder = str(directory / "tensorboard")
                self._tensorboard = SummaryWriter(folder, purge_step=trainer.step + 1)

    def write_progress(self, results: "Sequence[StepResult]") -> str:
        """A line about some steps; its speed leaves out validation."""
        trainer, count = self._trainer, len(results)
        columns = zip(*(result.losses for result in results), strict=True)
        means = [sum(column) / count for column in columns]
        means = self._group.mean(means, weight=trainer.num_rows)
        losses = dict(zip(trainer.config.directions, means, strict=True))
        seconds = sum(result.seconds for result in results)
        words_per_second = count * trainer.words_per_step / seconds
        name = "sampled loss" if trainer.loss_is_sampled else "loss"
        self._write(
            epoch=round(trainer.epoch, 4),
            **{name.replace(" ", "_"): losses},
            gradient_norm=sum(result.gradient_norm for result in results) / count,
            learning_rate=results[-1].learning_rate,
            tokens_per_second=round(words_per_second, 1),
        )
        return (
            f"step {trainer.step:,} of {trainer.total_steps:,}: {name} "
            f"{', '.join(f'{direction} {loss:.3f}' for direction, loss in losses.items())}; "
            f"{words_per_second:,.0f} tokens/s, "
            f"{duration(trainer.steps_left * seconds / count)} left"
        )

    def write_validation(self, validation: Validation | None, *, final: bool = False) -> str:
        """A line about a validation; the final one is of the best model on all held-out text."""
        if validation is None:
            return "no held-out text: the model is saved as it is"
        self._write(**{_FINAL if final else "perplexity": asdict(validation)})
        return str(validation)

    @property
    def has_final_validation(self) -> bool:
        """Whether the best model was validated on all held-out text after the last step."""
        return self._final_step == self._trainer.step

    def close(self) -> None:
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _write(self, **record: Any) -> None:
        if not self._group.is_first:
            return
        step = self._trainer.step
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"update": step, **record}) + "\n")
        if self._tensorboard is not None:
            for name, value in _scalars(record):
                self._tensorboard.add_scalar(name, value, step)

    def _remove_after(self, step: int) -> None:
        if not self._path.exists():
            return
        lines = []
        for line in self._path.read_bytes().splitlines(keepends=True):
            try:
                record = json.loads(line)
                is_kept = line.endswith(b"\n") and record["update"] <= step
            except (ValueError, RecursionError, LookupError, TypeError):  # damaged
                continue
            if is_kept:
                lines.append(line)
                self._final_step = record["update"] if _FINAL in record else self._final_step
        write_atomically(self._path, b"".join(lines))


def _scalars(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a nested record by their paths."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _scalars(value, f"{prefix}{key}/")
        elif value is not None:
            yield prefix + key, float(value)
