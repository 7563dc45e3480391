"""The training log: JSON lines, lines of progress, TensorBoard."""

import json
import math
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
        if group.is_first:
            self._remove_after(trainer.step)
            self._tensorboard = _open_tensorboard(directory / "tensorboard", trainer.step)

    def add(self, result: "StepResult") -> None:
        """Keep the result of a step for the next line."""
        self._results.append(result)

    def write_progress(self) -> str:
        """A line about the steps since the last one; its speed leaves out validation."""
        trainer, results, count = self._trainer, self._results, len(self._results)
        columns = zip(*(result.losses for result in results), strict=True)
        losses = self._group.mean([sum(column) / count for column in columns])
        seconds = sum(result.seconds for result in results)
        words_per_second = count * trainer.words_per_step / seconds
        seconds_left = int((trainer.total_steps - trainer.step) * seconds / count)
        name = "sampled loss" if trainer.loss_is_sampled else "loss"
        record = {
            "update": trainer.step,
            "epoch": round(trainer.epoch, 4),
            name.replace(" ", "_"): dict(zip(trainer.config.directions, losses, strict=True)),
            "gradient_norm": sum(result.gradient_norm for result in results) / count,
            "learning_rate": results[-1].learning_rate,
            "tokens_per_second": round(words_per_second, 1),
        }
        self._write(record)
        self._results = []
        loss_by_direction = ", ".join(
            f"{direction} {loss:.3f}"
            for direction, loss in zip(trainer.config.directions, losses, strict=True)
        )
        return (
            f"step {trainer.step:,} of {trainer.total_steps:,}: {name} {loss_by_direction}; "
            f"{words_per_second:,.0f} tokens/s, "
            f"{duration(seconds_left)} left"
        )

    def write_validation(self, validation: Validation | None) -> str:
        """A line about a validation."""
        if validation is not None:
            self._write({"update": self._trainer.step, "perplexity": asdict(validation)})
        return str(validation or "no held-out text: the model is saved as it is")

    @property
    def has_final_validation(self) -> bool:
        """Whether the best model was validated on all held-out text after the last step."""
        if not self._path.exists():
            return False
        lines = self._path.read_text(encoding="utf-8").splitlines()
        return any(
            f'"{_FINAL}"' in line and json.loads(line)["update"] == self._trainer.step
            for line in lines
        )

    def write_final_validation(self, validation: Validation | None) -> str:
        """A line about the best model and all held-out text."""
        if validation is not None:
            self._write({"update": self._trainer.step, _FINAL: asdict(validation)})
        return str(validation)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _write(self, record: dict[str, Any]) -> None:
        if not self._group.is_first:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if self._tensorboard is not None:
            for name, value in _scalars(record):
                self._tensorboard.add_scalar(name, value, self._trainer.step)

    def _remove_after(self, step: int) -> None:
        if not self._path.exists():
            return
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        write_atomically(self._path, "".join(line for line in lines if _step_of(line) <= step))


def _step_of(line: str) -> float:
    """The step of a line; infinite if a loss of power cut the line short."""
    try:
        return float(json.loads(line)["update"]) if line.endswith("\n") else math.inf
    except ValueError:
        return math.inf


def _scalars(record: dict[str, Any], prefix: str = "") -> "list[tuple[str, float]]":
    """The numbers of a nested record by their paths."""
    scalars: list[tuple[str, float]] = []
    for key, value in record.items():
        if isinstance(value, dict):
            scalars += _scalars(value, f"{prefix}{key}/")
        elif value is not None and key != "update":
            scalars.append((prefix + key, float(value)))
    return scalars


def _open_tensorboard(directory: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (an extra, and slow)
    except ImportError:
        return None
    return SummaryWriter(str(directory), purge_step=step + 1)
