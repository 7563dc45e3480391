"""Texts to vectors for the adapters of vector stores, which save how they make them."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.embedder import LoadOptions
from elmokit.errors import InputError
from elmokit.inference_session import Layers
from elmokit.integrations.opened_models import OpenedModel, open_once
from elmokit.pooling import HEADS
from elmokit.whitening import Whitening


@dataclass(frozen=True)
class VectorStoreEncoder:
    """Vectors of length 1, as `Embedder.encode` gives them for one model, layers and pooling.

    Without layers and pooling, they are those of the model's sentence head. Where it has none, or
    where a whitening is given, they are layer 0 and "idf". With a `fingerprint`, another model is
    refused; a pickle, and what `to_dict` returns, has one.
    """

    model: str | Path | None = None
    layers: Layers | None = None
    pooling: str | None = None
    whitening: Whitening | None = None
    fingerprint: str | None = None

    def open(self) -> OpenedModel:
        """The model, which each process loads once."""
        opened = open_once(LoadOptions(self.model))
        if self.fingerprint is not None:
            _, pooling = self._layers_and_pooling(opened)
            opened.check_fingerprint(self.fingerprint, "this embedding", pooling=pooling)
        return opened

    def current_fingerprint(self) -> str:
        """The hash of the model, and of the head that is used."""
        opened = self.open()
        return opened.fingerprint_with(self._layers_and_pooling(opened)[1])

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts, as lists of numbers."""
        opened = self.open()
        layers, pooling = self._layers_and_pooling(opened)
        vectors = opened.embedder.encode(
            texts,
            layers=layers,
            pooling=pooling,
            whitening=self.whitening,
            show_progress_bar=False,
            normalize_embeddings=True,
        )
        numbers: list[list[float]] = vectors.tolist()
        return numbers

    def _layers_and_pooling(self, opened: OpenedModel) -> tuple[Layers | None, str | None]:
        if self.layers is not None or self.pooling is not None:
            return self.layers, self.pooling
        own = opened.embedder.default_pooling
        return (None, own) if own in HEADS and self.whitening is None else (0, "idf")

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "fingerprint": self.current_fingerprint()}

    def to_dict(self) -> dict[str, object]:
        """All fields as JSON has them."""
        if not isinstance(self.layers, str | int | list | tuple | None):
            raise InputError("layers is a ScalarMix, which cannot be saved with the embedding")
        return {
            "model": None if self.model is None else str(self.model),
            "layers": self.layers if isinstance(self.layers, str | int | None) else [*self.layers],
            "pooling": self.pooling,
            "whitening": whitening_to_text(self.whitening),
            "fingerprint": self.current_fingerprint(),
        }


def whitening_to_text(whitening: Whitening | None) -> str | None:
    """The whitening's .npy file in base64."""
    return None if whitening is None else base64.b64encode(whitening.to_bytes()).decode()


def whitening_from_text(text: "str | Whitening | None") -> Whitening | None:
    """The whitening that `whitening_to_text` wrote; a whitening is returned as it is."""
    if not isinstance(text, str):
        return text
    return Whitening.from_bytes(base64.b64decode(text), "the embedding's whitening")
