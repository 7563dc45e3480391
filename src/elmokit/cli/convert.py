"""A model in one format becomes a folder in another."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import elmokit


def convert(
    source: Annotated[Path, typer.Argument(metavar="FROM", help="A folder, zip or options file.")],
    target: Annotated[Path, typer.Argument(metavar="TO", help="The folder to make.")],
    weights: Annotated[
        Path | None,
        typer.Option(help="The weights file, if FROM is an options file.", show_default=False),
    ] = None,
    format: Annotated[
        Literal["elmokit", "bilm-tf"], typer.Option(help="What to write.")
    ] = "elmokit",
    tokenizer: Annotated[
        str | None,
        typer.Option(help="How the model's text is split, if not as it says.", show_default=False),
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Numbers in float16: half the size, not exact.")
    ] = False,
) -> None:
    """Convert a model without loss, from bilm-tf's files to elmokit's folder or back.

    Example: elmo convert elmo_small.zip small
    """
    elmokit.convert(source, target, weights=weights, format=format, tokenizer=tokenizer, half=half)
    typer.echo(f"{target}: written", err=True)
