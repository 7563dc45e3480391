"""The training log: JSON lines, lines of progress, TensorBoard."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.atomic import write_atomically
from elmokit.pretraining.distributed import ProcessGroup
from elmokit.pretraining.validation import Validation
from elmokit.progress import duration

if TYPE_CHECKING:
    from elmokit.pretraining.trainer import StepResult, Trainer

NAME = "log.jsonl"
_FINAL = "perplexity_of_best"


class TrainingLog:
    """The log of a run; what was logged after the checkpoint it resumes from is removed.

    TensorBoard's files are written where tensorboard is installed.
    """

    def __init__(self, directory: Path, trainer: "Trainer", group: ProcessGroup) -> None:
        self._path, self._trainer, self._group = directory / NAME, trainer, group
        self._results: list[StepResult] = []
        self._tensorboard: Any = None
        self._final_step = -1  # of the last validation on all held-out text
        if group.is_first:
            self._remove_after(trainer.step)
            self._tensorboard = _open_tensorboard(directory / "tensorboard", trainer.step)

    def add(self, result: "StepResult") -> None:
        """Keep the result of a step for the next line."""
        self._results.append(result)

    def write_progress(self) -> str:
        """A line about the steps since the last one; its speed leaves out validation."""
        trainer, results, count = self._trainer, self._results, len(self._results)
        self._results = []
        columns = zip(*(result.losses for result in results), strict=True)
        means = self._group.mean([sum(column) / count for column in columns])
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
            except ValueError:  # a loss of power cut it short
                continue
            if line.endswith(b"\n") and record["update"] <= step:
                lines.append(line)
                self._final_step = record["update"] if _FINAL in record else self._final_step
        write_atomically(self._path, b"".join(lines))


def _scalars(record: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """The numbers of a nested record by their paths."""
    scalars: list[tuple[str, float]] = []
    for key, value in record.items():
        if isinstance(value, dict):
            scalars += _scalars(value, f"{prefix}{key}/")
        elif value is not None:
            scalars.append((prefix + key, float(value)))
    return scalars


def _open_tensorboard(directory: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (an extra, and slow)
    except ImportError:
        return None
    return SummaryWriter(str(directory), purge_step=step + 1)
