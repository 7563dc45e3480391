"""What a model knows becomes a file that other programs read."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import elmokit
from elmokit.cli.options import Device, Model, Split, Text, lines_of, load


def dump(
    what: Annotated[
        Literal["softmax", "words", "states"],
        typer.Argument(metavar="WHAT", help="softmax, words or states."),
    ],
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="Of words: one a line, if not the model's own. Of states: text; - is stdin.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to make.", show_default=False),
    ] = None,
    model: Model = None,
    tokenizer: Split = None,
    state: Annotated[
        Literal["zero", "warm"], typer.Option(help="How a sentence starts: fresh or warm.")
    ] = "zero",
    device: Device = "cpu",
    text: Text = None,
) -> None:
    """Write the softmax table, the context-free vectors of words, or the readers' states.

    The softmax goes into .npz, .npy or .txt; words into .txt (word2vec's text) or .npy with
    .words.txt beside; the states after each word into .npz.

    Example: elmo dump words --model run --out words.txt
    """
    if target is None:
        raise typer.BadParameter("name the file to make", param_hint="--out")
    if what == "softmax" and (source or text):
        raise typer.BadParameter("the softmax needs no INPUT")
    embedder = load(model, state=state, tokenizer=tokenizer, device=device)
    if what == "softmax":
        count = elmokit.dump_softmax(embedder, target)
    elif what == "words" and not source and not text:
        count = elmokit.dump_words(embedder, target)
    else:
        with lines_of(source, text) as lines:
            if what == "words":
                count = elmokit.dump_words(embedder, target, (line.strip(" \t") for line in lines))
            else:
                sentences = (words for line in lines for words in embedder.tokenize(line))
                count = elmokit.dump_states(embedder, target, sentences)
    typer.echo(f"{target}: {count:,} {'sentences' if what == 'states' else 'words'}", err=True)
