"""Commands that compute vectors: embed (of words) and encode (of texts)."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import elmokit
from elmokit.cli.options import (
    TOKENIZER_NAMES,
    Layers,
    Load,
    Source,
    Text,
    count_lines,
    lines_of,
    parse_layers,
    pooling_names,
    resumable,
    takes_choices,
    takes_model,
    tell,
)
from elmokit.fasta import Identifiers, is_fasta


@takes_choices(pooling=pooling_names)
@resumable("run the same command again to go on after the last sentence written")
@takes_model("state", "precision", "tokens_per_batch")
def embed(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="A file with a sentence on each line, or FASTA; - is stdin."
        ),
    ],
    load: Load,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUTPUT", help="The HDF5 file to write.", show_default=False),
    ] = None,
    layers: Annotated[
        str,
        typer.Option(
            metavar="all|top|mean|sum|concat|NUMBERS",
            help="Which layers to write, or their mean, sum, or all end to end; several numbers "
            "between commas, such as 0,2.",
        ),
    ] = "all",
    all_layers: Annotated[
        bool, typer.Option("--all", help="All layers (layers, words, dim), as --layers all.")
    ] = False,
    top: Annotated[
        bool, typer.Option("--top", help="The top layer (words, dim), as --layers top.")
    ] = False,
    average: Annotated[
        bool,
        typer.Option("--average", help="The mean of the layers (words, dim), as --layers mean."),
    ] = False,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="Write one vector for each line or protein, pooled from those of its words.",
            show_default=False,
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16"], typer.Option(help="Precision of the numbers in the file.")
    ] = "float32",
    tokenizer: Annotated[
        str,
        typer.Option(metavar=TOKENIZER_NAMES, help="How a line is split into words."),
    ] = "spaces",
    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            help="With --state carry: each line starts from the state of the line this many lines "
            "before it.",
        ),
    ] = 1,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="Leave out the table sentence_to_index.")
    ] = False,
    use_sentence_keys: Annotated[
        bool,
        typer.Option("--use-sentence-keys", help="Use each sentence, not its number, as its key."),
    ] = False,
    fasta: Annotated[
        bool | None,
        typer.Option(
            "--fasta/--no-fasta",
            help="INPUT is FASTA: each residue is a word, and identifiers are keys. It may be a "
            "folder of such files.",
            show_default="if it ends in .fasta, .fa or the like",
            rich_help_panel="Proteins",
        ),
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|md5",
            help="The part of the header that is the identifier, from 0; -1 is the whole header, "
            "md5 the hash of the sequence.",
            show_default="1, or the first word if there is none",
            rich_help_panel="Proteins",
        ),
    ] = None,
    split_char: Annotated[
        str,
        typer.Option(help="What stands between parts of a header.", rich_help_panel="Proteins"),
    ] = "|",
    text: Text = None,
) -> None:
    """Embed the words of each sentence, or the residues of each protein, and write an HDF5 file.

    It has one dataset for each line or protein. If it is interrupted, run the same command again
    to go on. With --text, give OUTPUT alone.

    Example: elmo embed sentences.txt vectors.hdf5 --layers mean
    """
    from elmokit.file_embedding import embed_fasta, embed_file  # noqa: PLC0415  (takes seconds)

    given: str | None = source
    if text and target is None:
        given, target = None, Path(source)
    if target is None:
        raise typer.BadParameter("name the HDF5 file to write", param_hint="OUTPUT")
    flags = {"all": all_layers, "top": top, "mean": average}
    chosen = [name for name, given in flags.items() if given] or [layers]
    if len(chosen) > 1 or (layers != "all" and chosen != [layers]):
        raise typer.BadParameter("choose one of --all, --top, --average and --layers")
    if given is not None and (is_fasta(given) if fasta is None else fasta):
        if tokenizer != "spaces" or use_sentence_keys:
            raise typer.BadParameter(
                "--tokenizer and --use-sentence-keys are not for FASTA; give --no-fasta for text"
            )
        count = embed_fasta(
            load(),
            given,
            target,
            layers=parse_layers(chosen[0]),
            pooling=pooling,
            dtype=dtype,
            identifiers=Identifiers(_as_number(id_field), split_char),
        )
        tell(f"{target}: {count:,} proteins")
        return
    with lines_of(given, text) as lines:
        count = embed_file(
            load(),
            lines,
            target,
            layers=parse_layers(chosen[0]),
            pooling=pooling,
            dtype=dtype,
            tokenizer=tokenizer,
            batch_size=batch_size,
            forget_sentences=forget_sentences,
            sentence_keys=use_sentence_keys,
            total=count_lines(given, text),
        )
    tell(f"{target}: {count:,} sentences")


def _as_number(text: str | None) -> int | str | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


@takes_choices(pooling=pooling_names)
@takes_model("tokenizer", "state", "precision", "tokens_per_batch")
def encode(
    load: Load,
    source: Source = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The file to write: .npy, .tsv or .jsonl.", show_default="stdout"
        ),
    ] = None,
    layers: Layers = "mean",
    pooling: Annotated[
        str, typer.Option(help="How the vectors of words become one vector of the text.")
    ] = "mean",
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Scale every vector to length 1.")
    ] = False,
    text: Text = None,
) -> None:
    """Compute one vector for each text: a line of numbers on stdout, or a row of a file.

    Example: elmo encode --text "I ate an apple." --out apple.npy
    """
    if target is not None:
        elmokit.check_table(target)
    chosen = parse_layers(layers)
    if chosen == "all" or isinstance(chosen, list):
        raise typer.BadParameter(
            f"{layers!r} is several vectors for a text; expected mean, top, concat or a number",
            param_hint="--layers",
        )
    with lines_of(source, text) as lines:
        vectors = load().encode(
            lines, layers=chosen, pooling=pooling, normalize_embeddings=normalize
        )
    elmokit.write_vectors(vectors, target)
