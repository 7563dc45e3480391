"""A file of texts becomes one vector each, as text or as an array."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

import elmokit
from elmokit.cli.options import (
    Device,
    Model,
    PrecisionWay,
    Split,
    StateWay,
    Text,
    lines_of,
    load,
)


def encode(
    source: Annotated[
        str | None,
        typer.Argument(metavar="INPUT", help="A text a line; - is stdin.", show_default=False),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .npy, .tsv or .jsonl file.", show_default="stdout"),
    ] = None,
    model: Model = None,
    layers: Annotated[str, typer.Option(help="mean, top, concat, or a layer's number.")] = "mean",
    pooling: Annotated[
        Literal["mean", "max", "first", "last"], typer.Option(help="How words become one vector.")
    ] = "mean",
    tokenizer: Split = None,
    state: StateWay = "zero",
    precision: PrecisionWay = "float32",
    device: Device = "cpu",
    text: Text = None,
) -> None:
    """Turn each text into one vector, a line of numbers on stdout or a row of a file.

    Example: elmo encode --text "I ate an apple." --out apple.npy
    """
    if target is not None:
        elmokit.check_table(target)
    with lines_of(source, text) as lines:
        embedder = load(model, state=state, tokenizer=tokenizer, device=device, precision=precision)
        number = re.fullmatch("-?[0-9]+", layers)
        vectors = embedder.encode(
            lines,
            layers=int(layers) if number else layers,  # type: ignore[arg-type]
            pooling=pooling,
        )
    elmokit.write_vectors(vectors, target)
