"""Layers of a frozen biLM for a task's texts, computed once and kept as float16."""

import tempfile
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.embedder import Embedder
from elmokit.errors import OutputError
from elmokit.tasks.datasets.example_records import Words
from elmokit.tasks.preprocessing import Preprocessor


class CachedLayers:
    """The layers of a frozen biLM; those of added texts stay in a temporary file, memory-mapped.

    A text is run sentence by sentence, as a biLM with a fresh state was trained, or as a whole.
    """

    def __init__(
        self, embedder: Embedder, layers: Sequence[int] = (), *, by_sentence: bool = True
    ) -> None:
        self._embedder = embedder
        self.preprocess = Preprocessor(by_sentence, embedder.pretrained.tokenizer)
        self.layers = tuple(layers) or tuple(range(embedder.num_layers))
        self.dim = embedder.dim
        self._cache: dict[Words, npt.NDArray[np.float16]] = {}  # (layers, words, dim)

    def belong_to(self, embedder: Embedder) -> bool:
        """Whether these are layers of that biLM."""
        own = self._embedder
        return own is embedder or own.pretrained.fingerprint() == embedder.pretrained.fingerprint()

    def add(self, texts: Iterable[Words], *, show_progress_bar: bool | None = False) -> None:
        """Compute the layers of the texts that are not in the cache yet."""
        missing = self._missing(texts)
        if not missing:
            return
        try:
            with tempfile.TemporaryFile() as file:
                arrays = self._embedder.embed_stream(
                    missing, layers=self.layers, show_progress_bar=show_progress_bar
                )
                for array in arrays:
                    file.write(array.astype(np.float16).tobytes())
                file.flush()
                values = np.memmap(file, np.float16, "r")
        except OSError as error:
            needed = sum(map(len, missing)) * len(self.layers) * self.dim * 2
            raise OutputError(
                f"{tempfile.gettempdir()}: the layers of the texts need {needed:,} bytes there "
                f"({error.strerror}); make room, or set TMPDIR to another folder"
            ) from None
        start = 0
        for words in missing:
            shape = len(self.layers), len(words), self.dim
            end = start + shape[0] * shape[1] * shape[2]
            self._cache[words] = values[start:end].reshape(shape)
            start = end

    def __call__(self, texts: Sequence[Words]) -> Tensor:
        """The layers of texts, (layers, texts, steps, dim), 0 at padding.

        Layers that are not in the cache are computed and not kept.
        """
        missing = self._missing(texts)
        computed = dict(
            zip(missing, self._embedder.embed(missing, layers=self.layers), strict=True)
        )
        steps = max(map(len, texts))
        padded = np.zeros((len(self.layers), len(texts), steps, self.dim), np.float16)
        for number, text in enumerate(texts):
            start = 0
            for words in self.preprocess(text):
                cached = self._cache.get(words)
                own = computed[words] if cached is None else cached
                padded[:, number, start : start + len(words)] = own
                start += len(words)
        return torch.from_numpy(padded).float()

    def _missing(self, texts: Iterable[Words]) -> list[Words]:
        """The sentences of texts that are not in the cache, each once."""
        sentences = self.preprocess.distinct_sentences(texts)
        return [words for words in sentences if words not in self._cache]
