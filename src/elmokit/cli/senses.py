"""Tagged words become senses of WordNet, layer by layer, beside the first sense."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import Device, Model, load


def senses(
    semcor: Annotated[Path, typer.Argument(metavar="SEMCOR", help="SemCor's archive; - is stdin.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Raganato's XML.")],
    gold: Annotated[Path, typer.Argument(metavar="GOLD", help="Its gold keys.")],
    model: Model = None,
    wordnet: Annotated[
        Path,
        typer.Option(help="WordNet's index.sense, for first senses (Debian: wordnet-sense-index)."),
    ] = Path("/usr/share/wordnet/index.sense"),
    often: Annotated[
        float, typer.Option(help="How much nearer a sense is for the logarithm of its uses.")
    ] = 0.07,
    device: Device = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Choose senses by the nearest mean of SemCor's uses; the first sense where it has none.

    Common senses are a little nearer; --often 0 is the nearest mean alone.

    Example: elmo senses semcor.tar.xz 42D.data.xml 42D.gold.key.txt
    """
    from elmokit.tasks.data.raganato import read_raganato  # noqa: PLC0415  (torch takes seconds)
    from elmokit.tasks.data.semcor import read_semcor  # noqa: PLC0415
    from elmokit.tasks.senses import (  # noqa: PLC0415
        FirstSenses,
        SenseAverages,
        check_often,
        disambiguate,
    )

    check_often(often)
    wanted = read_raganato(data, gold)
    first = FirstSenses.of_wordnet(wordnet)
    averages = SenseAverages(load(model, device=device))
    averages.learn(read_semcor(semcor))
    found = disambiguate(averages, first, wanted, often=often)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    typer.echo(f"{found.instances} words, {found.unknown} of them with the first sense only")
    typer.echo(f"first sense  {found.first_sense:.4f}")
    typer.echo(f"commonest    {found.commonest:.4f}")
    for layer, share in enumerate(found.layers):
        typer.echo(f"layer {layer}      {share:.4f}")
