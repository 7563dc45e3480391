"""Sentences become the layers of a frozen biLM, each worked out once and kept as float16."""

import tempfile
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.embedder import Embedder

Words = tuple[str, ...]


class FrozenLayers:
    """The layers of sentences; those of added ones stay in a nameless file mapped into memory."""

    def __init__(self, embedder: Embedder, layers: Sequence[int] = ()) -> None:
        self._embedder = embedder
        self.layers = tuple(layers) or tuple(range(embedder.layers))
        self.dim = embedder.dim
        self._known: dict[Words, npt.NDArray[np.float16]] = {}

    def add(self, sentences: Iterable[Words], *, progress: bool | None = False) -> None:
        """Work out the layers of the sentences that are not known yet."""
        new = list(dict.fromkeys(words for words in sentences if words not in self._known))
        if not new:
            return
        with tempfile.TemporaryFile() as file:
            for array in self._embedder.embed_stream(new, layers=self.layers, progress=progress):
                file.write(array.astype(np.float16).tobytes())
            file.flush()
            whole = np.memmap(file, np.float16, "r")
        at = 0
        for words in new:
            shape = len(self.layers), len(words), self.dim
            end = at + shape[0] * shape[1] * shape[2]
            self._known[words] = whole[at:end].reshape(shape)
            at = end

    def __call__(self, sentences: Sequence[Words]) -> Tensor:
        """The layers of sentences, (layers, sentences, steps, dim), 0 at padding.

        Those that were not added are worked out now, and forgotten.
        """
        new = list({words: None for words in sentences if words not in self._known})
        found = dict(zip(new, self._embedder.embed(new, layers=self.layers), strict=True))
        steps = max(map(len, sentences))
        padded = np.zeros((len(self.layers), len(sentences), steps, self.dim), np.float16)
        for place, words in enumerate(sentences):
            known = self._known.get(words)
            padded[:, place, : len(words)] = found[words] if known is None else known
        return torch.from_numpy(padded).float()
