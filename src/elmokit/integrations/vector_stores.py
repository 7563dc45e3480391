"""Texts to vectors for the adapters of vector stores, which save how they make them."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.embedder import LoadOptions
from elmokit.errors import InputError
from elmokit.inference_session import Layers
from elmokit.integrations.opened_models import OpenedModel, open_once
from elmokit.whitening import Whitening


@dataclass(frozen=True)
class VectorStoreEncoder:
    """Vectors of length 1, as `Embedder.encode` gives them for one model, layers and pooling.

    With a `fingerprint`, another model is refused; a pickle, and what `to_dict` returns, has one.
    """

    model: str | Path | None = None
    layers: Layers = 0
    pooling: str = "idf"
    whitening: Whitening | None = None
    fingerprint: str | None = None

    def open(self) -> OpenedModel:
        """The model, which each process loads once."""
        opened = open_once(LoadOptions(self.model))
        if self.fingerprint is not None:
            opened.check_fingerprint(self.fingerprint, "this embedding")
        return opened

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts, as lists of numbers."""
        vectors = self.open().embedder.encode(
            texts,
            layers=self.layers,
            pooling=self.pooling,
            whitening=self.whitening,
            show_progress_bar=False,
            normalize_embeddings=True,
        )
        numbers: list[list[float]] = vectors.tolist()
        return numbers

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "fingerprint": self.open().fingerprint}

    def to_dict(self) -> dict[str, object]:
        """All fields as JSON has them."""
        if not isinstance(self.layers, str | int | list | tuple):
            raise InputError("layers is a ScalarMix, which cannot be saved with the embedding")
        return {
            "model": None if self.model is None else str(self.model),
            "layers": self.layers if isinstance(self.layers, str | int) else [*self.layers],
            "pooling": self.pooling,
            "whitening": whitening_to_text(self.whitening),
            "fingerprint": self.open().fingerprint,
        }


def whitening_to_text(whitening: Whitening | None) -> str | None:
    """The whitening's .npy file in base64."""
    return None if whitening is None else base64.b64encode(whitening.to_bytes()).decode()


def whitening_from_text(text: "str | Whitening | None") -> Whitening | None:
    """The whitening that `whitening_to_text` wrote; a whitening is returned as it is."""
    if not isinstance(text, str):
        return text
    return Whitening.from_bytes(base64.b64decode(text), "the embedding's whitening")
