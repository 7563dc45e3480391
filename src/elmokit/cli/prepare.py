"""Files of text become a corpus to train on."""

from pathlib import Path
from typing import Annotated

import typer

import elmokit


def prepare(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="CORPUS...",
            help="Files, folders, globs, - for stdin; plain, .gz, .xz, .zst.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="The folder to make.", show_default=False)
    ],
    tokenizer: Annotated[
        str, typer.Option(help="How text becomes words: moses, moses-de, spaces, characters.")
    ] = "moses",
    wrapped: Annotated[
        bool, typer.Option("--wrapped", help="Paragraphs end at blank lines, not at every line.")
    ] = False,
    valid: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to hold out, as CORPUS; may be repeated.",
            show_default="every 500th line, up to 50,000 words",
        ),
    ] = None,
    no_valid: Annotated[bool, typer.Option("--no-valid", help="Hold nothing out.")] = False,
    min_count: Annotated[
        int | None,
        typer.Option(min=1, help="Words as frequent as this are predicted.", show_default="3"),
    ] = None,
    max_words: Annotated[
        int | None,
        typer.Option(min=4, help="At most so many, <S> </S> <UNK> with them.", show_default=False),
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(help="A file with the words to predict, a line each.", show_default=False),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out lines that cannot be used.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="So many processes.", show_default="one a core"),
    ] = None,
) -> None:
    """Turn text into sentences of words, a vocabulary, and ids to train on.

    Killed and started again, it goes on where it stopped. Lines that are not UTF-8, or no text,
    are listed with their files and numbers in faults.tsv.

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
