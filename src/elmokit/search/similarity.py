"""Two sentences become a grid: how alike their words are, one panel a layer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.pooling import Vectors
from elmokit.search.picture import draw_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NUMBERS = 12  # words a side; in a larger grid there is no room for numbers


def compare_words(
    embedder: Embedder, first: Sequence[str], second: Sequence[str]
) -> Vectors:  # (layers, words of the first, words of the second)
    """The cosines between the words of two sentences, in every layer."""
    if not first or not second:
        raise InputError("a sentence has no word; give two sentences with words")
    return cosines_between(*embedder.embed([first, second]))


def cosines_between(one: Vectors, other: Vectors) -> Vectors:  # (layers, words, dim) each
    """The cosines of the words of two sentences, (layers, words of one, words of the other)."""
    cosines: Vectors = _unit(one) @ _unit(other).transpose(0, 2, 1)
    return cosines


def draw_similarity(
    path: Path,
    first: Sequence[str],
    second: Sequence[str],
    cosines: Vectors,  # (layers, words of the first, words of the second)
    *,
    layers: Sequence[int],
) -> None:
    """Draw the cosines in some layers."""

    def draw(figure: "Figure", panels: list["Axes"]) -> None:
        for layer, panel in zip(layers, panels, strict=True):
            image = panel.imshow(cosines[layer], vmin=-1, vmax=1, cmap="RdBu_r")
            panel.set_title(f"layer {layer}")
            panel.set_yticks(range(len(first)), first)
            panel.set_xticks(range(len(second)), second, rotation=60, ha="right")
            if max(len(first), len(second)) <= _MOST_NUMBERS:
                for (row, column), cosine in np.ndenumerate(cosines[layer]):
                    shade = "white" if abs(cosine) > 0.6 else "black"
                    panel.text(
                        column, row, f"{cosine:.2f}",
                        color=shade, ha="center", va="center", fontsize=7,
                    )  # fmt: skip
        figure.colorbar(image, ax=panels, label="cosine")

    size = 1.2 + 0.45 * len(second), 1.4 + 0.38 * len(first)
    draw_panels(path, draw, panels=len(layers), size=size)


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Vectors = vectors / np.maximum(lengths, 1e-12)
    return unit
