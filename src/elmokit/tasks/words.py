"""Sentences become the vectors that a head reads: a word's own, and the mixed layers beside it."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.batching import Batch, TokenBatch
from elmokit.config import CharacterConfig
from elmokit.model.bilm import BiLM
from elmokit.model.char_cnn import CharacterEncoder
from elmokit.model.scalar_mix import ScalarMix
from elmokit.tasks.context import drop, even
from elmokit.tasks.feed import Feed
from elmokit.tasks.layers import FrozenLayers
from elmokit.tasks.lexicon import PADDING, UNKNOWN, Lexicon
from elmokit.tasks.settings import TaskSettings
from elmokit.vocab import CharacterIndexer

Sentence = tuple[str, ...]

# A word of n uses is read as unknown in this of this + n cases (Kiperwasser and Goldberg 2016): so
# unknown means something, and a rare word's spelling and context are asked too.
_FORGOTTEN = 0.25
_SCALE = 0.2  # of a mix at first: about as loud as what else is read of a word
_MOMENTUM = 0.05  # of the mean and the deviation of what characters say


class Read(NamedTuple):
    """Sentences as vectors: (sentences, steps, dim); where words stand; and their layers."""

    vectors: Tensor
    mask: Tensor  # (sentences, steps)
    layers: Tensor | None  # (layers, sentences, steps, dim)


class WordVectors(nn.Module):
    """What is read of a word: a vector of a table, its characters, a biLM's layers.

    Frozen layers are worked out once; a biLM that learns along is run each time. Each number of a
    layer is read with mean 0 and variance 1, as far as the training text tells (`settle`): raw, a
    layer's mean is half of it, and the layers differ in size.
    """

    mean: Tensor  # (layers, dim)
    deviation: Tensor  # (layers, dim)
    usual: Tensor  # the mean of what characters say: without it, dropout does not shake the rest
    spread: Tensor  # its deviation
    given: Tensor  # vectors of words that the training text does not have
    _forgotten: Tensor  # how often learning reads each word as unknown

    def __init__(
        self,
        lexicon: Lexicon,
        settings: TaskSettings,
        *,
        frozen: FrozenLayers | None = None,
        bilm: BiLM | None = None,
        feed: Feed | None = None,
    ) -> None:
        super().__init__()
        self.lexicon, self.settings = lexicon, settings
        self.frozen, self.bilm, self.feed = frozen, bilm, feed
        self.table, self.encoder = None, None
        if settings.word_dim:
            self.table = nn.Embedding(lexicon.learnt, settings.word_dim, padding_idx=PADDING)
            rest = len(lexicon) - lexicon.learnt
            self.register_buffer("given", torch.zeros(rest, settings.word_dim))
            bound = (3 / settings.word_dim) ** 0.5  # vectors one long
            nn.init.uniform_(self.table.weight[UNKNOWN:], -bound, bound)
            chance = _FORGOTTEN / (_FORGOTTEN + lexicon.counts)
            self.register_buffer("_forgotten", chance, persistent=False)
        if settings.characters:
            shape = CharacterConfig(
                max_characters=32,
                embedding_size=16,
                filters=tuple((seen, settings.characters) for seen in (2, 3, 4)),
                highway_layers=0,
            )
            self.encoder = CharacterEncoder(shape, 3 * settings.characters)
            self.register_buffer("usual", torch.zeros(3 * settings.characters))
            self.register_buffer("spread", torch.ones(3 * settings.characters))
        self.layers, self.elmo_dim = self._elmo_shape()
        count = len(self.layers)
        self.register_buffer("mean", torch.zeros(count, self.elmo_dim))
        self.register_buffer("deviation", torch.ones(count, self.elmo_dim))
        mixes = {
            name: ScalarMix(count, l2=settings.l2, scale=_SCALE)
            for name, wanted in (("input", settings.at_input), ("output", settings.at_output))
            if wanted
        }
        self.mixes = nn.ModuleDict(mixes)

    @property
    def dim(self) -> int:
        """The size of a word's vector at the input."""
        own = self.settings.word_dim + 3 * self.settings.characters
        return own + self.elmo_dim * ("input" in self.mixes)

    @property
    def output_dim(self) -> int:
        """By how much the mix at the output widens a vector."""
        return self.elmo_dim * ("output" in self.mixes)

    def forward(self, sentences: Sequence[Sentence]) -> Read:
        """The vectors of each word of each sentence, of which none is empty."""
        rows = self.lexicon.rows(sentences).to(self._device)
        mask = rows != PADDING
        layers = self._layers(sentences)
        parts = []
        if self.table is not None:
            if self.training:
                forgotten = torch.rand(rows.shape, device=self._device) < self._forgotten[rows]
                rows = rows.masked_fill(forgotten & mask, UNKNOWN)
            parts.append(self._looked_up(rows))
        if self.encoder is not None:
            parts.append(self._spelled(sentences))
        parts = [drop(part, self.settings.dropout, self.training) for part in parts]
        mixed = self._mixed("input", layers, mask)
        if mixed is not None:
            parts.append(F.dropout(mixed, self.settings.elmo_dropout, self.training))
        return Read(torch.cat(parts, -1), mask, layers)

    def at_output(self, hidden: Tensor, read: Read) -> Tensor:
        """What a head's reader said, (sentences, steps, dim), with the mix for it beside it.

        All words of a sentence miss the same numbers of that mix: heads look for the largest.
        """
        mixed = self._mixed("output", read.layers, read.mask)
        if mixed is None:
            return hidden
        return torch.cat([hidden, drop(mixed, self.settings.elmo_dropout, self.training)], -1)

    def compared(self, hidden: Tensor, read: Read, dropout: float) -> tuple[Tensor, Tensor]:
        """The same for words that are compared with others, of mean 0 and variance 1 each.

        Numbers go missing afterwards, `dropout` of what was said: before, what is left would be
        made louder, and in use, where nothing is missing, words would seem more alike than in
        learning. The second answer is whole: two words of a sentence miss the same numbers, and
        for the same reason only one factor of their product may miss any.
        """
        mixed = self._mixed("output", read.layers, read.mask)
        if mixed is None:
            whole = even(hidden)
            return drop(whole, dropout, self.training), whole
        whole = even(torch.cat([hidden, mixed], -1))
        said, told = whole.split([hidden.shape[-1], self.elmo_dim], -1)
        parts = (said, dropout), (told, self.settings.elmo_dropout)
        kept = torch.cat([drop(part, share, self.training) for part, share in parts], -1)
        return kept, whole

    def penalty(self) -> Tensor:
        """λ‖w‖² of the mixes, for the loss."""
        found = [mix.penalty() for mix in self.mixes.values() if isinstance(mix, ScalarMix)]
        return torch.stack(found).sum() if found else torch.zeros(())

    def layer_weights(self) -> dict[str, list[float]]:
        """For each mix, by its place, the share of each of the `layers`."""
        return {
            name: mix.layer_weights.tolist()
            for name, mix in self.mixes.items()
            if isinstance(mix, ScalarMix)
        }

    def begin_with(self, words: Sequence[str], vectors: Tensor) -> None:
        """Begin with given vectors of words; those of the training text learn, if settings let."""
        assert self.table is not None
        rows = self.lexicon.rows([words])[0]
        own = rows < self.lexicon.learnt
        learning = rows[own]
        with torch.no_grad():
            self.table.weight[learning] = vectors[own]
        self.given[rows[~own] - self.lexicon.learnt] = vectors[~own]
        if self.settings.freeze_vectors:
            self.table.weight.register_hook(
                lambda grad: grad.index_fill(0, learning.to(grad.device), 0)
            )

    def settle(self, layers: Sequence[npt.NDArray[np.float32]]) -> None:
        """Take the mean and deviation of each number from the layers of some sentences."""
        for place, own in enumerate(zip(*layers, strict=True)):
            told = np.concatenate(own)  # (words, dim)
            variance = told.var(0)
            least = 1e-4 * variance.mean() + 1e-12  # of a number that never changes
            self.mean[place] = torch.from_numpy(told.mean(0))
            self.deviation[place] = torch.from_numpy(np.sqrt(variance + least))

    @property
    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def _elmo_shape(self) -> tuple[tuple[int, ...], int]:
        """The numbers of the layers that are mixed, and the size of their vectors."""
        if self.frozen is not None:
            return self.frozen.layers, self.frozen.dim
        if self.bilm is not None:
            every = tuple(range(self.bilm.config.num_layers + 1))
            return self.settings.layers or every, self.bilm.config.output_size
        return (), 0

    def _looked_up(self, rows: Tensor) -> Tensor:  # (sentences, steps) -> (…, word_dim)
        """The vectors of rows: those that learn, and those that are only given."""
        assert self.table is not None
        learnt = self.lexicon.learnt
        own: Tensor = self.table(rows.clamp(max=learnt - 1))
        if not len(self.given):
            return own
        rest = F.embedding((rows - learnt).clamp(min=0), self.given)
        return torch.where((rows < learnt)[..., None], own, rest)

    def _layers(self, sentences: Sequence[Sentence]) -> Tensor | None:
        """The layers, each number less its mean and divided by its deviation."""
        if not self.mixes:
            return None
        raw = self._raw_layers(sentences)
        return (raw - self.mean[:, None, None]) / self.deviation[:, None, None]

    def _raw_layers(self, sentences: Sequence[Sentence]) -> Tensor:
        if self.frozen is not None:
            return self.frozen(sentences).to(self._device)
        assert self.bilm is not None
        assert self.feed is not None
        assert self.bilm.config.characters is not None
        alphabet = CharacterIndexer(self.bilm.config.characters.max_characters)
        cut = [self.feed(text) for text in sentences]
        batch = Batch.from_sentences([*chain.from_iterable(cut)], alphabet).to(self._device)
        layers, _ = self.bilm.run_lstms(
            self.bilm.encode(batch.chars), batch.words, layers=self.layers
        )
        # Without the marks of a sentence's ends: (words, layers, dim) of each sentence.
        read = iter(layers[:, :, 1:-1].permute(1, 2, 0, 3))
        texts = [torch.cat([next(read)[: len(words)] for words in text]) for text in cut]
        return nn.utils.rnn.pad_sequence(texts, batch_first=True).permute(2, 0, 1, 3)

    def _mixed(self, place: str, layers: Tensor | None, mask: Tensor) -> Tensor | None:
        """The layers mixed for a place, (sentences, steps, dim), 0 at padding."""
        if place not in self.mixes or layers is None:
            return None
        mixed: Tensor = self.mixes[place](layers, mask) * mask[..., None]
        return mixed

    def _spelled(self, sentences: Sequence[Sentence]) -> Tensor:
        """What each word's characters say, (sentences, steps, dim); each word type once."""
        assert self.encoder is not None
        placed = TokenBatch.from_sentences(sentences, boundaries=False)
        rows, _ = CharacterIndexer(self.encoder.config.max_characters).encode(placed.types)
        features = self.encoder(torch.from_numpy(rows).to(self._device))
        if self.training and len(features) > 2:  # the first are the marks of a sentence's ends
            self._get_used_to(features[2:].detach())
        features = (features - self.usual) / self.spread
        features = torch.cat([features.new_zeros(1, features.shape[1]), features])
        return F.embedding(torch.from_numpy(placed.words).to(self._device), features)

    def _get_used_to(self, features: Tensor) -> None:  # (types, dim)
        """Take the mean and deviation of what characters say a little nearer to some words'."""
        variance = features.var(0, correction=0)
        deviation = (variance + 0.1 * variance.mean() + 1e-6).sqrt()  # rare features stay quiet
        pace = _MOMENTUM if self.usual.any() else 1.0
        # New ones: a batch of two texts is read twice before its gradient looks at these.
        self.usual = self.usual.lerp(features.mean(0), pace)
        self.spread = self.spread.lerp(deviation, pace)
