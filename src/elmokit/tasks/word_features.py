"""Features of words for the heads: embeddings, characters, and ELMo's weighted layers.

ELMo is added to the input of a head's encoder, to its output, or to both. The vocabulary of word
embeddings and the files of pretrained word vectors are here too.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.batching import Batch, index_words
from elmokit.character_ids import CharacterIndexer
from elmokit.errors import FormatError, InputError
from elmokit.files import TextFile
from elmokit.model.bilm import BiLM
from elmokit.model.char_cnn import CharacterEncoder
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model_config import CharacterConfig
from elmokit.tasks.bilstm import layer_norm, variational_dropout
from elmokit.tasks.cached_layers import CachedLayers, Preprocessor
from elmokit.tasks.datasets.example_records import Words
from elmokit.tasks.settings import TaskSettings
from elmokit.tokenizers import STRAIGHT_QUOTES

Vector = npt.NDArray[np.float32]

PADDING, UNKNOWN = 0, 1
_SPECIAL_ROWS = 2

# A word of n occurrences is trained as unknown in this of this + n cases (Kiperwasser and Goldberg
# 2016), so that the unknown word's vector is trained, and rare words rely on spelling and context.
_UNKNOWN_WEIGHT = 0.25
_INITIAL_SCALE = 0.2  # of the weighted layers: about as large as the other features
_MOMENTUM = 0.05  # of the running mean and deviation of the character features


class Features(NamedTuple):
    """The features of sentences, (sentences, steps, dim), with a mask and the biLM's layers."""

    vectors: Tensor
    mask: Tensor  # (sentences, steps)
    layers: Tensor | None  # (layers, sentences, steps, dim)


class WordFeatures(nn.Module):
    """A vector for each word: its embedding, its characters, and layers of a biLM.

    The layers of a frozen biLM come from a cache; a biLM that is fine-tuned runs each time. Each
    number of a layer is normalized to mean 0 and variance 1 over the training text
    (`fit_normalizer`): raw, half of a layer is its mean, and the layers differ in size.
    """

    layer_mean: Tensor  # (layers, dim)
    layer_std: Tensor  # (layers, dim)
    char_mean: Tensor  # of the character features: dropout would change an offset most
    char_std: Tensor
    fixed_vectors: Tensor  # pretrained vectors of words that the training text does not have
    _unknown_probability: Tensor  # how often training replaces each word by the unknown word

    def __init__(
        self,
        vocabulary: "WordVocabulary",
        settings: TaskSettings,
        *,
        frozen: CachedLayers | None = None,
        bilm: BiLM | None = None,
        preprocess: Preprocessor | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary, self.settings = vocabulary, settings
        self.frozen, self.bilm, self.preprocess = frozen, bilm, preprocess
        self.word_embedding, self.char_encoder = None, None
        if settings.word_embedding_size:
            size = settings.word_embedding_size
            self.word_embedding = nn.Embedding(vocabulary.num_trained, size, padding_idx=PADDING)
            num_fixed = len(vocabulary) - vocabulary.num_trained
            self.register_buffer("fixed_vectors", torch.zeros(num_fixed, size))
            bound = (3 / size) ** 0.5  # vectors of norm 1
            nn.init.uniform_(self.word_embedding.weight[UNKNOWN:], -bound, bound)
            probability = _UNKNOWN_WEIGHT / (_UNKNOWN_WEIGHT + vocabulary.counts)
            self.register_buffer("_unknown_probability", probability, persistent=False)
        if settings.character_filters:
            config = CharacterConfig(
                max_characters=32,
                embedding_size=16,
                filters=tuple((width, settings.character_filters) for width in (2, 3, 4)),
                highway_layers=0,
            )
            self.char_encoder = CharacterEncoder(config, 3 * settings.character_filters)
            self.register_buffer("char_mean", torch.zeros(3 * settings.character_filters))
            self.register_buffer("char_std", torch.ones(3 * settings.character_filters))
        self.layers: tuple[int, ...] = ()  # those that are weighted
        self.elmo_dim = 0
        if frozen is not None:
            self.layers, self.elmo_dim = frozen.layers, frozen.dim
        elif bilm is not None:
            self.layers = settings.layers or tuple(range(bilm.config.num_layers + 1))
            self.elmo_dim = bilm.config.output_size
        count = len(self.layers)
        self.register_buffer("layer_mean", torch.zeros(count, self.elmo_dim))
        self.register_buffer("layer_std", torch.ones(count, self.elmo_dim))
        mix = partial(ScalarMix, count, l2=settings.l2, scale=_INITIAL_SCALE)
        self.scalar_mixes = nn.ModuleDict({name: mix() for name in settings.elmo_positions})

    @property
    def dim(self) -> int:
        """The size of a word's vector at the input of an encoder."""
        own = self.settings.word_embedding_size + 3 * self.settings.character_filters
        return own + self.elmo_dim * ("input" in self.scalar_mixes)

    @property
    def output_dim(self) -> int:
        """The size of what is added to the output of an encoder."""
        return self.elmo_dim * ("output" in self.scalar_mixes)

    def forward(self, sentences: Sequence[Words]) -> Features:
        """The features of sentences, none of which is empty."""
        rows = self.vocabulary.rows(sentences).to(self._device)
        mask = rows != PADDING
        layers = self._normalized_layers(sentences)
        parts = []
        if self.word_embedding is not None:
            if self.training:
                probability = self._unknown_probability[rows]
                as_unknown = torch.rand(rows.shape, device=self._device) < probability
                rows = rows.masked_fill(as_unknown & mask, UNKNOWN)
            parts.append(self._embed(rows))
        if self.char_encoder is not None:
            parts.append(self._character_features(sentences))
        dropout = self.settings.dropout
        parts = [variational_dropout(part, dropout, self.training) for part in parts]
        mixed = self._mix("input", layers, mask)
        if mixed is not None:
            parts.append(F.dropout(mixed, self.settings.elmo_dropout, self.training))
        return Features(torch.cat(parts, -1), mask, layers)

    def add_to_output(self, hidden: Tensor, features: Features) -> Tensor:
        """An encoder's output, (sentences, steps, dim), with ELMo's layers for the output added.

        Their dropout mask is the same for all words of a sentence, as heads take maxima over words.
        """
        mixed = self._mix("output", features.layers, features.mask)
        if mixed is None:
            return hidden
        mixed = variational_dropout(mixed, self.settings.elmo_dropout, self.training)
        return torch.cat([hidden, mixed], -1)

    def normalized_output(
        self, hidden: Tensor, features: Features, dropout: float
    ) -> tuple[Tensor, Tensor]:
        """The same with mean 0 and variance 1 for each word, with and without dropout.

        It is meant for products of words with each other. Dropout comes after the normalization,
        which would scale up the rest otherwise, so that words would be more similar in prediction
        than in training. The second result is without dropout as only one factor of a product may
        have it: both words would lack the same numbers.
        """
        mixed = self._mix("output", features.layers, features.mask)
        if mixed is None:
            normalized = layer_norm(hidden)
            return variational_dropout(normalized, dropout, self.training), normalized
        normalized = layer_norm(torch.cat([hidden, mixed], -1))
        own, elmo = normalized.split([hidden.shape[-1], self.elmo_dim], -1)
        parts = (own, dropout), (elmo, self.settings.elmo_dropout)
        dropped = [variational_dropout(part, rate, self.training) for part, rate in parts]
        return torch.cat(dropped, -1), normalized

    def penalty(self) -> Tensor:
        """The L2 penalty λ‖w‖² on the layer weights, for the loss."""
        penalties = [mix.penalty() for mix in self._mixes().values()]
        return torch.stack(penalties).sum() if penalties else torch.zeros(())

    def layer_weights(self) -> dict[str, list[float]]:
        """For the input and the output, the softmax-normalized weight of each of the `layers`."""
        return {name: mix.layer_weights.tolist() for name, mix in self._mixes().items()}

    def init_embeddings(self, words: Sequence[str], vectors: Tensor) -> None:
        """Start from pretrained vectors; those of the training text's words may be trained."""
        assert self.word_embedding is not None
        rows = self.vocabulary.rows([words])[0]
        is_trained = rows < self.vocabulary.num_trained
        trained_rows = rows[is_trained]
        with torch.no_grad():
            self.word_embedding.weight[trained_rows] = vectors[is_trained]
        fixed_rows = rows[~is_trained] - self.vocabulary.num_trained
        self.fixed_vectors[fixed_rows] = vectors[~is_trained]
        if self.settings.freeze_word_vectors:
            self.word_embedding.weight.register_hook(
                lambda grad: grad.index_fill(0, trained_rows.to(grad.device), 0)
            )

    def fit_normalizer(self, layers: Sequence[npt.NDArray[np.float32]]) -> None:
        """Compute the mean and deviation of each number from the layers of some sentences."""
        for number, arrays in enumerate(zip(*layers, strict=True)):
            values = np.concatenate(arrays)  # (words, dim)
            variance = values.var(0)
            floor = 1e-4 * variance.mean() + 1e-12  # for a number that never changes
            self.layer_mean[number] = torch.from_numpy(values.mean(0))
            self.layer_std[number] = torch.from_numpy(np.sqrt(variance + floor))

    def _mixes(self) -> dict[str, ScalarMix]:
        return {n: mix for n, mix in self.scalar_mixes.items() if isinstance(mix, ScalarMix)}

    @property
    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def _embed(self, rows: Tensor) -> Tensor:  # (sentences, steps) -> (…, word_embedding_size)
        """The trained embeddings of rows, and the fixed vectors of others."""
        assert self.word_embedding is not None
        num_trained = self.vocabulary.num_trained
        trained: Tensor = self.word_embedding(rows.clamp(max=num_trained - 1))
        if not len(self.fixed_vectors):
            return trained
        fixed = F.embedding((rows - num_trained).clamp(min=0), self.fixed_vectors)
        return torch.where((rows < num_trained)[..., None], trained, fixed)

    def _normalized_layers(self, sentences: Sequence[Words]) -> Tensor | None:
        if not self.scalar_mixes:
            return None
        frozen = self.frozen
        raw = self._run_bilm(sentences) if frozen is None else frozen(sentences).to(self._device)
        return (raw - self.layer_mean[:, None, None]) / self.layer_std[:, None, None]

    def _run_bilm(self, sentences: Sequence[Words]) -> Tensor:
        """The layers of a biLM that is fine-tuned, (layers, sentences, steps, dim)."""
        assert self.bilm is not None
        assert self.preprocess is not None
        assert self.bilm.config.characters is not None
        indexer = CharacterIndexer(self.bilm.config.characters.max_characters)
        prepared = [self.preprocess(text) for text in sentences]
        batch = Batch.from_sentences([*chain.from_iterable(prepared)], indexer).to(self._device)
        types = self.bilm.encode(batch.chars)
        layers, _ = self.bilm.run_lstms(types, batch.words, layers=self.layers)
        layers = self.bilm.align(layers, self.layers)
        # Without the boundaries of sentences: (words, layers, dim) of each sentence.
        outputs = iter(layers[:, :, 1:-1].permute(1, 2, 0, 3))
        texts = [torch.cat([next(outputs)[: len(words)] for words in text]) for text in prepared]
        return nn.utils.rnn.pad_sequence(texts, batch_first=True).permute(2, 0, 1, 3)

    def _mix(self, name: str, layers: Tensor | None, mask: Tensor) -> Tensor | None:
        """The weighted sum of layers for the input or the output, 0 at padding."""
        if name not in self.scalar_mixes or layers is None:
            return None
        mixed: Tensor = self.scalar_mixes[name](layers, mask)
        return mixed * mask[..., None]

    def _character_features(self, sentences: Sequence[Words]) -> Tensor:
        """Features of each word's characters, (sentences, steps, dim); each word type once."""
        assert self.char_encoder is not None
        types, words = index_words(sentences, boundaries=False)
        rows, _ = CharacterIndexer(self.char_encoder.config.max_characters).encode(types)
        features = self.char_encoder(torch.from_numpy(rows).to(self._device))
        if self.training and len(features) > 2:  # the first two are the boundaries
            self._update_char_statistics(features[2:].detach())
        features = (features - self.char_mean) / self.char_std
        features = torch.cat([features.new_zeros(1, features.shape[1]), features])
        return F.embedding(torch.from_numpy(words).to(self._device), features)

    def _update_char_statistics(self, features: Tensor) -> None:  # (types, dim)
        """Move the running mean and deviation towards those of a batch."""
        variance = features.var(0, correction=0)
        deviation = (variance + 0.1 * variance.mean() + 1e-6).sqrt()  # rare features stay small
        momentum = _MOMENTUM if self.char_mean.any() else 1.0
        # Not in place: with two texts a batch, this runs twice before the backward pass.
        self.char_mean = self.char_mean.lerp(features.mean(0), momentum)
        self.char_std = self.char_std.lerp(deviation, momentum)


class WordVocabulary:
    """The row of each word in a table of embeddings, regardless of case and shape of quotes.

    Row 0 is padding, row 1 any unknown word. The first `num_trained` rows are the words of the
    training text, whose embeddings are trained; without it all are. `counts` are the words'
    frequencies there, infinite if not given.
    """

    def __init__(
        self,
        words: Sequence[str],
        counts: Mapping[str, int] = MappingProxyType({}),
        *,
        num_trained: int | None = None,
    ) -> None:
        self.words = list(words)
        self.num_trained = len(self) if num_trained is None else num_trained
        self._rows = {word: row for row, word in enumerate(words, _SPECIAL_ROWS)}
        own = [counts.get(word, math.inf) for word in words]
        self.counts = torch.tensor([math.inf] * _SPECIAL_ROWS + own)

    @classmethod
    def from_sentences(
        cls, sentences: Iterable[Sequence[str]], *, pretrained: Iterable[str] = ()
    ) -> "WordVocabulary":
        """The words that occur twice, or once if they have pretrained vectors; then all of those.

        The words of the sentences come first, the commonest at the top.
        """
        counts = Counter(normalize_word(word) for words in sentences for word in words)
        others = dict.fromkeys(map(normalize_word, pretrained))
        own = [word for word, count in counts.most_common() if count > 1 or word in others]
        rest = [word for word in others if word not in counts]
        return cls([*own, *rest], counts, num_trained=len(own) + _SPECIAL_ROWS)

    def __len__(self) -> int:
        return len(self.words) + _SPECIAL_ROWS

    def rows(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """The row of each word, (sentences, steps)."""
        rows = [
            torch.tensor(
                [self._rows.get(normalize_word(word), UNKNOWN) for word in words], dtype=torch.long
            )
            for words in sentences
        ]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)


def normalize_word(word: str) -> str:
    """A word in lower case with straight quotes: all spellings of one row."""
    return word.lower().translate(STRAIGHT_QUOTES)


def read_word_vectors(path: Path, dim: int) -> tuple[list[str], Tensor]:
    """The words of a file of word vectors, in its order, and their vectors, (words, dim).

    Of words that differ only in case or shape of quotes, the first counts.
    """
    vectors: dict[str, Vector] = {}
    for word, vector in _word_vectors(path, dim):
        vectors.setdefault(normalize_word(word), vector)
    return [*vectors], torch.from_numpy(np.stack([*vectors.values()]))


def check_word_vectors(path: Path, dim: int) -> None:
    """Refuse a file whose first vector does not have `dim` numbers."""
    if not path.is_file():
        raise InputError(f"{path}: no such file, expected word vectors")
    next(_word_vectors(path, dim))


def _word_vectors(path: Path, expected_dim: int) -> Iterator[tuple[str, Vector]]:
    """The words and vectors of a file, of which there is at least one.

    One word and its numbers a line, as GloVe writes them, and word2vec after a line of sizes.
    """
    dim = 0
    with TextFile(str(path)).open() as file:
        for number, raw in enumerate(file, 1):
            line = raw.decode("utf-8", "replace").rstrip("\r\n ")  # some files mix encodings
            if number == 1:
                line = line.removeprefix("\ufeff")
            parts = line.rsplit(" ", dim) if dim else line.split(" ")  # a word may hold spaces
            if number == 1 and len(parts) == 2:
                continue
            dim = dim or len(parts) - 1
            if len(parts) - 1 != dim or dim < 2:
                raise FormatError(
                    f"{path}, line {number}: {len(parts) - 1} numbers, expected {max(dim, 2)}; a "
                    "file of word vectors has a word and its numbers a line"
                )
            try:
                vector = np.array(parts[1:], np.float32)
            except ValueError:
                raise FormatError(f"{path}, line {number}: not all numbers after a word") from None
            if not np.isfinite(vector).all():
                raise FormatError(f"{path}, line {number}: a vector that is not finite; remove it")
            if dim != expected_dim:
                raise InputError(
                    f"{path}: vectors of {dim} numbers, but word_embedding_size is "
                    f"{expected_dim}; set word_embedding_size to {dim}"
                )
            yield parts[0], vector
    if not dim:
        raise FormatError(f"{path}: empty, expected a word and its numbers a line")
