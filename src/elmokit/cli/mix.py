"""Trained heads become the shares of the layers in their mixes, as text or as a picture."""

from pathlib import Path
from typing import Annotated

import typer


def mix(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="What elmo train made.")],
    plot: Annotated[
        Path | None,
        typer.Option(help="A picture to make, .svg or .png.", show_default=False),
    ] = None,
) -> None:
    """Show how much of each layer a task learnt to use, as shares of 1.

    Example: elmo mix ner srl --plot mix.svg
    """
    from elmokit.tasks.catalog import TASKS  # noqa: PLC0415  (torch takes seconds)
    from elmokit.tasks.folder import load_trained  # noqa: PLC0415

    rows = []
    for folder in folders:
        words = load_trained(folder, TASKS).head.words
        layers = words.frozen.layers if words.frozen is not None else words.settings.layers
        for place, shares in words.shares().items():
            rows.append((str(folder), place, shares))
            named = zip(layers or range(len(shares)), shares, strict=True)
            told = "  ".join(f"layer {layer} {share:.3f}" for layer, share in named)
            typer.echo(f"{folder}  {place:7}{told}")
        if not words.shares():
            typer.echo(f"{folder}  has no mix: it was trained without ELMo")
    if plot is not None:
        _plot(rows, plot)
        typer.echo(f"{plot}: {len(rows)} mixes", err=True)


def _plot(rows: list[tuple[str, str, list[float]]], path: Path) -> None:
    from elmokit.errors import InputError  # noqa: PLC0415

    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise InputError("a picture needs matplotlib: pip install 'elmokit[plot]'") from None
    if not rows:
        raise InputError("nothing to draw: none of the folders has a mix")
    figure = Figure(figsize=(2 + max(len(r[2]) for r in rows), 1 + 0.5 * len(rows)))
    axes = figure.subplots()
    image = axes.imshow([shares for _, _, shares in rows], vmin=0, vmax=1, cmap="viridis")
    axes.set_yticks(range(len(rows)), [f"{Path(name).name}, {place}" for name, place, _ in rows])
    axes.set_xticks(range(len(rows[0][2])), [f"layer {k}" for k in range(len(rows[0][2]))])
    figure.colorbar(image, label="share")
    figure.savefig(path, bbox_inches="tight")
