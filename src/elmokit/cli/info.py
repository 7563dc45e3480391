"""A model becomes a page about it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import Model, load

if TYPE_CHECKING:
    from torch.nn import Module


def info(
    names: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[MODEL...]",
            help="A folder or zip; or options and weights.",
            show_default="the English model that ships",
        ),
    ] = None,
    model: Model = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show what a model is: sizes, parameters, layers, vocabulary, hash.

    Example: elmo info
    """
    files = [*(names or []), *(model or [])]
    if len(files) > 2:
        raise typer.BadParameter("give a folder, a zip, or two files", param_hint="MODEL")
    pretrained = load(files).pretrained
    bilm, softmax = pretrained.model.bilm, pretrained.model.softmax
    config, characters = bilm.config, bilm.config.characters

    def parameters(module: "Module") -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    facts: dict[str, object] = {
        "input": "words"
        if characters is None
        else f"characters, {characters.max_characters} a word",
        "directions": ", ".join(config.directions),
        "layers": config.num_layers + 1,
        "vector": config.output_size,
        "memory": config.cell_size,
        "skip connections": config.skip_connections,
        "clips": [config.cell_clip, config.projection_clip],
        "encoder parameters": parameters(bilm.encoder),
        "reader parameters": parameters(bilm.lstms),
        "softmax words": None if softmax is None else softmax.num_words,
        "vocabulary": None if pretrained.vocabulary is None else len(pretrained.vocabulary),
        "split": pretrained.tokenizer,
        "hash": pretrained.fingerprint(),
    }
    if characters is not None:
        facts |= {
            "filters": [list(pair) for pair in characters.filters],
            "activation": characters.activation,
            "highways": characters.highway_layers,
        }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:20}{value:,}" if type(value) is int else f"{name:20}{value}")
