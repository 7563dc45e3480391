"""Files of text become an index to search, which takes more and forgets."""

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.options import Device, Model, PrecisionWay, Split, load, tell
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.search.passages import Unit

index = typer.Typer(
    name="index",
    help="Make and change an index for elmo search. Needs: pip install 'elmokit[search]', or "
    "'elmokit[postgres]' for one in a database.",
    no_args_is_help=True,
)

Place = Annotated[
    str, typer.Argument(metavar="INDEX", help="A folder, or an address of PostgreSQL.")
]
Corpus = Annotated[
    list[str],
    typer.Argument(metavar="CORPUS...", help="Files, folders, globs, - for stdin; packed or not."),
]


@index.command()
def build(
    corpus: Corpus,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="A new folder.", show_default=False)
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Instead of --out: postgresql://USER@HOST:PORT/DATABASE?index=NAME.",
            show_default=False,
        ),
    ] = None,
    model: Model = None,
    paragraphs: Annotated[
        bool, typer.Option("--paragraphs", help="A vector a line, not a sentence.")
    ] = False,
    words: Annotated[
        bool, typer.Option("--words", help="A vector a word, to search its uses.")
    ] = False,
    layers: Annotated[
        str | None,
        typer.Option(
            help="mean, top, concat, or a layer's number; if not said, 0, and mean for words.",
            show_default=False,
        ),
    ] = None,
    pooling: Annotated[
        Literal["idf", "mean", "max", "first", "last"] | None,
        typer.Option(
            help="How words become one vector; idf is the mean, weighted by how rare words are.",
            show_default="idf, where the model has a vocabulary",
        ),
    ] = None,
    whitening: Annotated[
        Literal["zca", "top", "centre", "none"],
        typer.Option(help="What is taken out, by the corpus's own vectors."),
    ] = "zca",
    kind: Annotated[
        Literal["auto", "flat", "hnsw", "ivf"],
        typer.Option(help="Exact, a graph, or cells (FAISS only); auto: by the number of vectors."),
    ] = "auto",
    tokenizer: Split = None,
    precision: PrecisionWay = "float32",
    device: Device = "cpu",
) -> None:
    """Make an index of text; killed and started again, it goes on where it stopped.

    Example: elmo index build wiki/*.txt --paragraphs --out wiki.index
    """
    from elmokit.search.index import Index  # noqa: PLC0415  (torch takes seconds)
    from elmokit.search.store import is_database_url  # noqa: PLC0415

    place = store if out is None else out
    if place is None or None not in (out, store):
        raise InputError("expected one of --out DIR and --store ADDRESS")
    if is_database_url(place) != (place is store):
        raise InputError("--out takes a folder, and --store an address: postgresql://…")
    if paragraphs and words:
        raise InputError("--paragraphs and --words were given, expected one of them")
    unit: Unit = "paragraphs" if paragraphs else "words" if words else "sentences"
    number = layers and re.fullmatch("-?[0-9]+", layers)
    with Index.build(
        place,
        corpus,
        load(model, tokenizer=tokenizer, device=device, precision=precision),
        unit=unit,
        layers=int(layers) if number else layers,  # type: ignore[arg-type]
        pooling=pooling,
        whitening=whitening,
        kind=kind,
    ) as built:
        counts = built.store.counts()
        tell(
            f"{built.name}: {counts.passages:,} passages, {counts.vectors:,} vectors "
            f"({built.config.kind})"
        )


@index.command()
def add(
    place: Place,
    corpus: Corpus,
    model: Model = None,
    precision: PrecisionWay = "float32",
    device: Device = "cpu",
) -> None:
    """Take more files into an index: all of their passages, or none.

    Example: elmo index add wiki.index news.txt
    """
    from elmokit.search.index import Index  # noqa: PLC0415  (torch takes seconds)

    with Index.open(place, load(model, device=device, precision=precision)) as opened:
        added = opened.add(corpus)
        tell(f"{opened.name}: {added:,} passages more, {len(opened):,} in all")


@index.command()
def delete(
    place: Place,
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="ID...", help="Of passages, as a search shows them."),
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option(help="A file whose passages go; may be repeated.")
    ] = None,
    model: Model = None,
) -> None:
    """Take passages out of an index, by id or by file.

    Example: elmo index delete wiki.index 17 42 --file news.txt
    """
    from elmokit.search.index import Index  # noqa: PLC0415  (torch takes seconds)

    with Index.open(place, load(model)) as opened:
        gone = [*(ids or ()), *(id_ for name in file or () for id_ in opened.passages_of(name))]
        if not gone:
            raise InputError("nothing to delete: give ids, or --file")
        opened.delete(gone)
        tell(f"{opened.name}: {len(set(gone)):,} passages less, {len(opened):,} in all")
