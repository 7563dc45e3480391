"""ELMo's text vectors for Haystack: an embedder of queries and one of documents."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmokit.errors import InputError
from elmokit.inference_session import Layers
from elmokit.integrations.vector_stores import VectorStoreEncoder, whitening_from_text
from elmokit.whitening import Whitening

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ModuleNotFoundError:
    raise InputError("ElmoTextEmbedder needs Haystack: pip install 'elmokit[haystack]'") from None


class _Embedder:
    """What both embedders share: the settings of vectors, and how they are saved."""

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        layers: Layers | None = None,
        pooling: str | None = None,
        whitening: Whitening | str | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self._encoder = VectorStoreEncoder(
            model, layers, pooling, whitening_from_text(whitening), fingerprint
        )

    def warm_up(self) -> None:
        """Load the model; without it, the first run does."""
        self._encoder.open()

    def to_dict(self) -> dict[str, Any]:
        """What `Pipeline.dumps` writes, with the model's fingerprint."""
        saved: dict[str, Any] = default_to_dict(self, **self._encoder.to_dict())
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "_Embedder":
        """The embedder that was saved, which refuses another model."""
        embedder: _Embedder = default_from_dict(cls, data)
        return embedder


@component
class ElmoTextEmbedder(_Embedder):
    """The vector of a query, of length 1, as `Embedder.encode` gives it.

    Without layers and pooling, they are those of the model's sentence head. A model without one is
    used with layer 0 and IDF weights, and needs a whitening that is fitted to vectors of some
    hundred texts of the same layers and pooling: raw vectors are all alike. Give the
    embedder of documents the same.

    Example:
        embedder = ElmoTextEmbedder()
        embedder.run("A dog barked.")["embedding"]
    """

    @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
    def run(self, text: str) -> dict[str, list[float]]:
        """The output `embedding` is the vector of the text."""
        if not isinstance(text, str):
            raise TypeError("text is not a string; ElmoDocumentEmbedder takes documents")
        return {"embedding": self._encoder.encode([text])[0]}


@component
class ElmoDocumentEmbedder(_Embedder):
    """Documents with their vectors, of length 1, as `Embedder.encode` gives them.

    The values of `meta_fields_to_embed` stand before a document's content, with
    `embedding_separator` between them. The other parameters are those of ElmoTextEmbedder.

    Example:
        documents = ElmoDocumentEmbedder().run([Document(content="A dog barked.")])["documents"]
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        layers: Layers | None = None,
        pooling: str | None = None,
        whitening: Whitening | str | None = None,
        fingerprint: str | None = None,
        meta_fields_to_embed: Sequence[str] = (),
        embedding_separator: str = "\n",
    ) -> None:
        _Embedder.__init__(  # `component` makes a new class, so super() would not find this one
            self,
            model,
            layers=layers,
            pooling=pooling,
            whitening=whitening,
            fingerprint=fingerprint,
        )
        self.meta_fields_to_embed = [*meta_fields_to_embed]
        self.embedding_separator = embedding_separator

    def to_dict(self) -> dict[str, Any]:
        """What `Pipeline.dumps` writes, with the model's fingerprint."""
        saved = _Embedder.to_dict(self)
        saved["init_parameters"] |= {
            "meta_fields_to_embed": self.meta_fields_to_embed,
            "embedding_separator": self.embedding_separator,
        }
        return saved

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """The output `documents` are copies with the vectors as their `embedding`."""
        if isinstance(documents, str) or not all(isinstance(d, Document) for d in documents):
            raise TypeError("documents is not a list of Document; ElmoTextEmbedder takes a string")
        vectors = self._encoder.encode([self._text_of(document) for document in documents])
        return {
            "documents": [
                replace(document, embedding=vector)
                for document, vector in zip(documents, vectors, strict=True)
            ]
        }

    def _text_of(self, document: Document) -> str:
        values = (document.meta.get(name) for name in self.meta_fields_to_embed)
        fields = [str(value) for value in values if value is not None]
        return self.embedding_separator.join([*fields, document.content or ""])
