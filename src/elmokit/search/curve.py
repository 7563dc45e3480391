"""The log of a run becomes its curves: what was learnt from, and what was held out."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import FormatError, InputError
from elmokit.search.picture import draw_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG = "log.jsonl"

_MEASURES = ("loss", "sampled_loss", "perplexity", "scores")
_WIDE = 10  # perplexities that differ by more than so many times are drawn by their logarithm
_MANY_POINTS = 30  # from so many on, a line shows where they are


@dataclass(frozen=True)
class Curve:
    """What was measured, and its values by name: (step, value), a step being an update or epoch."""

    measure: str
    step: str
    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


def read_curves(run: Path) -> list[Curve]:
    """The losses of a pretraining run or a task's folder, and its perplexities or scores."""
    path = run / LOG if run.is_dir() else run
    if not path.is_file():
        raise InputError(f"{path}: no such file; name the folder of elmo pretrain or elmo train")
    curves: dict[str, Curve] = {}
    *lines, _ = path.read_bytes().split(b"\n")  # a line that is being written is none yet
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            step = "update" if "update" in record else "epoch"
            at = float(record[step])
            for measure in _MEASURES:
                for name, value in _values(record.get(measure)):
                    curve = curves.setdefault(measure, Curve(measure.replace("_", " "), step))
                    curve.points.setdefault(name, []).append((at, value))
        except (ValueError, TypeError, KeyError):
            raise FormatError(
                f"{path}, line {number}: not a line of a run's log, expected JSON with an update "
                "or an epoch; was the file cut short?"
            ) from None
    if not curves:
        raise InputError(f"{path}: nothing was logged yet; wait for the first lines")
    return [*curves.values()]


def draw_curve(path: Path, curves: Sequence[Curve]) -> None:
    """Draw each measure in a panel of its own."""

    def draw(_: "Figure", panels: list["Axes"]) -> None:
        for curve, panel in zip(curves, panels, strict=True):
            for name, points in curve.points.items():
                marker = "." if len(points) < _MANY_POINTS else ""
                panel.plot(*zip(*points, strict=True), label=name or None, marker=marker)
            panel.set_title(curve.measure)
            panel.set_xlabel(curve.step)
            values = [value for points in curve.points.values() for _, value in points]
            if curve.measure == "perplexity" and max(values) > _WIDE * min(values):
                panel.set_yscale("log", subs=[2, 5])
                panel.yaxis.set_major_formatter("{x:,.0f}")
                panel.yaxis.set_minor_formatter("{x:,.0f}")
            if any(curve.points):
                panel.legend()

    draw_panels(path, draw, panels=len(curves), size=(5.0, 3.6))


def _values(found: Any) -> Iterator[tuple[str, float]]:
    """The numbers of a measure by name; of a perplexity, the two readers' from each start."""
    if not isinstance(found, dict):
        yield from [] if found is None else [("", float(found))]
        return
    for name, value in found.items():
        if isinstance(value, dict):  # how a sentence started
            readers = {way: value.get(way) for way in ("forward", "backward")}
            yield from ((f"{way}, {name}", number) for way, number in _values(readers))
        elif value is not None:
            yield name, float(value)
