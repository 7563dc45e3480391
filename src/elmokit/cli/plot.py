"""Words, sentences, mixes and runs become pictures: SVG or PNG, by the ending."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.mix import Folders, plot_mixes, read_mixes
from elmokit.cli.options import Device, Model, Split, Text, check_utf8, lines_of, load, tell
from elmokit.errors import InputError

plot = typer.Typer(
    name="plot",
    help="Draw what a model knows, or how it learnt. Needs: pip install 'elmokit[plot]'",
    no_args_is_help=True,
)

Layer = Annotated[
    list[int] | None,
    typer.Option("--layer", help="A layer to draw; may be repeated.", show_default="all"),
]


@plot.command()
def senses(
    word: Annotated[str, typer.Argument(metavar="WORD", help="As it is written, in any case.")],
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="A text a line, or label TAB text; - is stdin.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="A picture.")] = Path("senses.svg"),
    model: Model = None,
    prefix: Annotated[bool, typer.Option("--prefix", help="All words that begin so.")] = False,
    clusters: Annotated[int, typer.Option(min=1, help="Colours, if nothing is labelled.")] = 2,
    tsne: Annotated[bool, typer.Option("--tsne", help="By t-SNE instead of PCA.")] = False,
    layer: Layer = None,
    projector: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the last layer drawn for TensorBoard too: tensorboard --logdir DIR.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of clusters and t-SNE.")] = 0,
    tokenizer: Split = None,
    device: Device = "cpu",
    text: Text = None,
) -> None:
    """Draw where each use of a word stands, one panel a layer.

    Example: elmo plot senses bank sentences.txt --out bank.svg
    """
    from elmokit.occurrences import (  # noqa: PLC0415  (torch takes seconds)
        embed_occurrences,
        find_occurrences,
    )
    from elmokit.plots import check_plot, plot_contexts  # noqa: PLC0415
    from elmokit.projection import write_projector  # noqa: PLC0415

    check_plot(out)
    check_utf8(word)
    with lines_of(source, text) as lines:
        embedder = load(model, tokenizer=tokenizer, device=device)
        layers = _layers(layer, embedder.num_layers)
        name = "--text" if source is None else source
        uses = find_occurrences(word, lines, name=name, tokenize=embedder.tokenize, prefix=prefix)
    vectors = embed_occurrences(embedder, uses)
    groups = plot_contexts(
        out, uses, vectors, layers=layers, clusters=clusters, tsne=tsne, seed=seed
    )
    if projector is not None:
        write_projector(projector, uses, vectors[layers[-1]], groups)
    tell(f"{out}: {len(uses)} uses of {word}, {', '.join(groups.names[:10])}")


@plot.command()
def similarity(
    first: Annotated[str, typer.Argument(metavar="SENTENCE")],
    second: Annotated[str, typer.Argument(metavar="SENTENCE")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A picture.")] = Path("similarity.svg"),
    model: Model = None,
    layer: Layer = None,
    tokenizer: Split = None,
    device: Device = "cpu",
) -> None:
    """Draw how alike the words of two sentences are, one panel a layer.

    Example: elmo plot similarity "He sat on the bank." "The bank lent money."
    """
    from elmokit.plots import check_plot, compare_words, plot_similarity  # noqa: PLC0415

    check_plot(out)
    check_utf8(first, second)
    embedder = load(model, tokenizer=tokenizer, device=device)
    layers = _layers(layer, embedder.num_layers)
    one, other = (
        [w for words in embedder.tokenize(text) for w in words] for text in (first, second)
    )
    plot_similarity(out, one, other, compare_words(embedder, one, other), layers=layers)
    tell(f"{out}: {len(one)} by {len(other)} words")


@plot.command()
def mix(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", "-o", help="A picture.")] = Path("mix.svg"),
) -> None:
    """Draw how much of each layer tasks learnt to use.

    Example: elmo plot mix ner srl --out mix.svg
    """
    plot_mixes(read_mixes(folders), out)


@plot.command()
def curve(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="What elmo pretrain or elmo train made.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A picture.")] = Path("curve.svg"),
) -> None:
    """Draw how a run went: its losses, and its perplexities or scores on held-out text.

    Example: elmo plot curve run --out curve.svg
    """
    from elmokit.plots import plot_training, read_training_log  # noqa: PLC0415  (numpy, later)

    curves = read_training_log(run)
    plot_training(out, curves)
    tell(f"{out}: {', '.join(curve.measure for curve in curves)}")


def _layers(asked: Sequence[int] | None, layers: int) -> list[int]:
    """The layers to draw, each there."""
    for layer in asked or ():
        if not 0 <= layer < layers:
            raise InputError(f"layer {layer} was asked for, but the model has 0 to {layers - 1}")
    return [*(asked or range(layers))]
