"""Commands that pretrain a language model: prepare and pretrain."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import elmokit
from elmokit.cli.options import CORPUS_HELP, TOKENIZER_NAMES, resumable, takes_settings, tell

if TYPE_CHECKING:
    from elmokit.pretraining.settings import PretrainingSettings


@resumable("run the same command again to go on from the last part written")
def prepare(
    texts: Annotated[
        list[str], typer.Argument(metavar="CORPUS...", help=CORPUS_HELP, show_default=False)
    ],
    folder: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="DIR", help="The folder to write.", show_default=False),
    ],
    tokenizer: Annotated[
        str,
        typer.Option(
            metavar=TOKENIZER_NAMES,
            help="How raw text is split into sentences and words.",
        ),
    ] = "moses",
    wrapped: Annotated[
        bool,
        typer.Option("--wrapped", help="Paragraphs end at blank lines, not at the end of a line."),
    ] = False,
    valid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CORPUS",
            help="Text to hold out for validation; may be repeated.",
            show_default="every 500th line, up to 50,000 words",
        ),
    ] = None,
    no_valid: Annotated[bool, typer.Option("--no-valid", help="Hold nothing out.")] = False,
    min_count: Annotated[
        int | None,
        typer.Option(
            min=1, help="The vocabulary has the words that occur this often.", show_default="3"
        ),
    ] = None,
    max_words: Annotated[
        int | None,
        typer.Option(
            min=4,
            help="The vocabulary's size at most, <S>, </S> and <UNK> included.",
            show_default=False,
        ),
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with the vocabulary, a word on each line.",
            show_default=False,
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out the lines that cannot be used.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="How many processes to use.", show_default="one for each core"),
    ] = None,
) -> None:
    """Prepare text for pretraining: tokenize it, count a vocabulary, and write ids to train on.

    If it is interrupted, run the same command again to go on. Lines that are not UTF-8, or no
    text, are listed with their files and numbers in DIR/bad_lines.tsv.

    Example: elmo prepare 'news/*.txt.xz' --out corpus --max-words 100000
    """
    if valid and no_valid:
        raise typer.BadParameter("give --valid or --no-valid, not both")
    corpus = elmokit.prepare(
        texts,
        folder,
        tokenizer=tokenizer,
        wrapped=wrapped,
        valid=[] if no_valid else valid,
        min_count=min_count,
        max_words=max_words,
        vocabulary=vocabulary,
        skip_bad=skip_bad,
        workers=workers,
    )
    known = int(corpus.counts[3 : len(corpus.vocabulary)].sum())
    typer.echo(
        f"{corpus.folder}: {corpus.sentences:,} sentences, {corpus.words:,} words, "
        f"{len(corpus.lexicon):,} of them different; the {len(corpus.vocabulary):,} of the "
        f"vocabulary are {known / corpus.words:.1%} of the text; "
        f"{len(corpus.valid):,} sentences held out"
    )


def _default_settings() -> "PretrainingSettings":
    from elmokit.pretraining.settings import PretrainingSettings  # noqa: PLC0415  (torch)

    return PretrainingSettings()


@takes_settings(_default_settings)
@resumable("run the same command again to go on from the last checkpoint")
def pretrain(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="The folder that elmo prepare wrote.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of the run.")],
    given: dict[str, str],
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            metavar="tiny|small|medium|original|english|FILE",
            help="A preset, a TOML file of settings, or bilm-tf's options.json; single settings "
            "are then changed by their options.",
            show_default="small",
        ),
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="A model whose weights to start from.", show_default=False
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda|cuda:N", help="Where to compute.")
    ] = "cpu",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything and estimate time and memory; train nothing."
        ),
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print all settings as a TOML file; train nothing.")
    ] = False,
) -> None:
    """Pretrain a biLM on prepared text; the best model so far is in DIR/model.

    If it is interrupted, run the same command again to go on from the last checkpoint. The
    defaults of the settings are those of the preset small.

    Example: elmo pretrain corpus --config tiny --out run --epochs 3 --batch-size 64
    """
    from elmokit import formats  # noqa: PLC0415  (torch takes seconds)
    from elmokit.pretraining.corpus import Corpus  # noqa: PLC0415
    from elmokit.pretraining.dry_run import dry_run as estimate  # noqa: PLC0415
    from elmokit.pretraining.settings import read_settings  # noqa: PLC0415
    from elmokit.pretraining.trainer import pretrain as train  # noqa: PLC0415
    from elmokit.toml_settings import to_toml  # noqa: PLC0415

    chosen = read_settings(config, given)
    if settings:
        typer.echo(to_toml(chosen), nl=False)
        return
    corpus = Corpus.open(data)
    source = None if init_from is None else formats.load(init_from)
    if dry_run:
        typer.echo(estimate(corpus, chosen, out, init_from=source, device=device))
        return
    train(corpus, chosen, out, init_from=source, device=device, report=tell)
