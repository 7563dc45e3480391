"""The shares of layers in mixes become a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.errors import InputError
from elmokit.search.picture import draw_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Shares:
    """How much of each layer the mix at a place of a trained head uses."""

    folder: Path
    place: str
    layers: tuple[int, ...]
    shares: tuple[float, ...]


def draw_mix(path: Path, mixes: Sequence[Shares]) -> None:
    """Draw mixes as rows, layers as columns; a layer that a mix has not is left blank."""
    if not mixes:
        raise InputError("nothing to draw: none of the folders has a mix")
    names = [f"{mix.folder.name}, {mix.place}" for mix in mixes]
    layers = sorted({layer for mix in mixes for layer in mix.layers})
    by_layer = [dict(zip(mix.layers, mix.shares, strict=True)) for mix in mixes]
    grid = [[shares.get(layer, float("nan")) for layer in layers] for shares in by_layer]

    def draw(figure: "Figure", panels: list["Axes"]) -> None:
        (panel,) = panels
        image = panel.imshow(grid, vmin=0, vmax=1, cmap="viridis")
        panel.set_yticks(range(len(mixes)), names)
        panel.set_xticks(range(len(layers)), [f"layer {layer}" for layer in layers])
        figure.colorbar(image, label="share")

    draw_panels(path, draw, panels=1, size=(2.0 + len(layers), 1 + 0.5 * len(mixes)))
