"""Plots: contexts of a word by PCA or t-SNE, word similarity, layer weights, training curves."""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elmokit.atomic import write_atomically
from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError, OutputError, needs_extra
from elmokit.pooling import Vectors, unit_vectors
from elmokit.threads import native_threads
from elmokit.word_occurrences import Groups, Occurrence, group_occurrences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRAINING_LOG = "log.jsonl"

logger = logging.getLogger(__name__)

_MAX_EXCERPTS = 24  # points with their text beside them; more could not be read
_MARKERS = "os^DvP*X"  # the next one when all ten colours have been used
_MAX_NUMBERED_WORDS = 12  # in a larger grid there is no room for numbers
_MEASURES = ("loss", "sampled_loss", "perplexity", "scores")
_LOG_SCALE_RATIO = 10  # perplexities that differ by more are drawn on a logarithmic scale
_MAX_MARKED_POINTS = 30

# Dates and versions are left out of files, so that the same plot has the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
}
# Fonts with Chinese characters, used after the default one where they are installed.
_CHINESE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei", "Droid Sans Fallback", "PingFang SC", "Microsoft YaHei", "SimHei",
    "Arial Unicode MS", "Unifont",
)  # fmt: skip


def plot_contexts(
    path: Path,
    occurrences: Sequence[Occurrence],
    vectors: Vectors,  # (layers, occurrences, dim)
    *,
    layers: Sequence[int],
    clusters: int = 2,
    tsne: bool = False,
    seed: int = 0,
) -> Groups:
    """Plot a word's occurrences, one panel per layer, coloured by label.

    Without labels the colours are clusters in the last of those layers.
    """
    check_plot(path)
    if len(occurrences) < 2:
        raise InputError("the word occurs only once; a plot needs two occurrences or more")
    groups = group_occurrences(occurrences, vectors[layers[-1]], clusters=clusters, seed=seed)
    projections = [
        project_tsne(vectors[layer], seed=seed) if tsne else project_pca(vectors[layer])
        for layer in layers
    ]

    def draw(figure: "Figure", panels: list["Axes"]) -> None:
        for layer, projection, panel in zip(layers, projections, panels, strict=True):
            panel.set_title(f"layer {layer}")
            _draw_projection(panel, projection, occurrences, groups)
        if len(groups.names) > 1:
            handles, names = panels[0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside lower center", ncols=4)
        forms = " / ".join(sorted({occurrence.word for occurrence in occurrences})[:6])
        figure.suptitle(f"{len(occurrences)} occurrences of {forms}")

    plot_panels(path, draw, panels=len(layers), panel_inches=(4.2, 4.4))
    return groups


@dataclass(frozen=True)
class Projection:
    """Points in two dimensions, and the share of the variance along each (None for t-SNE)."""

    points: npt.NDArray[np.float64]  # (rows, 2)
    explained_variance: tuple[float, float] | None


def project_pca(vectors: Vectors) -> Projection:  # (rows, dim)
    """The two principal components, each signed so that its largest weight is positive."""
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    with native_threads(1):
        _, singular_values, directions = np.linalg.svd(centred, full_matrices=False)
    axes, variances = np.zeros((2, vectors.shape[1])), np.zeros(2)
    axes[: len(singular_values)] = directions[:2]
    variances[: len(singular_values)] = singular_values[:2] ** 2
    largest = axes[[0, 1], np.abs(axes).argmax(1)]
    axes *= np.where(largest < 0, -1, 1)[:, None]
    first, second = variances / max(float((singular_values**2).sum()), 1e-12)
    return Projection(centred @ axes.T, (float(first), float(second)))


def project_tsne(vectors: Vectors, *, seed: int = 0) -> Projection:  # (rows, dim)
    """t-SNE by openTSNE, initialized with PCA."""
    with needs_extra("t-SNE needs openTSNE", "tsne"):
        from openTSNE import TSNE  # noqa: PLC0415  an extra
    if len(vectors) < 5:
        raise InputError(f"t-SNE needs five vectors or more, found {len(vectors)}; use PCA")
    start = project_pca(vectors).points
    spread = start[:, 0].std()
    if spread < 1e-9:  # all vectors are the same: layer 0 of one word
        return Projection(start, None)
    tsne = TSNE(
        perplexity=min(30.0, (len(vectors) - 1) / 3),
        neighbors="exact" if len(vectors) < 1000 else "approx",
        initialization=start / spread * 1e-4,
        random_state=seed,
    )
    with native_threads(1):
        points = tsne.fit(vectors.astype(np.float64))
    return Projection(np.asarray(points, np.float64), None)


def write_projector(
    folder: Path, occurrences: Sequence[Occurrence], vectors: Vectors, groups: Groups
) -> None:
    """Write the occurrences for TensorBoard's projector: `tensorboard --logdir FOLDER`.

    vectors.tsv has a line for each, metadata.tsv its word, group and sentence, and
    projector_config.pbtxt names both.
    """
    numbers = ["\t".join(f"{number:.6g}" for number in row) for row in vectors]
    metadata = [
        "\t".join([occurrence.word, groups.names[number], " ".join(occurrence.words)])
        for occurrence, number in zip(occurrences, groups.numbers, strict=True)
    ]
    config = 'embeddings {\n  tensor_path: "vectors.tsv"\n  metadata_path: "metadata.tsv"\n}'
    files = {
        "vectors.tsv": numbers,
        "metadata.tsv": ["word\tgroup\tsentence", *metadata],
        "projector_config.pbtxt": [config],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror})") from None
    for name, lines in files.items():
        write_atomically(folder / name, "".join(f"{line}\n" for line in lines))


def plot_similarity(
    path: Path,
    first: Sequence[str],
    second: Sequence[str],
    cosines: Vectors,  # (layers, words of the first, words of the second)
    *,
    layers: Sequence[int],
) -> None:
    """Plot the cosines between the words of two sentences, one panel per layer."""

    def draw(figure: "Figure", panels: list["Axes"]) -> None:
        for layer, panel in zip(layers, panels, strict=True):
            image = panel.imshow(cosines[layer], vmin=-1, vmax=1, cmap="RdBu_r")
            panel.set_title(f"layer {layer}")
            panel.set_yticks(range(len(first)), first)
            panel.set_xticks(range(len(second)), second, rotation=60, ha="right")
            if max(len(first), len(second)) <= _MAX_NUMBERED_WORDS:
                for (row, column), cosine in np.ndenumerate(cosines[layer]):
                    color = "white" if abs(cosine) > 0.6 else "black"
                    panel.text(
                        column, row, f"{cosine:.2f}",
                        color=color, ha="center", va="center", fontsize=7,
                    )  # fmt: skip
        figure.colorbar(image, ax=panels, label="cosine")

    inches = 1.2 + 0.45 * len(second), 1.4 + 0.38 * len(first)
    plot_panels(path, draw, panels=len(layers), panel_inches=inches)


def compare_words(
    embedder: Embedder, first: Sequence[str], second: Sequence[str]
) -> Vectors:  # (layers, words of the first, words of the second)
    """The cosines between the words of two sentences, in every layer."""
    if not first or not second:
        raise InputError("a sentence has no words; give two sentences with words")
    return word_cosines(*embedder.embed([first, second]))


def word_cosines(first: Vectors, second: Vectors) -> Vectors:  # (layers, words, dim) each
    """The cosines between two sentences' words, (layers, words of one, words of the other)."""
    cosines: Vectors = unit_vectors(first) @ unit_vectors(second).transpose(0, 2, 1)
    return cosines


@dataclass(frozen=True)
class LayerWeights:
    """The normalized layer weights of one ScalarMix of a trained model."""

    folder: Path
    position: str  # in the model: "input" or "output"
    layers: tuple[int, ...]
    weights: tuple[float, ...]


def plot_layer_weights(path: Path, mixes: Sequence[LayerWeights]) -> None:
    """Plot layer weights: a row for each mix, a column for each layer that any of them has."""
    if not mixes:
        raise InputError("nothing to plot: none of the folders has layer weights")
    names = [f"{mix.folder.resolve().name}, {mix.position}" for mix in mixes]
    layers = sorted({layer for mix in mixes for layer in mix.layers})
    by_layer = [dict(zip(mix.layers, mix.weights, strict=True)) for mix in mixes]
    grid = [[weights.get(layer, float("nan")) for layer in layers] for weights in by_layer]

    def draw(figure: "Figure", panels: list["Axes"]) -> None:
        (panel,) = panels
        image = panel.imshow(grid, vmin=0, vmax=1, cmap="viridis")
        panel.set_yticks(range(len(mixes)), names)
        panel.set_xticks(range(len(layers)), [f"layer {layer}" for layer in layers])
        figure.colorbar(image, label="weight")

    plot_panels(path, draw, panels=1, panel_inches=(2.0 + len(layers), 1 + 0.5 * len(mixes)))


@dataclass(frozen=True)
class TrainingCurve:
    """One measure of a training log: (step, value) points, by the name of each line."""

    measure: str
    step: str  # "update" or "epoch"
    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


def plot_training(path: Path, curves: Sequence[TrainingCurve]) -> None:
    """Plot each measure in its own panel."""

    def draw(_: "Figure", panels: list["Axes"]) -> None:
        for curve, panel in zip(curves, panels, strict=True):
            for name, points in curve.points.items():
                marker = "." if len(points) < _MAX_MARKED_POINTS else ""
                panel.plot(*zip(*points, strict=True), label=name or None, marker=marker)
            panel.set_title(curve.measure)
            panel.set_xlabel(curve.step)
            values = [value for points in curve.points.values() for _, value in points]
            if curve.measure == "perplexity" and max(values) > _LOG_SCALE_RATIO * min(values):
                panel.set_yscale("log", subs=[2, 5])
                panel.yaxis.set_major_formatter("{x:,.0f}")
                panel.yaxis.set_minor_formatter("{x:,.0f}")
            if any(curve.points):
                panel.legend()

    plot_panels(path, draw, panels=len(curves), panel_inches=(5.0, 3.6))


def read_training_log(run: Path) -> list[TrainingCurve]:
    """The losses, and perplexities or scores, of a pretraining run or a task's training."""
    path = run / TRAINING_LOG if run.is_dir() else run
    if not path.is_file():
        raise InputError(f"{path}: no such file; name the folder of elmo pretrain or elmo train")
    curves: dict[str, TrainingCurve] = {}
    *lines, _ = path.read_bytes().split(b"\n")  # the last line may still be being written
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            step_name = "update" if "update" in record else "epoch"
            step = float(record[step_name])
            for measure in _MEASURES:
                for name, value in _named_values(record.get(measure)):
                    title = measure.replace("_", " ")
                    curve = curves.setdefault(measure, TrainingCurve(title, step_name))
                    curve.points.setdefault(name, []).append((step, value))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise FormatError(
                f"{path}, line {number}: not a line of a training log, expected JSON with an "
                "update or an epoch; was the file cut short?"
            ) from None
    if not curves:
        raise InputError(f"{path}: nothing has been logged yet; wait for the first lines")
    return [*curves.values()]


def plot_panels(
    path: Path,
    draw: Callable[["Figure", list["Axes"]], None],
    *,
    panels: int,
    panel_inches: tuple[float, float],
) -> None:
    """Write a row of panels to an SVG or PNG file, by its extension; same plot, same bytes."""
    check_plot(path)
    import matplotlib  # noqa: PLC0415  an extra
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.font_manager import get_font_names  # noqa: PLC0415

    installed = get_font_names()
    style: Any = {
        "font.family": ["DejaVu Sans", *(font for font in _CHINESE_FONTS if font in installed)],
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "elmokit",  # ids would be random otherwise
        "text.parse_math": False,  # a word may be a dollar sign
    }
    with matplotlib.rc_context(style), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # about missing characters: logged once, below
        figure = Figure(figsize=(panels * panel_inches[0], panel_inches[1]), layout="constrained")
        draw(figure, [*figure.subplots(1, panels, squeeze=False)[0]])
        extension = path.suffix.lower()
        write_atomically(
            path,
            lambda file: figure.savefig(
                file, format=extension[1:], metadata=_METADATA[extension], bbox_inches="tight",
                dpi=150,
            ),
        )  # fmt: skip
    if caught and extension == ".png":
        logger.warning("%s: %s; an SVG file keeps all text", path, caught[0].message)


def check_plot(path: Path) -> None:
    """Refuse an extension that is not .svg or .png, and any plot without matplotlib."""
    if path.suffix.lower() not in _METADATA:
        raise InputError(f"{path}: expected a file that ends in .svg or .png")
    with needs_extra("plots need matplotlib", "plot"):
        import matplotlib  # noqa: F401, PLC0415  an extra


def _draw_projection(
    panel: "Axes", projection: Projection, occurrences: Sequence[Occurrence], groups: Groups
) -> None:
    numbers = np.array(groups.numbers)
    for group, name in enumerate(groups.names):
        points = projection.points[numbers == group]
        panel.scatter(
            points[:, 0], points[:, 1], s=22, alpha=0.8, label=name,
            color=f"C{group % 10}", marker=_MARKERS[group // 10 % len(_MARKERS)],
        )  # fmt: skip
    low, high = projection.points[:, 0].min(), projection.points[:, 0].max()
    if high - low < 1e-6:  # layer 0 of one word
        panel.annotate(
            "all the same", (low, projection.points[0, 1]), (6, 3), textcoords="offset points"
        )
    elif len(occurrences) <= _MAX_EXCERPTS:
        for (x, y), here in _by_point(occurrences, projection).items():
            left = x > (low + high) / 2  # where there is more room
            text = here[0].excerpt(2)
            if len(here) > 1:
                text = f"{len(here)} occurrences of {here[0].word}"
            panel.annotate(
                text, (x, y), (-4 if left else 4, 3), textcoords="offset points",
                ha="right" if left else "left", fontsize=6,
            )  # fmt: skip
    panel.set_xticks([])
    panel.set_yticks([])
    if projection.explained_variance is not None:
        first, second = projection.explained_variance
        panel.set_xlabel(f"first component ({first:.0%} of variance)")
        panel.set_ylabel(f"second component ({second:.0%})")


def _by_point(
    occurrences: Sequence[Occurrence], projection: Projection
) -> dict[tuple[float, float], list[Occurrence]]:
    """The occurrences at each point: in layer 0 those of one form are at the same."""
    by_point: dict[tuple[float, float], list[Occurrence]] = {}
    for occurrence, (x, y) in zip(occurrences, projection.points.round(5).tolist(), strict=True):
        by_point.setdefault((x, y), []).append(occurrence)
    return by_point


def _named_values(value: Any) -> Iterator[tuple[str, float]]:
    """The numbers of a measure by name; of a perplexity, each direction's from each start state."""
    if not isinstance(value, dict):
        yield from [] if value is None else [("", float(value))]
        return
    for name, inner in value.items():
        if isinstance(inner, dict):  # name is the state in which sentences start
            directions = {way: inner.get(way) for way in ("forward", "backward")}
            yield from ((f"{way}, {name}", number) for way, number in _named_values(directions))
        elif inner is not None:
            yield name, float(inner)
