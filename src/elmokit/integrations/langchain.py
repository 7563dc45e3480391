"""ELMo's text vectors for LangChain's vector stores and retrievers."""

from pathlib import Path

from elmokit.errors import InputError
from elmokit.inference_session import Layers
from elmokit.integrations.vector_stores import VectorStoreEncoder
from elmokit.whitening import Whitening

try:
    from langchain_core.embeddings import Embeddings
except ModuleNotFoundError:
    raise InputError("ElmoEmbeddings needs LangChain: pip install 'elmokit[langchain]'") from None


class ElmoEmbeddings(Embeddings):  # type: ignore[misc]
    """Vectors of length 1, as `Embedder.encode` gives them for one model, layers and pooling.

    Without layers and pooling, they are those of the model's sentence head. A model without one is
    used with layer 0 and IDF weights, and needs a whitening that is fitted to vectors of some
    hundred texts of the same layers and pooling: raw vectors are all alike.

    Example:
        store = InMemoryVectorStore.from_texts(texts, ElmoEmbeddings())
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        layers: Layers | None = None,
        pooling: str | None = None,
        whitening: Whitening | None = None,
    ) -> None:
        self._encoder = VectorStoreEncoder(model, layers, pooling, whitening)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts."""
        return self._encoder.encode(texts)

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self._encoder.encode([text])[0]
