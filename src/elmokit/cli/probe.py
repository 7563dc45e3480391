"""Tagged sentences become how much each layer tells of the tags, by a linear map."""

import json
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import Device, Model, load


def probe(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="CoNLL columns or CoNLL-U.")],
    dev: Annotated[Path, typer.Argument(metavar="DEV", help="The same, to be judged by.")],
    model: Model = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the order of the words.")] = 0,
    device: Device = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Tell tags by a linear map of each layer: what a layer knows without more learning.

    Example: elmo probe train.conllu dev.conllu
    """
    from elmokit.tasks.catalog import TASKS  # noqa: PLC0415  (torch takes seconds)
    from elmokit.tasks.probe import probe_layers  # noqa: PLC0415

    read = TASKS["pos"].read
    found = probe_layers(load(model, device=device), read(train), read(dev), seed=seed)
    if as_json:
        typer.echo(json.dumps({"accuracy": found}))
        return
    for layer, accuracy in enumerate(found):
        typer.echo(f"layer {layer}  {accuracy:.4f}")
