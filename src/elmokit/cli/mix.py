"""Trained heads become the shares of the layers in their mixes, as text or as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import tell

if TYPE_CHECKING:
    from elmokit.plots import LayerWeights

Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="What elmo train made.")]


def mix(
    folders: Folders,
    plot: Annotated[
        Path | None,
        typer.Option(help="A picture to make, .svg or .png.", show_default=False),
    ] = None,
) -> None:
    """Show how much of each layer a task learnt to use, as shares of 1.

    Example: elmo mix ner srl --plot mix.svg
    """
    mixes = []
    for folder in folders:
        own = read_mixes([folder])
        for found in own:
            named = zip(found.layers, found.weights, strict=True)
            told = "  ".join(f"layer {layer} {share:.3f}" for layer, share in named)
            typer.echo(f"{folder}  {found.position:7}{told}")
        if not own:
            typer.echo(f"{folder}  has no mix: it was trained without ELMo")
        mixes += own
    if plot is not None:
        plot_mixes(mixes, plot)


def plot_mixes(mixes: Sequence["LayerWeights"], out: Path) -> None:
    """Draw the mixes of trained heads."""
    from elmokit.plots import plot_layer_weights  # noqa: PLC0415  (torch takes seconds)

    plot_layer_weights(out, mixes)
    tell(f"{out}: {len(mixes)} mixes")


def read_mixes(folders: Sequence[Path]) -> list["LayerWeights"]:
    """The mixes of trained heads, folder by folder."""
    from elmokit.plots import LayerWeights  # noqa: PLC0415  (torch takes seconds)
    from elmokit.tasks.folder import load_trained  # noqa: PLC0415

    mixes = []
    for folder in folders:
        words = load_trained(folder).head.words
        for mix_name, weights in words.layer_weights().items():
            mixes.append(LayerWeights(folder, mix_name, words.layers, tuple(weights)))
    return mixes
