"""A file of sentences becomes an HDF5 file of their vectors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.options import (
    Device,
    Model,
    PrecisionWay,
    StateWay,
    Text,
    TokensPerBatch,
    count_lines,
    lines_of,
    load,
)

if TYPE_CHECKING:
    from elmokit.embed_file import Form


def embed(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="A sentence a line; - is stdin.")],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUTPUT", help="The HDF5 file to make.", show_default=False),
    ] = None,
    model: Model = None,
    all_layers: Annotated[
        bool, typer.Option("--all", help="All layers, (layers, words, dim): the default.")
    ] = False,
    top: Annotated[bool, typer.Option("--top", help="The top layer, (words, dim).")] = False,
    average: Annotated[
        bool, typer.Option("--average", help="The mean of the layers, (words, dim).")
    ] = False,
    layers: Annotated[
        str | None, typer.Option(help="Chosen layers, as in 0,2.", show_default=False)
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16"], typer.Option(help="The numbers in the file.")
    ] = "float32",
    tokenizer: Annotated[
        str, typer.Option(help="How a line becomes words: spaces, moses, characters.")
    ] = "spaces",
    state: StateWay = "zero",
    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            help="With --state carry: a line goes on where the one so many lines before it ended.",
        ),
    ] = 1,
    precision: PrecisionWay = "float32",
    device: Device = "cpu",
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="Leave out sentence_to_index.")
    ] = False,
    use_sentence_keys: Annotated[
        bool, typer.Option("--use-sentence-keys", help="A sentence is its own key.")
    ] = False,
    tokens_per_batch: TokensPerBatch = 4096,
    text: Text = None,
) -> None:
    """Embed a sentence a line into an HDF5 file, one dataset a line.

    Killed and started again, it goes on where it stopped. With --text, only OUTPUT is named.

    Example: elmo embed sentences.txt vectors.hdf5 --average
    """
    given: str | None = source
    if text and target is None:
        given, target = None, Path(source)
    if target is None:
        raise typer.BadParameter("name the HDF5 file to make", param_hint="OUTPUT")
    from elmokit.embed_file import embed_file  # noqa: PLC0415  (torch takes seconds)

    form = _form(all_layers=all_layers, top=top, average=average, layers=layers)
    with lines_of(given, text) as lines:
        count = embed_file(
            load(
                model,
                state=state,
                device=device,
                precision=precision,
                tokens_per_batch=tokens_per_batch,
            ),
            lines,
            target,
            form=form,
            dtype=dtype,
            tokenizer=tokenizer,
            batch_size=batch_size,
            forget_sentences=forget_sentences,
            sentence_keys=use_sentence_keys,
            total=count_lines(given, text),
        )
    typer.echo(f"{target}: {count:,} sentences", err=True)


def _form(*, all_layers: bool, top: bool, average: bool, layers: str | None) -> "Form":
    if sum([all_layers, top, average, layers is not None]) > 1:
        raise typer.BadParameter("choose one of --all, --top, --average and --layers")
    if layers is not None:
        try:
            return tuple(int(number) for number in layers.split(","))
        except ValueError:
            raise typer.BadParameter(
                f"{layers!r} is not a list of numbers, such as 0,2", param_hint="--layers"
            ) from None
    return "top" if top else "average" if average else "all"
