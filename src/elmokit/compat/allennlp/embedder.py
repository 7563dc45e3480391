"""AllenNLP 0.9's ElmoEmbedder, and the command `allennlp elmo`."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.compat.allennlp.ids_and_masks import (
    ConfigurationError,
    ELMoTokenCharactersIndexer,
    batch_to_ids,
    remove_sentence_boundaries,
)
from elmokit.compat.allennlp.modules import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE, ElmoBiLm
from elmokit.file_embedding import HDF5Writer
from elmokit.pooling import Vectors

DEFAULT_BATCH_SIZE = 64

Item = TypeVar("Item")


class ElmoEmbedder:
    """AllenNLP 0.9's embedder.

    As there, each sentence continues from the state of the sentence in the same row of the last
    batch, unless `stateful` is False.
    """

    def __init__(
        self,
        options_file: str | Path = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
        *,
        stateful: bool = True,
    ) -> None:
        self.indexer = ELMoTokenCharactersIndexer()
        self.elmo_bilm = ElmoBiLm(options_file, weight_file, stateful=stateful)
        if cuda_device >= 0:
            self.elmo_bilm = self.elmo_bilm.cuda(cuda_device)
            self.elmo_bilm.reset_states()
        self.cuda_device = cuda_device

    @torch.no_grad()
    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Layers (sentences, layers, words, dim) and mask (sentences, words)."""
        output = self.elmo_bilm(batch_to_ids(batch, max_characters=self.elmo_bilm.max_characters))
        inner = [
            remove_sentence_boundaries(layer, output["mask"]) for layer in output["activations"]
        ]
        return torch.stack([layer for layer, _ in inner], 1), inner[0][1]

    def embed_sentence(self, sentence: Sequence[str]) -> Vectors:
        """The layers of a sentence, (layers, words, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Vectors]:
        """The layers of each sentence; a single empty one does not change the state."""
        if [*map(len, batch)] == [0]:
            return [np.zeros((self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim()), "f4")]
        embeddings, mask = self.batch_to_embeddings(batch)
        arrays = embeddings.cpu().numpy()
        lengths = mask.sum(1).tolist()
        return [array[:, :length].copy() for array, length in zip(arrays, lengths, strict=True)]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[Vectors]:
        """The layers of each sentence, `batch_size` sentences at a time."""
        for batch in lazy_groups_of(sentences, batch_size):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: Literal["all", "top", "average"] = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed a file with a sentence a line, split at white space, into an HDF5 file.

        Closes the input file.
        """
        if output_format not in ("all", "top", "average"):
            raise ConfigurationError(
                f"output_format is {output_format!r}, expected 'all', 'top' or 'average'"
            )
        with (
            input_file,
            HDF5Writer(
                Path(output_file_path),
                {**self.elmo_bilm.describe(), "form": output_format, "split": "whitespace"},
                forget_sentences=forget_sentences,
                sentence_keys=use_sentence_keys,
                overwrite=True,
            ) as writer,
        ):
            for texts in lazy_groups_of((line.strip() for line in input_file), batch_size):
                arrays = self.embed_batch([text.split() for text in texts])
                if output_format == "top":
                    arrays = [array[-1] for array in arrays]
                elif output_format == "average":
                    arrays = [array.mean(0) for array in arrays]
                writer.append(texts, arrays)
            writer.finish()


def empty_embedding() -> npt.NDArray[np.float64]:
    """What AllenNLP gave for an empty sentence, whatever the model."""
    return np.zeros((3, 0, 1024))


def lazy_groups_of(iterable: Iterable[Item], group_size: int) -> Iterator[list[Item]]:
    """Lists of so many items, taken as they are needed; the last one may be shorter."""
    remaining = iter(iterable)
    while group := [*islice(remaining, group_size)]:
        yield group


def run_command(prog: str | None = None, subcommand_overrides: object = None) -> None:
    """`allennlp elmo` with the arguments in sys.argv; `allennlp` has no other command here."""
    options = _parser(prog or "allennlp").parse_args()
    with open(options.input_file, encoding="utf-8") as file:
        blank = [str(number) for number, line in enumerate(file, 1) if not line.strip()]
    if blank:
        listed = ", ".join(blank[:5] + ["…"] * (len(blank) > 5))
        raise ConfigurationError(
            f"{options.input_file}: blank lines ({listed}), which AllenNLP refuses; delete them, "
            "or use `elmo embed`"
        )
    embedder = ElmoEmbedder(options.options_file, options.weight_file, options.cuda_device)
    with open(options.input_file, encoding="utf-8") as file:
        embedder.embed_file(
            file,
            options.output_file,
            options.output_format,
            options.batch_size,
            options.forget_sentences,
            options.use_sentence_keys,
        )


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog, description="elmokit's stand-in for AllenNLP.")
    commands = parser.add_subparsers(metavar="elmo", dest="command", required=True)
    elmo = commands.add_parser(
        "elmo", help="Write the vectors of each line to HDF5.", description="Write the vectors of "
        "each line, split at white space, to an HDF5 file; `elmo embed` does the same, and more."
    )  # fmt: skip
    elmo.add_argument("input_file", help="A file with a sentence on each line.")
    elmo.add_argument("output_file", help="The HDF5 file to write.")
    formats = elmo.add_mutually_exclusive_group(required=True)
    for name, text in (("all", "All layers."), ("top", "The top layer."), ("average", "The mean.")):
        formats.add_argument(
            f"--{name}", dest="output_format", action="store_const", const=name, help=text
        )
    elmo.add_argument("--options-file", default=DEFAULT_OPTIONS_FILE)
    elmo.add_argument("--weight-file", default=DEFAULT_WEIGHT_FILE)
    elmo.add_argument("--batch-size", type=int, default=DEFAULT_BATCH_SIZE)
    elmo.add_argument("--cuda-device", type=int, default=-1)
    elmo.add_argument("--forget-sentences", action="store_true")
    elmo.add_argument("--use-sentence-keys", action="store_true")
    elmo.add_argument("--vocab-path", help="Has no effect, as in AllenNLP.")
    elmo.add_argument("--include-package", action="append", help="Has no effect here.")
    elmo.add_argument("--file-friendly-logging", action="store_true", help="Has no effect here.")
    return parser
