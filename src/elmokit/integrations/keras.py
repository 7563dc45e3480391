"""ELMo as a layer of Keras 3, on its torch backend."""

import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from elmokit.batching import Batch, check_texts
from elmokit.character_ids import CharacterIndexer
from elmokit.embedder import Embedder, LoadOptions, Text
from elmokit.errors import InputError
from elmokit.integrations.opened_models import OpenedModel, open_once
from elmokit.model.packed_linear import Precision
from elmokit.model.scalar_mix import ScalarMix, mix_layers

_BACKEND_ADVICE = (
    "ElmoEmbedding needs Keras on its torch backend, and this is {}; set KERAS_BACKEND=torch "
    "before Keras is imported"
)
if "keras" not in sys.modules and os.environ.setdefault("KERAS_BACKEND", "torch") != "torch":
    raise InputError(_BACKEND_ADVICE.format(os.environ["KERAS_BACKEND"]))
try:
    import keras
except ModuleNotFoundError:
    raise InputError("ElmoEmbedding needs Keras: pip install 'elmokit[keras]'") from None
if keras.backend.backend() != "torch":
    raise InputError(_BACKEND_ADVICE.format(keras.backend.backend()))


@keras.saving.register_keras_serializable("elmokit")
class ElmoEmbedding(keras.layers.Layer):  # type: ignore[misc]
    """The vectors of words, (texts, words, dim), of their character ids, (texts, words, bytes).

    A trainable mix of the layers of a frozen biLM; with `trainable=False`, the mix stays as it is.
    Words of zeros are padding: their vectors are zero, and layers that follow mask them. Strings
    cannot be inputs on Keras's torch backend: `character_ids` and `TextDataset` make the ids.

    `model`, `precision`, `threads` and `offline` are those of `LoadOptions`. A saved layer names
    its model, and refuses another by the `fingerprint` that is saved with it.

        ids = keras.Input((None, 50), dtype="int32")
        words = keras.layers.Bidirectional(keras.layers.LSTM(64))(ElmoEmbedding()(ids))
        classifier = keras.Model(ids, keras.layers.Dense(1, "sigmoid")(words))
        classifier.compile("adam", "binary_crossentropy")
        classifier.fit(TextDataset(["A fine film.", "A dull film."], [1, 0]))
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        precision: Precision = "float32",
        threads: int | None = None,
        offline: bool = False,
        fingerprint: str | None = None,
        **layer_options: Any,
    ) -> None:
        super().__init__(autocast=False, **layer_options)
        self.supports_masking = True
        self.model = model
        self.precision = precision
        self.threads = threads
        self.offline = offline
        self.fingerprint = fingerprint

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Add the weights of the mix; InputError for another model than that of a saved layer."""
        opened = self._open()
        if self.fingerprint is None:
            self.fingerprint = opened.fingerprint
        opened.check_fingerprint(self.fingerprint, f"the layer {self.name!r}")
        max_characters = character_indexer(opened.embedder).max_characters
        if len(input_shape) < 3 or input_shape[-1] != max_characters:
            raise InputError(
                f"the layer {self.name!r} was given the shape {tuple(input_shape)}, expected "
                f"(texts, words, {max_characters}): keras.Input((None, {max_characters}), "
                "dtype='int32'), and ids of character_ids or TextDataset"
            )
        layers = (opened.embedder.num_layers,)
        self.mix_weights = self.add_weight(shape=layers, initializer="zeros", name="mix_weights")
        self.mix_scale = self.add_weight(shape=(), initializer="ones", name="mix_scale")

    def __call__(self, ids: Any, *arguments: Any, **options: Any) -> Any:
        """The vectors of ids; InputError for strings."""
        first = ids
        while isinstance(first, list | tuple | np.ndarray) and len(first):
            first = first[0]
        if isinstance(first, str) or getattr(ids, "dtype", None) == "string":
            raise InputError(
                f"the layer {self.name!r} was given strings, which cannot be inputs on Keras's "
                "torch backend; give it the ids of character_ids(texts), or train on a TextDataset"
            )
        return super().__call__(ids, *arguments, **options)

    def call(self, ids: Tensor) -> Tensor:  # (..., words, bytes) -> (..., words, dim)
        """The mix of the layers, 0 at padding."""
        embedder = self._open(str(ids.device)).embedder
        flat = ids.flatten(0, -3).long()
        batch = Batch.from_ids(flat, character_indexer(embedder))
        layers = embedder.session.run_batch(batch)[:, :, 1:-1]
        weights, scale = self.mix_weights.value, self.mix_scale.value
        mixed = mix_layers(layers, weights, scale) * self.compute_mask(flat)[..., None]
        vectors: Tensor = keras.ops.cast(mixed, self.compute_dtype)
        return vectors.view(*ids.shape[:-1], embedder.dim)

    def compute_mask(self, ids: Tensor, previous_mask: object = None) -> Tensor:
        """True where a word stands."""
        mask: Tensor = keras.ops.any(keras.ops.not_equal(ids, 0), -1)
        return mask

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self._open().embedder.dim)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, with the fingerprint of the model."""
        own = {
            "model": self.model,
            "precision": self.precision,
            "threads": self.threads,
            "offline": self.offline,
            "fingerprint": self.fingerprint or self._open().fingerprint,
        }
        return {**super().get_config(), **own}

    def scalar_mix(self) -> ScalarMix:
        """The mix as it is now: `model.embed(sentences, layers=layer.scalar_mix())`."""
        weights, scale = (
            variable.value.detach().tolist() for variable in (self.mix_weights, self.mix_scale)
        )
        return ScalarMix(len(weights), weights=weights, scale=scale, trainable=False)

    def _open(self, device: str = "cpu") -> OpenedModel:
        return open_once(
            LoadOptions(
                self.model,
                device=device,
                precision=self.precision,
                threads=self.threads,
                offline=self.offline,
            )
        )


class TextDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of texts as character ids, with their labels, for `fit`, `evaluate` and `predict`.

    A text is raw or a list of words; the sentences of a raw text follow one another. Of longer
    texts, the first `max_words` are read. With `shuffle`, the order changes after each epoch.
    """

    def __init__(
        self,
        texts: Iterable[Text],
        labels: npt.ArrayLike | None = None,
        *,
        model: str | None = None,
        batch_size: int = 32,
        max_words: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        **dataset_options: Any,
    ) -> None:
        super().__init__(**dataset_options)
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}, expected 1 or more")
        embedder = open_once(LoadOptions(model)).embedder
        self._indexer = character_indexer(embedder)
        self._words = words_of(texts, embedder, max_words)
        self._labels = None if labels is None else np.asarray(labels)
        if self._labels is not None and len(self._labels) != len(self._words):
            raise InputError(
                f"{len(self._words)} texts, but {len(self._labels)} labels; give one for each text"
            )
        self.batch_size = batch_size
        self._order = np.arange(len(self._words))
        self._random = np.random.default_rng(seed) if shuffle else None
        self.on_epoch_end()

    def __len__(self) -> int:
        return math.ceil(len(self._words) / self.batch_size)

    def __getitem__(self, index: int) -> tuple[npt.NDArray[Any], ...]:
        rows = self._order[index * self.batch_size : (index + 1) * self.batch_size]
        ids = _pad([self._words[row] for row in rows], self._indexer)
        return (ids,) if self._labels is None else (ids, self._labels[rows])

    def on_epoch_end(self) -> None:
        """Choose a new order, with `shuffle`."""
        if self._random is not None:
            self._random.shuffle(self._order)


def character_ids(
    texts: Iterable[Text], model: str | None = None, *, max_words: int | None = None
) -> npt.NDArray[np.int32]:
    """The ids of all texts at once, (texts, words, bytes), zero after the end of a text."""
    embedder = open_once(LoadOptions(model)).embedder
    return _pad(words_of(texts, embedder, max_words), character_indexer(embedder))


def words_of(texts: Iterable[Text], embedder: Embedder, max_words: int | None) -> list[list[str]]:
    """The words of each text, those of its sentences one after the other."""
    if max_words is not None and max_words < 1:
        raise InputError(f"max_words is {max_words}, expected 1 or more, or None")
    return [
        [word for sentence in embedder.tokenize(text) for word in sentence][:max_words]
        for text in check_texts(texts)
    ]


def character_indexer(embedder: Embedder) -> CharacterIndexer:
    """Makes the ids of words; InputError for a model that does not read characters."""
    characters = embedder.bilm.config.characters
    if characters is None:
        raise InputError(
            "ElmoEmbedding reads character ids, but this model looks words up in a vocabulary or "
            "lexicons; choose a model that reads characters"
        )
    return CharacterIndexer(characters.max_characters)


def _pad(
    texts: Sequence[Sequence[str]], indexer: CharacterIndexer
) -> npt.NDArray[np.int32]:  # -> (texts, words, bytes)
    longest = max([1, *map(len, texts)])  # Keras's LSTM takes no text of 0 words
    ids = np.zeros((len(texts), longest, indexer.max_characters), np.int32)
    for row, words in enumerate(texts):
        ids[row, : len(words)] = indexer.encode(words)[0]
    return ids
