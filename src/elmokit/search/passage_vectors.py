"""The vectors of passages, and the settings of an index that decide how they are computed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError, NumericError
from elmokit.model_config import parse_record
from elmokit.pooling import Vectors, is_word
from elmokit.search.lexical import default_stemmer
from elmokit.search.passages import Passage, Unit, VectorSource
from elmokit.text_pooling import TextPooling
from elmokit.tokenizers import get_tokenizer
from elmokit.whitening import WhiteningMethod

Kind = Literal["flat", "hnsw", "ivf"]
VectorPer = Literal["sentence", "passage"]
Layers = Literal["mean", "top", "concat"] | int
StartState = Literal["zero", "warm"]

_LARGEST = np.finfo(np.float16).max  # vectors are stored in float16


# Whitened, fewer vectors are about as far from each other as they can be, whatever they say.
FEWEST_VECTORS_TO_WHITEN = 4


@dataclass(frozen=True)
class IndexConfig:
    """How text is turned into the vectors of an index; a query is encoded in the same way."""

    model: str  # fingerprint of the biLM
    tokenizer: str
    unit: Unit
    layers: Layers | None  # None: those that the pooling, a sentence head, reads
    pooling: str
    whitening: WhiteningMethod
    kind: Kind | Literal["auto"]  # "auto" only while the index is built
    state: StartState = "zero"
    vector_per: VectorPer = "passage"  # of paragraphs: one for each of their sentences, or one
    format: Literal["elmokit-index"] = "elmokit-index"
    version: Literal[1] = 1

    def dim(self, embedder: Embedder) -> int:
        """The size of a vector."""
        return self.text_pooling(embedder).dim

    def text_pooling(self, embedder: Embedder) -> TextPooling:
        """What makes the vector of a passage."""
        return TextPooling.of(embedder.pretrained, self.layers, self.pooling)

    def check_model(self, embedder: Embedder, name: str) -> None:
        """Refuse a model whose vectors cannot be compared with those of the index."""
        fingerprint = embedder.pretrained.fingerprint(self.pooling)
        if fingerprint != self.model:
            raise InputError(
                f"{name}: built with another model (fingerprint {self.model[:12]}, this one has "
                f"{fingerprint[:12]}); load the model that built it"
            )
        try:
            self.text_pooling(embedder)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        if (state := start_state(embedder)) != self.state:
            raise InputError(
                f"{name}: built with state {self.state!r}, but the model was loaded with "
                f"{state!r}; load it with {self.state!r}"
            )

    def tokenize(self, text: str) -> list[list[str]]:
        """The sentences of a query, tokenized as the text of the index was."""
        tokenizer = get_tokenizer(self.tokenizer)
        return [
            words
            for sentence in tokenizer.split_sentences(text)
            if (words := tokenizer.tokenize(sentence))
        ]

    def words(self, text: str) -> list[str]:
        """The words of all sentences of a text."""
        return [word for sentence in self.tokenize(text) for word in sentence]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, name: str) -> "IndexConfig":
        """What `to_json` or 0.1 wrote; `name` stands for it in error messages."""
        expected = "what elmo index build writes"
        settings = current_settings(parse_record(text, dict[str, Any], name, expected))
        config = parse_record(json.dumps(settings), cls, name, expected)
        if config.kind == "auto":
            raise FormatError(f"{name}: kind is 'auto', expected 'flat', 'hnsw' or 'ivf'")
        return config


def current_settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings as they are now: 0.1 had other names, and the config as "recipe"."""
    settings = {"vector_per": "passage", **stored.get("recipe", {}), **stored}
    settings.pop("recipe", None)
    if "split" in settings:
        settings["tokenizer"] = settings.pop("split")
    if settings.get("pooling") == "rare":
        settings["pooling"] = "idf"
    return settings


def current_manifest(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The stored manifest of a build as it is now: 0.2 had no lexical part."""
    settings = current_settings(stored)
    if "stemmer" not in settings and "tokenizer" in settings:
        settings["stemmer"] = choose_stemmer(settings["tokenizer"], settings.get("unit"))
    return settings


def choose_stemmer(tokenizer: str, unit: str | None) -> str | None:
    """The stemmer of an index, if none was asked for; None for one of words."""
    return None if unit == "words" else default_stemmer(tokenizer)


def start_state(embedder: Embedder) -> StartState:
    """The state in which every sentence starts; refused where it depends on the text before."""
    if embedder.state_mode == "carry":
        raise InputError(
            "the model was loaded with state 'carry', so that vectors depend on the text before; "
            "an index needs 'zero' or 'warm'"
        )
    return embedder.state_mode


def embed_passages(
    config: IndexConfig, embedder: Embedder, passages: Sequence[Passage]
) -> tuple[list[VectorSource], Vectors]:  # sources, (sources, dim)
    """Everything in the passages that has a vector, and the vectors before whitening."""
    sentences = [list(sentence) for passage in passages for sentence in passage.sentences]
    pool = config.text_pooling(embedder)
    stream = embedder.embed_stream(sentences, layers=pool.layers, show_progress_bar=False)
    sources: list[VectorSource] = []
    vectors: list[npt.NDArray[np.floating]] = [np.zeros((0, config.dim(embedder)), np.float32)]
    for number, passage in enumerate(passages):
        arrays = [next(stream) for _ in passage.sentences]  # (1, words, dim) each
        if config.unit == "words":
            indices = [index for index, word in enumerate(passage.words) if is_word(word)]
            sources += (VectorSource(number, passage.words[index], index) for index in indices)
            vectors.append(np.concatenate(arrays, 1)[0, indices])
            check_range(vectors[-1], passage)
            vectors[-1] = vectors[-1].astype(np.float16)  # as stored: there are many
        elif config.vector_per == "sentence":
            for array, words in zip(arrays, passage.sentences, strict=True):
                sources.append(VectorSource(number))
                vectors.append(pool([array], words))
                check_range(vectors[-1], passage)
        else:
            sources.append(VectorSource(number))
            vectors.append(pool(arrays, passage.words))
            check_range(vectors[-1], passage)
    return sources, np.concatenate(vectors)  # float32, as the empty ones are


def check_range(vectors: npt.NDArray[np.floating], passage: Passage) -> None:
    """Refuse numbers that are not finite, or will not be in float16."""
    if (np.abs(vectors) <= _LARGEST).all():
        return
    where = f"{passage.file}, line {passage.line}" if passage.file else f"query {passage.text!r}"
    raise NumericError(
        f"{where}: the model gives a vector that is not finite, or beyond float16 "
        f"({_LARGEST:.0f}); check its weights"
    )
