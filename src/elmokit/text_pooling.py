"""The vector of a text: poolings over its words' vectors, and sentence heads of a model."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.inference_session import Layers, LayerSelection
from elmokit.model.sentence_head import HeadInput, SentenceHead, SentenceHeadConfig
from elmokit.pooling import HEADS, TextVectors, Vectors, get_pooling, idf_weights
from elmokit.threads import torch_threads
from elmokit.vocab import Vocabulary


@dataclass(frozen=True)
class TextPooling:
    """A pooling of a model: the layers to embed, and what makes one vector of a text's words.

    What comes out for a text has the shape (num_layers, dim).
    """

    name: str
    layers: Layers
    num_layers: int
    dim: int
    _pool: Callable[[Vectors, Sequence[str]], Vectors]
    _head: SentenceHead | None = None
    _vocabulary: Vocabulary | None = None

    @classmethod
    def of(
        cls, pretrained: Pretrained, layers: Layers | None = None, pooling: str | None = None
    ) -> "TextPooling":
        """What `layers` and `pooling` of `encode` mean for a model.

        Without both, it is the best head that the model comes with, and otherwise the mean of all
        words and layers; without one of them, that one is the mean. A head reads layers of its own.
        """
        vocabulary = pretrained.vocabulary
        if pooling is None:
            own = default_pooling(pretrained)
            pooling = own if layers is None or own not in HEADS else "mean"
        registered = get_pooling(pooling, vocabulary)
        if pooling in HEADS:
            if layers is not None:
                raise InputError(
                    f"pooling {pooling!r} reads the layers that it was fitted to; leave out layers"
                )
            assert vocabulary is not None  # get_pooling saw to that
            head = pretrained.head(pooling)

            def apply(arrays: Vectors, words: Sequence[str]) -> Vectors:
                return _run(head, head_input(head.config, arrays, words, vocabulary))

            own_layers = [0, *head.config.context_layers]
            return cls(pooling, own_layers, 1, head.config.output_size, apply, head, vocabulary)
        layers = "mean" if layers is None else layers
        selection = LayerSelection.of(pretrained.model.bilm.config, layers)
        function = registered.function
        assert function is not None  # only heads have none

        def pool(arrays: Vectors, words: Sequence[str]) -> Vectors:
            return np.stack([function(TextVectors(a, words, vocabulary)) for a in arrays])

        dim = selection.dim(pretrained.model.bilm.config)
        return cls(pooling, layers, selection.num_layers, dim, pool)

    def __call__(self, sentences: Sequence[Vectors], words: Sequence[str]) -> Vectors:
        """The vector of a text, (num_layers, dim), zero if it has no words.

        `sentences` are their arrays, (layers, words, dim) each, `words` those of all of them.
        """
        if not words:
            return np.zeros((self.num_layers, self.dim), np.float32)
        return self._pool(np.concatenate(sentences, 1), words)

    def word_vectors(self, array: Vectors, words: Sequence[str]) -> Vectors:  # -> (words, dim)
        """The vectors of words to compare with those of texts: a head takes each as a text.

        `array` is (layers, words, dim). Of several layers, it is the first.
        """
        if self._head is None:
            first: Vectors = array[0]
            return first
        if not words:
            return np.zeros((0, self.dim), np.float32)
        assert self._vocabulary is not None
        text = head_input(self._head.config, array, words, self._vocabulary)
        return _run(self._head, text.split_words())


def default_pooling(pretrained: Pretrained) -> str:
    """The pooling that `encode` uses by default: the best head of the model, or the mean."""
    return next((name for name in HEADS if name in pretrained.heads), "mean")


def _run(head: SentenceHead, texts: HeadInput) -> Vectors:  # -> (texts, dim)
    """The vectors that a head gives texts."""
    with torch.no_grad(), torch_threads(1):
        vectors = head(texts.to(next(head.parameters()).device))
    found: Vectors = vectors.float().cpu().numpy()
    return found


def head_input(
    config: SentenceHeadConfig, arrays: Vectors, words: Sequence[str], vocabulary: Vocabulary
) -> HeadInput:
    """What a head reads of a text whose words have the vectors (layers, words, dim)."""
    context_free = arrays[:1, :, : config.context_free_size]  # both directions are the same
    context = np.concatenate([*arrays[1:]], 1)[None] if config.context_layers else None
    return HeadInput(
        torch.from_numpy(np.ascontiguousarray(context_free)),
        None if context is None else torch.from_numpy(context),
        torch.from_numpy(spelling_signs(words, config.num_signs))[None],
        torch.from_numpy(table_rows(words, vocabulary, config.table_words))[None],
        torch.from_numpy(idf_weights(words, vocabulary).astype(np.float32))[None],
    )


def spelling_signs(words: Sequence[str], num_signs: int) -> Vectors:  # -> (words, num_signs)
    """Plus and minus ones by a hash of each word in lower case."""
    signs = np.stack([_signs(word.lower(), num_signs) for word in words])
    return signs.astype(np.float32)


@lru_cache(2**16)
def _signs(word: str, num_signs: int) -> npt.NDArray[np.int8]:
    digest = hashlib.shake_128(word.encode("utf-8", "surrogatepass")).digest(-(-num_signs // 8))
    bits = np.unpackbits(np.frombuffer(digest, np.uint8))[:num_signs]
    return 2 * bits.astype(np.int8) - 1


def table_rows(
    words: Sequence[str], vocabulary: Vocabulary, table_words: int
) -> npt.NDArray[np.int64]:  # -> (words,)
    """The row of each word in a head's table, -1 for a word that it lacks.

    The table has the first words of the vocabulary, in lower case.
    """
    ids = vocabulary.lower_case_ids
    rows = [ids.get(word.lower(), -1) for word in words]
    return np.array([row if row < table_words else -1 for row in rows], np.int64)
