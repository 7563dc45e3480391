"""Prepared text becomes a pretrained model, resumed where it was killed."""

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import settings_of, tell


def pretrain(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="What elmo prepare wrote.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the run.")],
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            help="A preset (tiny, small, medium, original, english), a TOML file, or the "
            "options.json of bilm-tf.",
            show_default="small",
        ),
    ] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="A model to begin with.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1.")] = "cpu",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, say what it would take, and end.")
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print every setting, as a TOML file, and end.")
    ] = False,
) -> None:
    """Pretrain a biLM. Killed and started again, it goes on; the best model stands in OUT/model.

    Every setting of --settings is an option too: --batch-size 64, --learning-rate 0.1.

    Example: elmo pretrain prepared --config tiny --out run --epochs 3
    """
    from elmokit import formats  # noqa: PLC0415  (torch takes seconds)
    from elmokit.pretrain.corpus import Corpus  # noqa: PLC0415
    from elmokit.pretrain.dry_run import dry_run as estimate  # noqa: PLC0415
    from elmokit.pretrain.settings import read_settings  # noqa: PLC0415
    from elmokit.pretrain.trainer import pretrain as train  # noqa: PLC0415

    chosen = read_settings(config, settings_of(context.args))
    if settings:
        typer.echo(chosen.to_toml(), nl=False)
        return
    corpus = Corpus.open(data)
    source = None if init_from is None else formats.load(init_from)
    if dry_run:
        typer.echo(estimate(corpus, chosen, out, init_from=source, device=device))
        return
    train(corpus, chosen, out, init_from=source, device=device, report=tell)
