"""Commands that search and draw: index (build, add, delete, info), search and plot."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import typer

from elmokit.cli.options import (
    AS_JSON,
    CORPUS_HELP,
    TEXT,
    ElmoGroup,
    Load,
    PoolingName,
    add_command,
    argument,
    check_utf8,
    counted,
    group,
    is_shard_folder,
    layers_option,
    lines_of,
    listed,
    option,
    parse_layers,
    pooling_option,
    print_facts,
    resumable,
    takes_model,
    tell,
)
from elmokit.cli.tasks import FOLDERS, draw_layer_weights, read_layer_weights
from elmokit.errors import InputError
from elmokit.search import MODES
from elmokit.whitening import WHITENING_METHODS, WhiteningMethod

_LOCATION = argument("INDEX", "The folder of an index, or its PostgreSQL URL.")
_STEMMER = option(
    "How the endings of words are ignored: a language of Snowball's stemmers, such as english, or "
    "none.",
    metavar="NAME",
    show_default="by the language of the model's tokenizer",
)
_CORPUS = argument("CORPUS...", CORPUS_HELP)
_LAYER = option("A layer to draw; may be repeated.", None, "--layer", show_default="all")


def picture(default: str) -> Any:
    """The option for the file of a picture."""
    about = "The picture to draw, .svg or .png."
    return option(about, Path(default), "--out", "-o", metavar="FILE")


def _index() -> Any:
    from elmokit.search.index import Index  # noqa: PLC0415  (torch takes seconds)

    return Index


@resumable("run the same command again to go on after the last part written")
@takes_model("tokenizer", "precision", "kernel")
def build(
    load: Load,
    corpus: list[str] = _CORPUS,
    out: str | None = option("A new folder.", None, "--out", "-o", metavar="DIR"),
    store: str | None = option(
        "Instead of --out: postgresql://USER@HOST:PORT/DATABASE?index=NAME.", metavar="URL"
    ),
    paragraphs: bool = option("Index lines as they are, not their sentences.", False),
    words: bool = option("Index every word, to search for its occurrences.", False),
    layers: str | None = layers_option(
        "Which layers",
        None,
        names=["mean", "top", "concat"],
        show_default="0, and mean with --words",
    ),
    vector_per: Literal["sentence", "passage"] = option(
        "With --paragraphs: a vector for each sentence of a line, or only one for all of it.",
        "sentence",
    ),
    pooling: PoolingName | None = pooling_option(
        "How the vectors of words become one vector",
        show_default="idf, where the model has a vocabulary",
    ),
    whitening: WhiteningMethod = option(
        f"How the vectors are whitened: {listed(WHITENING_METHODS)}.", "zca"
    ),
    kind: Literal["auto", "flat", "hnsw", "ivf"] = option(
        "The FAISS index: exact (flat), a graph (hnsw) or cells (ivf); auto chooses by the number "
        "of vectors.",
        "auto",
    ),
    stemmer: str | None = _STEMMER,
) -> None:
    """Build an index of text to search by words and by meaning.

    If it is interrupted, run the same command again to go on. CORPUS may be one folder of shards
    that elmo embed wrote: its vectors are taken as they are.

    Example: elmo index build 'wiki/*.txt' --paragraphs --out wiki.index

    Example: elmo index build vectors/ --store postgresql://me@db/texts?index=wiki
    """
    from elmokit.search.store import is_database_url  # noqa: PLC0415  (torch takes seconds)

    location = store if out is None else out
    if location is None or None not in (out, store):
        raise typer.BadParameter("expected one of --out DIR and --store URL")
    if is_database_url(location) != (location is store):
        raise typer.BadParameter("--out takes a folder, and --store a URL: postgresql://…")
    if paragraphs and words:
        raise typer.BadParameter("--paragraphs and --words were given, expected one of them")
    shards = corpus[0] if len(corpus) == 1 and is_shard_folder(corpus[0]) else None
    if shards is not None:
        of_text = {
            "--paragraphs": paragraphs, "--words": words, "--layers": layers, "--pooling": pooling,
            "--vector-per passage": vector_per == "passage",
            "--tokenizer": load.keywords["tokenizer"],
        }  # fmt: skip
        if given := [name for name, value in of_text.items() if value]:
            raise typer.BadParameter(
                f"{given[0]} is not for shards, whose vectors are there already; leave it out"
            )
        built = _index().build_from_shards(
            location, shards, load(), whitening=whitening, kind=kind, stemmer=stemmer
        )
    else:
        built = _index().build(
            location,
            corpus,
            load(),
            unit="paragraphs" if paragraphs else "words" if words else "sentences",
            layers=None if layers is None else parse_layers(layers),
            pooling=pooling,
            whitening=whitening,
            kind=kind,
            vector_per=vector_per,
            stemmer=stemmer,
        )
    with built:
        counts = built.store.counts()
        tell(
            f"{built.name}: {counted(counts.passages, 'passage')}, "
            f"{counted(counts.vectors, 'vector')} ({built.config.kind})"
        )
        part = built.store.lexical_part
        if shards is not None and part is not None:
            tell(f"words count without their endings by the stemmer {part.stemmer!r} (--stemmer)")
        if built.config.whitening != whitening:
            tell("so few vectors cannot be whitened: they are stored as with --whitening none")


@resumable("nothing was added; run the same command again to add the files")
@takes_model("precision", "kernel")
def add(load: Load, location: str = _LOCATION, corpus: list[str] = _CORPUS) -> None:
    """Add files to an index: all of their passages, or none if it is interrupted.

    Example: elmo index add wiki.index news.txt
    """
    with _index().open(location, load()) as opened:
        added = opened.add(corpus)
        tell(f"{opened.name}: {counted(added, 'passage')} added, {len(opened):,} in all")


@takes_model()
def delete(
    load: Load,
    location: str = _LOCATION,
    ids: list[int] | None = argument(
        "[ID...]", "The ids of passages, as a search shows them.", None
    ),
    file: list[str] | None = option(
        "Delete all passages of this file; may be repeated.", metavar="FILE"
    ),
) -> None:
    """Delete passages from an index, by their ids or by their file.

    Example: elmo index delete wiki.index 17 42 --file news.txt
    """
    with _index().open(location, load()) as opened:
        deleted = {*(ids or ()), *(i for name in file or () for i in opened.passages_of(name))}
        if not deleted:
            raise typer.BadParameter("nothing to delete: give ids, or --file")
        opened.delete([*deleted])
        tell(f"{opened.name}: {counted(len(deleted), 'passage')} deleted, {len(opened):,} in all")


@resumable("nothing was changed; run the same command again")
@takes_model()
def upgrade(
    load: Load,
    location: str = _LOCATION,
    stemmer: str | None = _STEMMER,
) -> None:
    """Make the lexical part of an index anew, which earlier versions did not make.

    Example: elmo index upgrade wiki.index
    """
    with _index().open(location, load()) as opened:
        opened.upgrade(stemmer=stemmer)
        tell(f"{opened.name}: {counted(len(opened), 'passage')} can be searched by words, too")


def info(location: str = _LOCATION, as_json: bool = AS_JSON) -> None:
    """Show what an index holds, and how and with which model it was built.

    Example: elmo index info wiki.index
    """
    from elmokit.search.store import read_index_info  # noqa: PLC0415  (torch takes seconds)

    summary = read_index_info(location)
    config = (
        "unit", "vector_per", "layers", "pooling", "whitening", "kind", "tokenizer", "state",
        "model",
    )  # fmt: skip
    facts = {
        "passages": summary.passages,
        "vectors": summary.vectors,
        "files": summary.files,
        "bytes": summary.size_bytes,
        "dim": summary.dim,
        **{name: getattr(summary.config, name) for name in config},
        "stemmer": summary.stemmer or "no lexical part",
    }
    print_facts(facts, as_json=as_json)


index = group(
    "index",
    """Build, change and describe an index for elmo search.

    Needs: pip install 'elmokit[search]', or 'elmokit[postgres]' for an index in PostgreSQL.

    Example: elmo index build 'wiki/*.txt' --out wiki.index""",
)
for command in (build, add, delete, upgrade, info):
    add_command(index, command)


@takes_model("precision", "kernel")
def search(
    load: Load,
    location: str = _LOCATION,
    query: str = argument("QUERY", "The text to search for."),
    k: int = option("How many results to print.", 10, "-k", min=1),
    mode: Literal["hybrid", "semantic", "lexical"] | None = option(
        f"What counts: {listed(MODES)}.", show_default="hybrid, if the index has a lexical part"
    ),
    file: list[str] | None = option(
        "Search only files of this name, or that match this quoted glob; may be repeated.",
        metavar="GLOB",
    ),
    word: str | None = option("Find occurrences of this word used as it is in QUERY."),
    any_word: bool = option("With --word: find other words used alike, too.", False, "--any"),
    as_json: bool = option("Print a line of JSON for each result.", False, "--json"),
) -> None:
    """Search an index; print score, id, file and line, and text of what matches best.

    Example: elmo search wiki.index "painters of the sea" --file 'art/*.txt'
    """
    if any_word and word is None:
        raise typer.BadParameter("--any was given without --word")
    if word is not None and mode not in (None, "semantic"):
        raise typer.BadParameter(f"--mode {mode} was given with --word, expected semantic")
    check_utf8(query, word or "")
    with _index().open(location, load()) as opened:
        if word is None:
            if mode is None and opened.mode == "semantic" and opened.config.unit != "words":
                tell(
                    f"{opened.name} has no lexical part, so only meaning counts; add it: "
                    f"elmo index upgrade {opened.name}"
                )
            hits = opened.search(query, k=k, mode=mode, files=file or ())
        else:
            hits = opened.search_word(word, query, k=k, any_word=any_word, files=file or ())
    for hit in hits:
        if as_json:
            typer.echo(json.dumps(hit.to_dict(), ensure_ascii=False))
            continue
        passage = hit.passage
        shown = "" if passage.word is None else f"{passage.word}  "
        typer.echo(
            f"{hit.score:.3f}  {passage.id}  {passage.file}:{passage.line}  {shown}{passage.text}"
        )


@takes_model("tokenizer")
def contexts(
    load: Load,
    word: str = argument("WORD", "A word, in upper or lower case."),
    source: str | None = argument(
        "INPUT",
        "A file with a text on each line, or a label, a tab and a text; - is stdin.",
        None,
    ),
    out: Path = picture("contexts.svg"),
    prefix: bool = option("Draw all words that begin with WORD.", False),
    clusters: int = option("How many clusters to colour, if nothing is labelled.", 2, min=1),
    tsne: bool = option("Project by t-SNE instead of PCA.", False),
    layer: list[int] | None = _LAYER,
    projector: Path | None = option(
        "Write the last layer drawn for TensorBoard, too: tensorboard --logdir DIR.", metavar="DIR"
    ),
    seed: int = option("The seed of the clusters and of t-SNE.", 0),
    text: list[str] | None = TEXT,
) -> None:
    """Draw the vectors of a word in its contexts, in one panel for each layer.

    Example: elmo plot contexts bank sentences.txt --out bank.svg
    """
    from elmokit.plots import check_plot, plot_contexts, write_projector  # noqa: PLC0415
    from elmokit.word_occurrences import (  # noqa: PLC0415  (torch takes seconds)
        embed_occurrences,
        find_occurrences,
    )

    check_plot(out)
    check_utf8(word)
    with lines_of(source, text) as lines:
        embedder = load()
        layers = _layers(layer, embedder.num_layers)
        name = "--text" if source is None else source
        occurrences = find_occurrences(
            word, lines, name=name, tokenize=embedder.tokenize, prefix=prefix
        )
    vectors = embed_occurrences(embedder, occurrences)
    groups = plot_contexts(
        out, occurrences, vectors, layers=layers, clusters=clusters, tsne=tsne, seed=seed
    )
    if projector is not None:
        write_projector(projector, occurrences, vectors[layers[-1]], groups)
    count = counted(len(occurrences), "occurrence")
    tell(f"{out}: {count} of {word}, {', '.join(groups.names[:10])}")


@takes_model("tokenizer")
def similarity(
    load: Load,
    first: str = argument("SENTENCE", "A sentence."),
    second: str = argument("SENTENCE", "Another sentence."),
    out: Path = picture("similarity.svg"),
    layer: list[int] | None = _LAYER,
) -> None:
    """Draw how similar the words of two sentences are, in one panel for each layer.

    Example: elmo plot similarity "He sat on the bank." "The bank lent money."
    """
    from elmokit.plots import check_plot, compare_words, plot_similarity  # noqa: PLC0415

    check_plot(out)
    check_utf8(first, second)
    embedder = load()
    layers = _layers(layer, embedder.num_layers)
    first_words, second_words = (
        [w for words in embedder.tokenize(text) for w in words] for text in (first, second)
    )
    cosines = compare_words(embedder, first_words, second_words)
    plot_similarity(out, first_words, second_words, cosines, layers=layers)
    tell(f"{out}: {len(first_words)} by {len(second_words)} words")


def layer_weights(folders: list[Path] = FOLDERS, out: Path = picture("layer-weights.svg")) -> None:
    """Draw how much weight trained heads give to each layer.

    Example: elmo plot layer-weights ner srl --out layer-weights.svg
    """
    draw_layer_weights(read_layer_weights(folders), out)


def training(
    run: Path = argument("RUN", "The folder that elmo pretrain or elmo train made."),
    out: Path = picture("training.svg"),
) -> None:
    """Draw the losses of a training run, and its perplexities or scores on held-out text.

    Example: elmo plot training run --out training.svg
    """
    from elmokit.plots import plot_training, read_training_log  # noqa: PLC0415  (numpy, later)

    curves = read_training_log(run)
    plot_training(out, curves)
    tell(f"{out}: {', '.join(curve.measure for curve in curves)}")


class PlotGroup(ElmoGroup):
    """`elmo plot`."""

    removed = {"senses": "contexts", "mix": "layer-weights", "curve": "training"}


plot = group(
    "plot",
    """Draw what a model knows, or how a training run went.

    Needs: pip install 'elmokit[plot]'.

    Example: elmo plot contexts bank sentences.txt --out bank.svg""",
    PlotGroup,
)
for command in (contexts, similarity, layer_weights, training):
    add_command(plot, command)


def _layers(numbers: Sequence[int] | None, num_layers: int) -> list[int]:
    for layer in numbers or ():
        if not 0 <= layer < num_layers:
            raise InputError(f"there is no layer {layer}; the model has 0 to {num_layers - 1}")
    return [*(numbers or range(num_layers))]
