"""The uses of a word become a map: where each stands, one panel a layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elmokit.errors import InputError
from elmokit.pooling import Vectors
from elmokit.search.clusters import cluster
from elmokit.search.picture import check_picture, draw_panels
from elmokit.search.projection import Plane, project_pca, project_tsne
from elmokit.search.uses import Use

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_EXCERPTS = 24  # points with words beside them; more could not be read
_MARKERS = "os^DvP*X"  # a new one when the ten colours have been used


@dataclass(frozen=True)
class Groups:
    """The names of groups, and the group of each use."""

    names: list[str]
    places: list[int]


def draw_senses(
    path: Path,
    uses: Sequence[Use],
    vectors: Vectors,  # (layers, uses, dim)
    *,
    layers: Sequence[int],
    clusters: int = 2,
    tsne: bool = False,
    seed: int = 0,
) -> Groups:
    """Draw uses in some layers, coloured by label, or by cluster in the last of those layers."""
    check_picture(path)
    if len(uses) < 2:
        raise InputError("there is only one use; a map needs two or more")
    groups = group_uses(uses, vectors[layers[-1]], clusters=clusters, seed=seed)
    planes = [
        project_tsne(vectors[layer], seed=seed) if tsne else project_pca(vectors[layer])
        for layer in layers
    ]

    def draw(figure: "Figure", panels: list["Axes"]) -> None:
        for layer, plane, panel in zip(layers, planes, panels, strict=True):
            panel.set_title(f"layer {layer}")
            _draw_plane(panel, plane, uses, groups)
        if len(groups.names) > 1:
            handles, names = panels[0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside lower center", ncols=4)
        figure.suptitle(f"{len(uses)} uses of {' / '.join(sorted({use.word for use in uses})[:6])}")

    draw_panels(path, draw, panels=len(layers), size=(4.2, 4.4))
    return groups


def group_uses(uses: Sequence[Use], vectors: Vectors, *, clusters: int, seed: int = 0) -> Groups:
    """The uses by their labels; without labels, by k-means of their vectors, (uses, dim)."""
    if uses[0].label is not None:
        names = sorted({use.label or "" for use in uses})
        return Groups(names, [names.index(use.label or "") for use in uses])
    places = cluster(vectors, clusters=min(clusters, len(uses)), seed=seed).tolist()
    return Groups([f"cluster {k + 1}" for k in range(max(places) + 1)], places)


def _draw_plane(panel: "Axes", plane: Plane, uses: Sequence[Use], groups: Groups) -> None:
    places = np.array(groups.places)
    for group, name in enumerate(groups.names):
        points = plane.points[places == group]
        panel.scatter(
            points[:, 0], points[:, 1], s=22, alpha=0.8, label=name,
            color=f"C{group % 10}", marker=_MARKERS[group // 10 % len(_MARKERS)],
        )  # fmt: skip
    low, high = plane.points[:, 0].min(), plane.points[:, 0].max()
    if high - low < 1e-6:  # layer 0 of one word
        panel.annotate(
            "all the same", (low, plane.points[0, 1]), (6, 3), textcoords="offset points"
        )
    elif len(uses) <= _MOST_EXCERPTS:
        for (x, y), here in _spots(uses, plane).items():
            left = x > (low + high) / 2  # where there is more room
            said = here[0].excerpt(2) if len(here) == 1 else f"{len(here)} uses of {here[0].word}"
            panel.annotate(
                said, (x, y), (-4 if left else 4, 3), textcoords="offset points",
                ha="right" if left else "left", fontsize=6,
            )  # fmt: skip
    panel.set_xticks([])
    panel.set_yticks([])
    if plane.shares is not None:
        panel.set_xlabel(f"first direction ({plane.shares[0]:.0%} of variance)")
        panel.set_ylabel(f"second ({plane.shares[1]:.0%})")


def _spots(uses: Sequence[Use], plane: Plane) -> dict[tuple[float, float], list[Use]]:
    """The uses at each point: in layer 0 those of one form stand on each other."""
    spots: dict[tuple[float, float], list[Use]] = {}
    for use, (x, y) in zip(uses, plane.points.round(5).tolist(), strict=True):
        spots.setdefault((x, y), []).append(use)
    return spots
