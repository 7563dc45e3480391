"""Vectors for a picture: two dimensions by PCA or t-SNE, clusters, TensorBoard's projector."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmokit.atomic import write_atomically
from elmokit.errors import InputError, OutputError
from elmokit.pooling import Vectors
from elmokit.threads import native_threads
from elmokit.word_occurrences import Occurrence

_PROJECTOR_VECTORS, _PROJECTOR_METADATA = "vectors.tsv", "metadata.tsv"
_PROJECTOR_CONFIG = (
    "embeddings {",
    f'  tensor_path: "{_PROJECTOR_VECTORS}"',  # relative to the folder
    f'  metadata_path: "{_PROJECTOR_METADATA}"',
    "}",
)


@dataclass(frozen=True)
class Projection:
    """Points in two dimensions, and the share of the variance along each (None for t-SNE)."""

    points: npt.NDArray[np.float64]  # (rows, 2)
    explained_variance: tuple[float, float] | None


@dataclass(frozen=True)
class Groups:
    """The names of groups, and the number of each row's group."""

    names: list[str]
    numbers: list[int]


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
    try:
        from openTSNE import TSNE  # noqa: PLC0415  an extra
    except ImportError:
        raise InputError("t-SNE needs openTSNE: pip install 'elmokit[tsne]'") from None
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


def group_occurrences(
    occurrences: Sequence[Occurrence], vectors: Vectors, *, clusters: int, seed: int = 0
) -> Groups:
    """Occurrences by their labels; without labels, by k-means of their vectors, (rows, dim)."""
    if occurrences[0].label is not None:
        names = sorted({occurrence.label or "" for occurrence in occurrences})
        return Groups(names, [names.index(occurrence.label or "") for occurrence in occurrences])
    numbers = cluster(vectors, clusters=min(clusters, len(occurrences)), seed=seed).tolist()
    return Groups([f"cluster {n + 1}" for n in range(max(numbers) + 1)], numbers)


def cluster(
    vectors: Vectors, *, clusters: int, seed: int = 0
) -> npt.NDArray[np.int64]:  # (rows, dim) -> (rows,)
    """The k-means cluster of each vector, numbered in order of appearance."""
    if not 1 <= clusters <= len(vectors):
        raise InputError(
            f"clusters is {clusters}, expected 1 to {len(vectors)}, the number of vectors"
        )
    try:
        from sklearn.cluster import KMeans  # noqa: PLC0415  an extra
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    except ImportError:
        raise InputError(
            "clusters need scikit-learn: pip install scikit-learn, or label the texts"
        ) from None
    kmeans = KMeans(clusters, n_init=8, random_state=seed)
    with warnings.catch_warnings(), native_threads(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct vectors than clusters
        labels = kmeans.fit_predict(vectors.astype(np.float64))
    order: dict[int, int] = {}
    return np.array([order.setdefault(int(label), len(order)) for label in labels], np.int64)


def write_projector(
    folder: Path, occurrences: Sequence[Occurrence], vectors: Vectors, groups: Groups
) -> None:
    """Write the occurrences for TensorBoard's projector: `tensorboard --logdir FOLDER`.

    vectors.tsv has a line for each, metadata.tsv its word, group and sentence, and
    projector_config.pbtxt names both.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror})") from None
    numbers = ["\t".join(f"{number:.6g}" for number in row) for row in vectors]
    metadata = [
        "\t".join([occurrence.word, groups.names[number], " ".join(occurrence.words)])
        for occurrence, number in zip(occurrences, groups.numbers, strict=True)
    ]
    _write_lines(folder / _PROJECTOR_VECTORS, numbers)
    _write_lines(folder / _PROJECTOR_METADATA, ["word\tgroup\tsentence", *metadata])
    _write_lines(folder / "projector_config.pbtxt", _PROJECTOR_CONFIG)


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    write_atomically(path, "".join(f"{line}\n" for line in lines))
