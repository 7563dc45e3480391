"""ELMo's text vectors for LangChain's vector stores and retrievers."""

from pathlib import Path

from elmokit.embedder import LoadOptions
from elmokit.errors import InputError
from elmokit.inference_session import Layers
from elmokit.integrations.opened_models import open_once
from elmokit.whitening import Whitening

try:
    from langchain_core.embeddings import Embeddings
except ModuleNotFoundError:
    raise InputError("ElmoEmbeddings needs LangChain: pip install 'elmokit[langchain]'") from None


class ElmoEmbeddings(Embeddings):  # type: ignore[misc]
    """Vectors of length 1, as `Embedder.encode` gives them for one model, layers and pooling.

    Raw vectors are all alike; texts are told apart after a whitening that is fitted to vectors of
    some hundred texts of the same layers and pooling.

        vectors = elmokit.load().encode(texts, layers=0, pooling="idf")
        embeddings = ElmoEmbeddings(whitening=elmokit.Whitening.fit(vectors))
        store = InMemoryVectorStore.from_texts(texts, embeddings)
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        layers: Layers = 0,
        pooling: str = "idf",
        whitening: Whitening | None = None,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.whitening = whitening

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts."""
        vectors = open_once(LoadOptions(self.model)).embedder.encode(
            texts,
            layers=self.layers,
            pooling=self.pooling,
            whitening=self.whitening,
            show_progress_bar=False,
            normalize_embeddings=True,
        )
        numbers: list[list[float]] = vectors.tolist()
        return numbers

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]
