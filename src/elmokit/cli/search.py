"""A query becomes the passages of an index nearest to it, or the nearest uses of a word."""

import json
from typing import Annotated

import typer

from elmokit.cli.options import Device, Model, check_utf8, load
from elmokit.errors import InputError


def search(
    place: Annotated[
        str,
        typer.Argument(metavar="INDEX", help="A folder of elmo index build, or its --store."),
    ],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A text.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many.")] = 10,
    word: Annotated[
        str | None,
        typer.Option(help="Find uses like that of this word in QUERY.", show_default=False),
    ] = None,
    any_word: Annotated[
        bool, typer.Option("--any", help="With --word: uses of other words too.")
    ] = False,
    model: Model = None,
    device: Device = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="An object a line.")] = False,
) -> None:
    """Find what is nearest in meaning: cosine, id, file and line, text.

    Example: elmo search uses.index --word play "He will play the violin."
    """
    from elmokit.search.index import Index  # noqa: PLC0415  (torch takes seconds)

    if any_word and word is None:
        raise InputError("--any was given without --word")
    check_utf8(query, word or "")
    with Index.open(place, load(model, device=device)) as opened:
        if word is None:
            hits = opened.search(query, k=k)
        else:
            hits = opened.search_word(word, query, k=k, any_word=any_word)
    for hit in hits:
        if as_json:
            typer.echo(json.dumps(hit.to_dict(), ensure_ascii=False))
            continue
        found = hit.passage
        named = "" if found.word is None else f"{found.word}  "
        typer.echo(f"{hit.score:.3f}  {found.id}  {found.file}:{found.line}  {named}{found.text}")
