"""ELMo's context-free word vectors for gensim."""

from collections.abc import Iterable
from pathlib import Path

from elmokit.embedder import LoadOptions
from elmokit.errors import InputError
from elmokit.integrations.opened_models import open_once

try:
    from gensim.models import KeyedVectors
except ModuleNotFoundError:
    raise InputError("KeyedVectors need gensim: pip install 'elmokit[gensim]'") from None


def keyed_vectors(words: Iterable[str], model: str | Path | None = None) -> KeyedVectors:
    """The vectors of words in layer 0, which depend on their spelling alone.

    Example:
        keyed_vectors(["apple", "apples", "cat"]).most_similar("apple")
    """
    embedder = open_once(LoadOptions(model)).embedder
    distinct = list(dict.fromkeys(words))
    (layers,) = embedder.embed([distinct], layers=0, show_progress_bar=False)  # (1, words, dim)
    vectors = KeyedVectors(embedder.dim)
    vectors.add_vectors(distinct, layers[0])
    return vectors
