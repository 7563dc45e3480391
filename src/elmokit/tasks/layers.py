"""Texts become the layers of a frozen biLM, each sentence worked out once and kept as float16."""

import tempfile
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.embedder import Embedder
from elmokit.errors import OutputError
from elmokit.tasks.feed import Feed, Words


class FrozenLayers:
    """The layers of texts; those of added ones stay in a nameless file mapped into memory.

    A text is read sentence by sentence, as a biLM that starts from zero was trained, or whole.
    """

    def __init__(
        self, embedder: Embedder, layers: Sequence[int] = (), *, by_sentence: bool = True
    ) -> None:
        self._embedder = embedder
        self.feed = Feed(by_sentence, embedder.pretrained.tokenizer)
        self.layers = tuple(layers) or tuple(range(embedder.num_layers))
        self.dim = embedder.dim
        self._known: dict[Words, npt.NDArray[np.float16]] = {}

    def are_of(self, embedder: Embedder) -> bool:
        """Whether these are the layers of that biLM."""
        own = self._embedder
        return own is embedder or own.pretrained.fingerprint() == embedder.pretrained.fingerprint()

    def add(self, texts: Iterable[Words], *, show_progress_bar: bool | None = False) -> None:
        """Work out the layers of the texts that are not known yet."""
        new = self._unknown(texts)
        if not new:
            return
        try:
            with tempfile.TemporaryFile() as file:
                arrays = self._embedder.embed_stream(
                    new, layers=self.layers, show_progress_bar=show_progress_bar
                )
                for array in arrays:
                    file.write(array.astype(np.float16).tobytes())
                file.flush()
                whole = np.memmap(file, np.float16, "r")
        except OSError as error:
            needed = sum(map(len, new)) * len(self.layers) * self.dim * 2
            raise OutputError(
                f"{tempfile.gettempdir()}: the layers of the texts take {needed:,} bytes there "
                f"({error.strerror}); make room, or let TMPDIR name another folder"
            ) from None
        at = 0
        for words in new:
            shape = len(self.layers), len(words), self.dim
            end = at + shape[0] * shape[1] * shape[2]
            self._known[words] = whole[at:end].reshape(shape)
            at = end

    def __call__(self, texts: Sequence[Words]) -> Tensor:
        """The layers of texts, (layers, texts, steps, dim), 0 at padding.

        Those that were not added are worked out now, and forgotten.
        """
        new = self._unknown(texts)
        found = dict(zip(new, self._embedder.embed(new, layers=self.layers), strict=True))
        steps = max(map(len, texts))
        padded = np.zeros((len(self.layers), len(texts), steps, self.dim), np.float16)
        for place, text in enumerate(texts):
            at = 0
            for words in self.feed(text):
                known = self._known.get(words)
                own = found[words] if known is None else known
                padded[:, place, at : at + len(words)] = own
                at += len(words)
        return torch.from_numpy(padded).float()

    def _unknown(self, texts: Iterable[Words]) -> list[Words]:
        """The sentences of texts whose layers are not known, each once."""
        return [words for words in self.feed.sentences(texts) if words not in self._known]
