"""Passages become the vectors of an index, by a recipe that is kept with it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from elmokit.config import parse_record
from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError, NumericError
from elmokit.model.linear import Precision
from elmokit.pooling import Pooling, Reduction, Vectors, is_word, rarities
from elmokit.search.nearest import Kind
from elmokit.search.passages import Passage, Row, Unit
from elmokit.tokenizers import get_tokenizer
from elmokit.whitening import Way

Layers = Literal["mean", "top", "concat"] | int
Start = Literal["zero", "warm"]
PassagePooling = Pooling | Literal["rare"]  # the mean, rare words counting more

_MOST = np.finfo(np.float16).max  # a number of a vector is kept in two bytes


@dataclass(frozen=True)
class Recipe:
    """How text became the vectors of an index: everything that a query must repeat."""

    model: str  # the fingerprint of the biLM
    split: str
    unit: Unit
    layers: Layers
    pooling: PassagePooling
    whitening: Way
    kind: Kind | Literal["auto"]
    state: Start = "zero"  # where every sentence starts
    format: Literal["elmokit-index"] = "elmokit-index"
    version: Literal[1] = 1

    @property
    def reduction(self) -> Reduction:
        """How the layers of a word become one, and words that count alike one vector."""
        return Reduction.of(self.layers, "mean" if self.pooling == "rare" else self.pooling)

    def dim(self, embedder: Embedder) -> int:
        """The size of a vector."""
        return embedder.dim * (embedder.num_layers if self.layers == "concat" else 1)

    def check_model(self, embedder: Embedder, name: str) -> None:
        """Refuse a model whose vectors cannot be compared with the index's."""
        found = embedder.pretrained.fingerprint()
        if found != self.model:
            raise InputError(
                f"{name}: built with another model ({self.model[:12]}, not {found[:12]}); name "
                "the one it was built with"
            )
        if self.pooling == "rare" and embedder.pretrained.vocabulary is None:
            raise InputError(
                f"{name}: rare words count more in it, but the model has no vocabulary that tells "
                "which are rare; put it beside the weights, or choose another pooling"
            )
        if (state := state_of(embedder)) != self.state:
            raise InputError(
                f"{name}: built with state {self.state!r}, but the model was loaded with "
                f"{state!r}; load it with {self.state!r}"
            )

    def split_text(self, text: str) -> list[list[str]]:
        """The sentences of a query, cut as the index's text was."""
        way = get_tokenizer(self.split)
        return [
            words for sentence in way.split_sentences(text) if (words := way.tokenize(sentence))
        ]

    def text(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def of(cls, text: str | bytes, name: str) -> "Recipe":
        """What `text` gave; `name` is what messages call it."""
        recipe = parse_record(text, cls, name, "what elmo index build writes")
        if recipe.kind == "auto":
            raise FormatError(f"{name}: kind is 'auto', expected the one chosen")
        return recipe


@dataclass(frozen=True)
class Begun:
    """What a build was begun with, so that it goes on with the same."""

    recipe: Recipe
    files: list[str]
    precision: Precision = "float32"

    def text(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self))


def state_of(embedder: Embedder) -> Start:
    """Where every sentence of a model starts; refused where that is another place each time."""
    if embedder.state_mode == "carry":
        raise InputError("an index needs vectors that depend on their text alone: not 'carry'")
    return embedder.state_mode


def read_vectors(
    recipe: Recipe, embedder: Embedder, passages: Sequence[Passage]
) -> tuple[list[Row], Vectors]:  # rows, (rows, dim)
    """What has a vector in the passages, and the vectors, before any whitening."""
    reduction = recipe.reduction
    sentences = [list(sentence) for passage in passages for sentence in passage.sentences]
    stream = embedder.embed_stream(sentences, layers=reduction.layers, show_progress_bar=False)
    rows: list[Row] = []
    vectors: list[npt.NDArray[np.floating]] = []
    for number, passage in enumerate(passages):
        words = np.concatenate([reduction.reduce(next(stream)) for _ in passage.sentences])
        if recipe.unit == "words":
            places = [place for place, word in enumerate(passage.words) if is_word(word)]
            rows += (Row(number, passage.words[place], place) for place in places)
            _check_numbers(words[places], passage)
            vectors.extend(words[places].astype(np.float16))  # as they are kept: there are many
        else:
            rows.append(Row(number))
            vectors.append(_pooled(recipe, embedder, passage, words))
            _check_numbers(vectors[-1], passage)
    empty = np.zeros((0, recipe.dim(embedder)), np.float32)
    return rows, np.stack(vectors).astype(np.float32) if vectors else empty


def _pooled(recipe: Recipe, embedder: Embedder, passage: Passage, words: Vectors) -> Vectors:
    """One vector of a passage's words, (words, dim)."""
    if recipe.pooling != "rare":
        return recipe.reduction.pool(words)
    assert embedder.pretrained.vocabulary is not None
    weights = rarities(passage.words, embedder.pretrained.vocabulary)
    return np.average(words, axis=0, weights=weights).astype(np.float32)


def _check_numbers(vectors: npt.NDArray[np.floating], passage: Passage) -> None:
    """Refuse what is not finite, or will not be where it is kept."""
    if (np.abs(vectors) <= _MOST).all():
        return
    where = f"{passage.file}, line {passage.line}" if passage.file else f"query {passage.text!r}"
    raise NumericError(
        f"{where}: the model gives a vector that is not finite, or beyond float16 ({_MOST:.0f}); "
        "look at its weights"
    )
