"""The training log: JSON lines, progress for people, TensorBoard."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmokit.atomic import write_atomically
from elmokit.pretrain.distributed import Ranks
from elmokit.pretrain.run import Run, Update
from elmokit.pretrain.validation import Validation

NAME = "log.jsonl"
_OF_BEST = "perplexity_of_best"


class Log:
    """The log of a run; what was logged after the checkpoint it goes on from is forgotten.

    TensorBoard's files are written where tensorboard is installed.
    """

    def __init__(self, folder: Path, run: Run, ranks: Ranks) -> None:
        self._path, self._run, self._ranks = folder / NAME, run, ranks
        self._updates: list[Update] = []
        self._board: Any = None
        if ranks.first:
            self._forget_after(run.done)
            self._board = _open_board(folder / "tensorboard", run.done)

    def add(self, update: Update) -> None:
        """One more update is done."""
        self._updates.append(update)

    def write_progress(self) -> str:
        """A line about the updates since the last one; speed is that of the updates alone."""
        run, updates, count = self._run, self._updates, len(self._updates)
        columns = zip(*(update.losses for update in updates), strict=True)
        losses = self._ranks.mean([sum(column) / count for column in columns])
        seconds = sum(update.seconds for update in updates)
        words_per_second = count * run.words_per_update / seconds
        left = (run.updates - run.done) * seconds / count
        name = "sampled loss" if run.samples else "loss"
        record = {
            "update": run.done,
            "epoch": round(run.epoch, 4),
            name.replace(" ", "_"): dict(zip(run.config.directions, losses, strict=True)),
            "gradient_norm": sum(update.gradient_norm for update in updates) / count,
            "learning_rate": updates[-1].learning_rate,
            "tokens_per_second": round(words_per_second, 1),
        }
        self._write(record)
        self._updates = []
        told = ", ".join(
            f"{way} {loss:.3f}" for way, loss in zip(run.config.directions, losses, strict=True)
        )
        return (
            f"update {run.done:,} of {run.updates:,}: {name} {told}; "
            f"{words_per_second:,.0f} tokens/s, {int(left) // 3600}:{int(left) // 60 % 60:02d} left"
        )

    def write_validation(self, validation: Validation | None) -> str:
        """A line about a validation."""
        if validation is not None:
            self._write({"update": self._run.done, "perplexity": asdict(validation)})
        return str(validation or "no held-out text: the model is saved as it is")

    @property
    def finished(self) -> bool:
        """Whether the model that is kept was judged by all held-out text."""
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        return f'"{_OF_BEST}"' in text

    def write_last(self, validation: Validation | None) -> str:
        """A line about the model that is kept, by all held-out text."""
        if validation is not None:
            self._write({"update": self._run.done, _OF_BEST: asdict(validation)})
        return str(validation)

    def close(self) -> None:
        """Nothing more will be written."""
        if self._board is not None:
            self._board.close()

    def _write(self, record: dict[str, Any]) -> None:
        if not self._ranks.first:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if self._board is not None:
            for name, value in _flat(record):
                self._board.add_scalar(name, value, self._run.done)

    def _forget_after(self, update: int) -> None:
        if not self._path.exists():
            return
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        text = "".join(line for line in lines if _update_of(line) <= update).encode()
        write_atomically(self._path, lambda file: file.write(text))


def _update_of(line: str) -> float:
    """The update that a line is about; endless if it was cut short by a loss of power."""
    try:
        return float(json.loads(line)["update"]) if line.endswith("\n") else math.inf
    except ValueError:
        return math.inf


def _flat(record: dict[str, Any], prefix: str = "") -> "list[tuple[str, float]]":
    found: list[tuple[str, float]] = []
    for key, value in record.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}/")
        elif value is not None and key != "update":
            found.append((prefix + key, float(value)))
    return found


def _open_board(folder: Path, done: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (an extra, and slow)
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=done + 1)
