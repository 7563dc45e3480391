"""Sentences become arrays and files by AllenNLP 0.9's names, its carried state included."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Literal

import numpy as np
import torch
from torch import Tensor

from elmokit.compat.allennlp.elmo import ElmoBiLm
from elmokit.compat.allennlp.indexer import ELMoTokenCharactersIndexer, batch_to_ids
from elmokit.compat.allennlp.scalar_mix import ConfigurationError
from elmokit.embed_file import Store, shaped
from elmokit.pooling import Vectors

# The addresses that old programs rely on; their files must be had by other means.
_MODELS = "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
DEFAULT_OPTIONS_FILE = _MODELS + "elmo_2x4096_512_2048cnn_2xhighway_options.json"
DEFAULT_WEIGHT_FILE = _MODELS + "elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5"
DEFAULT_BATCH_SIZE = 64


class ElmoEmbedder:
    """AllenNLP 0.9's embedder. A sentence goes on where the one in its row of the last batch ended,
    as it did, unless not `stateful`.
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
        read = self.elmo_bilm(batch_to_ids(batch, width=self.elmo_bilm.width))
        mask = read["mask"][:, 2:]
        layers = torch.stack(read["activations"], 1)[:, :, 1:-1]
        return layers * mask[:, None, :, None], mask

    def embed_sentence(self, sentence: Sequence[str]) -> Vectors:
        """The layers of a sentence, (layers, words, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Vectors]:
        """The layers of each sentence; a lone empty one leaves the state alone, as it did."""
        if [*map(len, batch)] == [0]:
            return [np.zeros((self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim()), "f4")]
        embeddings, mask = self.batch_to_embeddings(batch)
        arrays = embeddings.cpu().numpy()
        lengths = mask.sum(1).tolist()
        return [array[:, :length].copy() for array, length in zip(arrays, lengths, strict=True)]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[Vectors]:
        """The layers of each sentence, so many at a time."""
        waiting = iter(sentences)
        while batch := [*islice(waiting, batch_size)]:
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
        """A sentence a line, split at white space, into an HDF5 file; the input is closed."""
        if output_format not in ("all", "top", "average"):
            raise ConfigurationError(f"output_format {output_format!r} is not all, top or average")
        with (
            input_file,
            Store(
                Path(output_file_path),
                {**self.elmo_bilm.describe(), "form": output_format, "split": "whitespace"},
                forget_sentences=forget_sentences,
                sentence_keys=use_sentence_keys,
                overwrite=True,
            ) as store,
        ):
            lines = (line.strip() for line in input_file)
            while texts := [*islice(lines, batch_size)]:
                arrays = self.embed_batch([text.split() for text in texts])
                if output_format == "top":
                    arrays = [array[-1:] for array in arrays]
                store.append(texts, [shaped(array, output_format) for array in arrays])
            store.finish()
