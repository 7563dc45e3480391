"""ELMo's text vectors for LlamaIndex."""

import asyncio
from typing import Any

from elmokit.errors import InputError
from elmokit.integrations.vector_stores import (
    VectorStoreEncoder,
    whitening_from_text,
    whitening_to_text,
)
from elmokit.whitening import Whitening

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import Field, field_serializer, field_validator
except ModuleNotFoundError:
    raise InputError("ElmoEmbedding needs LlamaIndex: pip install 'elmokit[llama-index]'") from None


class ElmoEmbedding(BaseEmbedding):  # type: ignore[misc]
    """Vectors of length 1, as `Embedder.encode` gives them for one model, layers and pooling.

    Without layers and pooling, they are those of the model's sentence head. A model without one is
    used with layer 0 and IDF weights, and needs a whitening that is fitted to vectors of some
    hundred texts of the same layers and pooling: raw vectors are all alike. What is saved
    has the model's fingerprint, and refuses another model.

    Example:
        index = VectorStoreIndex.from_documents(documents, embed_model=ElmoEmbedding())
    """

    model_name: str = Field(default="english", description="What elmokit.load loads.")
    layers: Any = None
    pooling: str | None = None
    whitening: Any = None
    fingerprint: str | None = None
    embed_batch_size: int = Field(default=256, gt=0, le=2048)

    @classmethod
    def class_name(cls) -> str:
        """The name in what is saved."""
        return "ElmoEmbedding"

    @field_validator("whitening", mode="before")  # type: ignore[untyped-decorator]
    @classmethod
    def _read_whitening(cls, value: str | Whitening | None) -> Whitening | None:
        return whitening_from_text(value)

    @field_serializer("whitening")  # type: ignore[untyped-decorator]
    def _write_whitening(self, value: Whitening | None) -> str | None:
        return whitening_to_text(value)

    @field_serializer("fingerprint")  # type: ignore[untyped-decorator]
    def _write_fingerprint(self, value: str | None) -> str:
        return self._encoder().current_fingerprint()

    def __getstate__(self) -> dict[str, Any]:
        self.fingerprint = self._encoder().current_fingerprint()
        state: dict[str, Any] = super().__getstate__()
        return state

    def _encoder(self) -> VectorStoreEncoder:
        return VectorStoreEncoder(
            self.model_name, self.layers, self.pooling, self.whitening, self.fingerprint
        )

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._encoder().encode(texts)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, query)
