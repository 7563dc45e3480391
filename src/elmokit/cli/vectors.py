"""Commands that compute vectors: embed (of words) and encode (of texts)."""

import os
from pathlib import Path
from typing import Any, Literal

import typer

import elmokit
from elmokit.cli.options import (
    SOURCE,
    TEXT,
    Load,
    PoolingName,
    argument,
    count_lines,
    counted,
    is_shard_folder,
    layers_option,
    lines_of,
    load_options,
    option,
    parse_layers,
    pooling_option,
    resumable,
    takes_model,
    tell,
    tokenizer_option,
)
from elmokit.fasta import Identifiers, is_fasta
from elmokit.pooling import LAYERS

_SHARDS = "A folder of Parquet shards"


@resumable("run the same command again to go on after the last sentence written")
@takes_model("align", "state", "precision", "kernel", "tokens_per_batch")
def embed(
    load: Load,
    sources: list[str] | None = argument(
        "INPUT",
        "A file with a sentence on each line, or FASTA; - is stdin. For a folder of shards: files, "
        "folders, quoted globs or addresses (s3://…) of text, JSON Lines, CSV or Parquet, plain or "
        "packed.",
        None,
    ),
    target: str | None = argument(
        "OUTPUT", "The HDF5 file to write, or a folder of Parquet shards, which ends in /.", None
    ),
    layers: str = layers_option("Which layers to write", "all", names=[*LAYERS], numbers="NUMBERS"),
    all_layers: bool = option("All layers (layers, words, dim), as --layers all.", False, "--all"),
    top: bool = option("The top layer (words, dim), as --layers top.", False),
    average: bool = option("The mean of the layers (words, dim), as --layers mean.", False),
    pooling: PoolingName | None = pooling_option(
        "Write one vector for each line or protein, pooled from those of its words"
    ),
    dtype: Literal["float32", "float16"] = option(
        "Precision of the numbers in the file.", "float32"
    ),
    tokenizer: str = tokenizer_option("How a line is split into words", "spaces"),
    batch_size: int = option(
        "With --state carry: each line starts from the state of the line this many lines before "
        "it.",
        1,
        min=1,
    ),
    forget_sentences: bool = option("Leave out the table sentence_to_index.", False),
    use_sentence_keys: bool = option("Use each sentence, not its number, as its key.", False),
    fasta: bool | None = option(
        "INPUT is FASTA: each residue is a word, and identifiers are keys. It may be a folder of "
        "such files.",
        None,
        "--fasta/--no-fasta",
        show_default="if it ends in .fasta, .fa or the like",
        rich_help_panel="Proteins",
    ),
    id_field: str | None = option(
        "The part of the header that is the identifier, from 0; -1 is the whole header, md5 the "
        "hash of the sequence.",
        metavar="NUMBER|md5",
        show_default="1, or the first word if there is none",
        rich_help_panel="Proteins",
    ),
    split_char: str = option(
        "What stands between parts of a header.", "|", rich_help_panel="Proteins"
    ),
    engine: Literal["local", "ray"] | None = option(
        "What runs the workers: processes on this machine, or Ray (elmokit[ray]).",
        None,
        show_default="local",
        rich_help_panel=_SHARDS,
    ),
    workers: int | None = option(
        "How many processes compute, in one thread each.",
        None,
        min=1,
        show_default="one for each CPU, of the cluster with Ray",
        rich_help_panel=_SHARDS,
    ),
    address: str | None = option(
        "With --engine ray: the cluster to use; auto is the one that this machine belongs to.",
        metavar="ADDRESS|auto",
        show_default="a new one, on this machine",
        rich_help_panel=_SHARDS,
    ),
    column: str | None = option(
        "The column with texts or lists of words.",
        show_default="text, or words",
        rich_help_panel=_SHARDS,
    ),
    rows_per_shard: int | None = option(
        "How many rows of the input a shard has.",
        None,
        min=1,
        show_default="10000",
        rich_help_panel=_SHARDS,
    ),
    text: list[str] | None = TEXT,
) -> None:
    """Embed the words of each sentence, or the residues of each protein, and write an HDF5 file.

    It has one dataset for each line or protein. If it is interrupted, run the same command again
    to go on. With --text, give OUTPUT alone.

    An OUTPUT that ends in / is a folder: it gets Parquet shards with the input's columns, the row's
    id and its vectors, which several processes or a Ray cluster compute. If any of them is killed,
    the same command goes on; every row of the input is written once.

    Example: elmo embed sentences.txt vectors.hdf5 --layers mean

    Example: elmo embed corpus.jsonl.gz vectors/ --pooling mean --layers mean --workers 8
    """
    from elmokit.file_embedding import embed_fasta, embed_file  # noqa: PLC0415  (takes seconds)

    if target is None:
        if not sources and not text:
            raise typer.BadParameter("missing argument 'INPUT'; a file, a folder, or - for stdin")
        raise typer.BadParameter(
            "no OUTPUT given; name the HDF5 file to write, or a folder, which ends in /"
        )
    flags = {"all": all_layers, "top": top, "mean": average}
    chosen = [name for name, is_set in flags.items() if is_set] or [layers]
    if len(chosen) > 1 or (layers != "all" and chosen != [layers]):
        raise typer.BadParameter("choose one of --all, --top, --average and --layers")
    if batch_size > 1 and load.keywords["state"] != "carry":
        raise typer.BadParameter(
            "--batch-size is for --state carry; --tokens-per-batch says how many words are "
            "computed together"
        )
    output: Any = {"layers": parse_layers(chosen[0]), "pooling": pooling, "dtype": dtype}
    of_shards = {
        "--engine": engine, "--workers": workers, "--address": address, "--column": column,
        "--rows-per-shard": rows_per_shard,
    }  # fmt: skip
    if engine is not None or _names_folder(target):
        of_files = {
            "--text": text, "--fasta": fasta, "--id-field": id_field,
            "--batch-size": batch_size > 1, "--use-sentence-keys": use_sentence_keys,
            "--forget-sentences": forget_sentences,
            "--state carry": load.keywords["state"] == "carry",
        }  # fmt: skip
        if given := [name for name, value in of_files.items() if value]:
            raise typer.BadParameter(f"{given[0]} is not for a folder of shards; leave it out")
        if fasta is None and any(map(is_fasta, sources or ())):
            raise typer.BadParameter(
                "a folder of shards is not for FASTA; name an HDF5 file as OUTPUT, or give "
                "--no-fasta to read its lines as text"
            )
        output |= {"tokenizer": tokenizer, "column": column}
        output |= {} if rows_per_shard is None else {"rows_per_shard": rows_per_shard}
        _embed_corpus(load, sources or [], target, engine, workers, address, **output)
        return
    if given := [name for name, value in of_shards.items() if value is not None]:
        raise typer.BadParameter(
            f"{given[0]} is for a folder of shards; let OUTPUT end in / to write one: {target}/"
        )
    if not sources and not text:
        raise typer.BadParameter("no OUTPUT given; name the HDF5 file to write")
    if len(sources or ()) > 1:
        raise typer.BadParameter(
            f"{len(sources or ())} inputs are for a folder of shards; let OUTPUT end in / to write "
            f"one: {target}/"
        )
    input_name = sources[0] if sources else None
    if input_name is not None and (is_fasta(input_name) if fasta is None else fasta):
        if tokenizer != "spaces" or use_sentence_keys or batch_size > 1:
            raise typer.BadParameter(
                "--tokenizer, --use-sentence-keys and --batch-size are not for FASTA; give "
                "--no-fasta for text"
            )
        identifiers = Identifiers(_as_number(id_field), split_char)
        count = embed_fasta(load(), input_name, target, identifiers=identifiers, **output)
        tell(f"{target}: {counted(count, 'protein')}")
        return
    with lines_of(input_name, text) as lines:
        count = embed_file(
            load(),
            lines,
            target,
            **output,
            tokenizer=tokenizer,
            batch_size=batch_size,
            forget_sentences=forget_sentences,
            sentence_keys=use_sentence_keys,
            total=count_lines(input_name, text),
        )
    tell(f"{target}: {counted(count, 'sentence')}")


def _names_folder(target: str) -> bool:
    """Whether OUTPUT is to be a folder of shards, or is one."""
    return target.endswith(("/", os.sep)) or "://" in target or is_shard_folder(target)


def _embed_corpus(
    load: Load,
    inputs: list[str],
    target: str,
    engine: str | None,
    workers: int | None,
    address: str | None,
    **output: Any,
) -> None:
    from elmokit.bulk import embed_corpus  # noqa: PLC0415  (needs the extra elmokit[bulk])

    if engine == "ray":
        from elmokit.ray import RayEngine  # noqa: PLC0415  (needs the extra elmokit[ray])

        output["engine"] = RayEngine(address=address, workers=workers)
    elif address is not None:
        raise typer.BadParameter("--address is for --engine ray")
    count = embed_corpus(inputs, target, model=load_options(load), workers=workers, **output)
    tell(f"{target}: {counted(count, 'row')}")


def _as_number(text: str | None) -> int | str | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


@takes_model("tokenizer", "align", "state", "precision", "kernel", "tokens_per_batch")
def encode(
    load: Load,
    source: str | None = SOURCE,
    target: Path | None = option(
        "The file to write: .npy, .tsv or .jsonl.", None, "--out", "-o", show_default="stdout"
    ),
    layers: str | None = layers_option(
        "Which layers, for other poolings than heads",
        None,
        names=["mean", "top", "sum", "concat"],
        show_default="mean; a head reads layers of its own",
    ),
    pooling: PoolingName | None = pooling_option(
        "How the vectors of words become one vector of the text",
        show_default="the best head of the model, or mean",
    ),
    normalize: bool = option("Scale every vector to length 1.", False),
    text: list[str] | None = TEXT,
) -> None:
    """Compute one vector for each text: a line of numbers on stdout, or a row of a file.

    Example: elmo encode --text "I ate an apple." --out apple.npy
    """
    if target is not None:
        from elmokit.export import TABLE_ENDINGS  # noqa: PLC0415  (torch takes seconds)

        if target.suffix not in TABLE_ENDINGS:
            raise typer.BadParameter(
                f"{target}: ends in {target.suffix or 'nothing'}, expected "
                f"{' or '.join(TABLE_ENDINGS)}",
                param_hint="'--out'",
            )
        elmokit.check_table(target)
    chosen = None if layers is None else parse_layers(layers)
    if chosen == "all" or isinstance(chosen, list):
        raise typer.BadParameter(
            f"{layers!r} is several vectors for a text; expected mean, top, sum, concat or one "
            "number",
            param_hint="--layers",
        )
    with lines_of(source, text) as lines:
        vectors = load().encode(
            lines, layers=chosen, pooling=pooling, normalize_embeddings=normalize
        )
    elmokit.write_vectors(vectors, target)
