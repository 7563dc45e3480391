"""ELMoForManyLangs by its own names: its Embedder, and its command that embeds a file."""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TextIO

import torch

from elmokit.atomic import rename_atomically
from elmokit.compat.replaced_packages import ReplacedPackage, run_program
from elmokit.embedder import load
from elmokit.errors import ElmokitError, FormatError, InputError
from elmokit.file_embedding import HDF5Writer, model_attributes
from elmokit.files import TextFile, read_lines
from elmokit.inference_session import Layers, LayerSelection
from elmokit.pooling import Vectors

__all__ = ["Embedder", "embed_file", "install", "read_sentences"]

INPUT_FORMATS = ("plain", "conll", "conll_char", "conll_char_vi")
OUTPUT_FORMATS = ("hdf5", "txt")

_PACKAGE = "elmoformanylangs"
_USAGE = """\
usage: python -m elmokit.compat.manylangs SCRIPT [ARGUMENT ...]
       python -m elmokit.compat.manylangs -m MODULE [ARGUMENT ...]
       python -m elmokit.compat.manylangs test [OPTION ...]"""
_MEAN, _ALL = -1, -2  # values of output_layer
_SENTENCES_PER_PART = 256  # so many are embedded before their vectors are written


class Embedder:
    """ELMoForManyLangs' embedder, without its state: the vectors of a sentence depend on it alone.

    There, each sentence went on where one of another batch had ended, and batches were shuffled,
    so that no two programs computed the same vectors. `model_dir` is any model that elmokit loads;
    `batch_size` has no effect, as batches are planned by tokens.
    """

    def __init__(self, model_dir: str | Path, batch_size: int = 64) -> None:
        self.model_dir = model_dir
        self.batch_size = batch_size
        self.use_cuda = torch.cuda.is_available()
        self.embedder = load(model_dir, device="cuda" if self.use_cuda else "cpu")

    def sents2elmo(
        self, sents: Iterable[Sequence[str]], output_layer: int = _MEAN
    ) -> list[Vectors]:
        """The vectors of each sentence, a list of words.

        `output_layer` is the number of a layer, or -1 for the mean of all layers, which are (words,
        dim); or -2 for all layers, (layers, words, dim).
        """
        sentences = [list(sentence) for sentence in sents]
        if output_layer == _ALL:
            return self.embedder.embed(sentences, show_progress_bar=False)
        layers: Layers = "mean" if output_layer == _MEAN else output_layer
        arrays = self.embedder.embed(sentences, layers=layers, show_progress_bar=False)
        return [array[0] for array in arrays]


def embed_file(
    embedder: Embedder,
    sentences: Iterable[list[str]],
    prefix: str,
    *,
    layers: Sequence[int] = (_MEAN,),
    formats: Sequence[str] = ("hdf5",),
) -> int:
    """Write `PREFIX.lyLAYER.FORMAT` for each layer and format; returns the number of sentences.

    Layer -1 is the mean of all layers, other negative numbers count from the top. The key of a
    sentence in HDF5 is its words, joined by tabs, with "." and "/" spelled out; a sentence that
    was there before is left out. The files appear under their names when all are complete.
    """
    model = embedder.embedder
    layers = [*dict.fromkeys(layers)]
    LayerSelection.of(model.bilm.config, layers)  # refuses layers that there are not
    attributes = {**model_attributes(model.pretrained), "split": "tabs"}
    folder = Path(prefix).parent
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; make it first")
    keys: set[str] = set()
    with ExitStack() as stack:
        unfinished = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        writers: dict[int, HDF5Writer] = {}
        texts: dict[int, TextIO] = {}
        for layer in layers:
            target = Path(f"{prefix}.ly{layer}")
            if "hdf5" in formats:
                described = {**attributes, "form": str(layer)}
                path = target.with_name(f"{target.name}.hdf5")
                writer = HDF5Writer(path, described, sentence_keys=True, overwrite=True)
                writers[layer] = stack.enter_context(writer)
            if "txt" in formats:
                file = open(unfinished / f"{target.name}.txt", "w", encoding="utf-8", newline="\n")
                texts[layer] = stack.enter_context(file)
        remaining = iter(sentences)
        while part := [*islice(remaining, _SENTENCES_PER_PART)]:
            first_with_key = {_key(sentence): sentence for sentence in reversed(part)}
            new = {key: first_with_key[key] for key in map(_key, part) if key not in keys}
            keys |= new.keys()
            arrays = model.embed(new.values(), show_progress_bar=False)
            for layer in layers:
                chosen = [array.mean(0) if layer == _MEAN else array[layer] for array in arrays]
                if layer in writers and new:
                    writers[layer].append([*new], chosen)
                for sentence, vectors in zip(new.values(), chosen, strict=True):
                    if layer in texts:
                        _write_text(sentence, vectors, texts[layer])
        for writer in writers.values():
            writer.finish()
        for text in texts.values():
            text.close()
            rename_atomically(Path(text.name), folder / Path(text.name).name)
    return len(keys)


def read_sentences(path: str | Path, input_format: str = "plain") -> Iterator[list[str]]:
    """The sentences of a file: `plain`, a line each with tabs between words, or CoNLL-U.

    Of CoNLL-U, the syntactic words are taken (`conll`), or their characters (`conll_char`), or
    what stands between their spaces (`conll_char_vi`). Blank lines of a plain file are skipped.
    As in ELMoForManyLangs, two tabs have an empty word between them, but tabs and spaces at the
    start and the end of a plain file are ignored.
    """
    source = TextFile(str(path))
    with source.open() as opened:
        words: list[str] = []
        last_line = ""
        for number, line in enumerate(read_lines(opened, source.name), 1):
            if not line.strip():
                if words:
                    yield words
                words = []
            elif input_format == "plain":
                if last_line:
                    yield last_line.split("\t")
                last_line = line if last_line else line.lstrip()
            elif not line.startswith("#"):
                fields = line.split("\t")
                if len(fields) < 2:
                    raise FormatError(
                        f"{source.name}, line {number}: {line[:80]!r}, expected the columns of "
                        "CoNLL-U with tabs between them"
                    )
                if "-" in fields[0] or "." in fields[0]:
                    continue  # the surface form of several words, or an empty node
                if input_format == "conll":
                    words.append(fields[1])
                else:
                    words += fields[1] if input_format == "conll_char" else fields[1].split()
        if last_line:
            yield last_line.rstrip().split("\t")
        if words:
            yield words


def install() -> None:
    """Make `from elmoformanylangs import Embedder` find the one of this module."""
    ReplacedPackage(
        _PACKAGE,
        title=_PACKAGE,
        part=f"{_PACKAGE}.Embedder",
        modules={_PACKAGE: {"Embedder": Embedder}, f"{_PACKAGE}.elmo": {"Embedder": Embedder}},
        not_here={_PACKAGE: ("the training of models", "`elmo pretrain`")},
    ).install()


def main() -> None:
    """Run a script with this module in place of elmoformanylangs, or its command `test`."""
    sys.argv = sys.argv[1:]
    if sys.argv[:1] != ["test"]:
        install()
        run_program(_USAGE)
        return
    try:
        _test(sys.argv[1:])
    except (ElmokitError, OSError) as error:
        sys.exit(f"{_PACKAGE}: {error}")


def _test(arguments: Sequence[str]) -> None:
    """ELMoForManyLangs' command `test`, with its options."""
    parser = argparse.ArgumentParser(
        "python -m elmokit.compat.manylangs test",
        description="Embed the sentences of a file, as ELMoForManyLangs' command test does.",
    )
    parser.add_argument("--gpu", type=int, default=-1, help="the number of the GPU, or -1")
    parser.add_argument(
        "--input_format", choices=INPUT_FORMATS, default="plain", help="the format of the input"
    )
    parser.add_argument("--input", required=True, help="the file to embed")
    parser.add_argument(
        "--output_format", default="hdf5", help="hdf5, txt, or both with a comma between them"
    )
    parser.add_argument("--output_prefix", required=True, help="how the names of the files begin")
    parser.add_argument(
        "--output_layer", required=True, help="numbers of layers with commas, -1 for their mean"
    )
    parser.add_argument("--model", required=True, help="the folder or archive of the model")
    parser.add_argument("--batch_size", "--batch", type=int, default=1, help="has no effect")
    options = parser.parse_args(arguments)
    formats = options.output_format.split(",")
    if unknown := set(formats) - {*OUTPUT_FORMATS}:
        parser.error(f"--output_format is {unknown.pop()!r}, expected hdf5 or txt")
    try:
        layers = [int(layer) for layer in options.output_layer.split(",")]
    except ValueError:
        parser.error(f"--output_layer is {options.output_layer!r}, expected numbers such as 0,1,2")
    embedder = Embedder(options.model)
    embedder.embedder.to("cpu" if options.gpu < 0 else f"cuda:{options.gpu}")
    sentences = read_sentences(options.input, options.input_format)
    embed_file(embedder, sentences, options.output_prefix, layers=layers, formats=formats)


def _key(sentence: list[str]) -> str:
    return "\t".join(sentence).replace(".", "$period$").replace("/", "$backslash$")


def _write_text(sentence: list[str], vectors: Vectors, file: TextIO) -> None:
    """A line for each word, a tab before each number, and a blank line."""
    for word, vector in zip(sentence, vectors, strict=True):
        file.write("\t".join([word, *(f"{number:.8f}" for number in vector)]) + "\n")
    file.write("\n")


if __name__ == "__main__":
    main()
