"""One pretraining run: updates, its state, and its checkpoint."""

import time
from dataclasses import dataclass

import numpy as np
import torch

from elmokit.config import BiLMConfig, Direction
from elmokit.errors import ConfigError, NumericError
from elmokit.formats.pretrained import Pretrained, parameter_name, stored_name
from elmokit.model.bilm import BiLM, LanguageModel, State
from elmokit.model.dropout import Dropout
from elmokit.model.softmax import AdaptiveSoftmax, NegativeSample, Softmax, sample_negatives
from elmokit.pretrain.checkpoint import Checkpoint
from elmokit.pretrain.corpus import UNKNOWN_ID, Corpus
from elmokit.pretrain.distributed import Ranks
from elmokit.pretrain.loss import DirectionInput, Learnt, Segments, add_gradients
from elmokit.pretrain.optimizer import clip_gradients, learning_rate, make_optimizer
from elmokit.pretrain.settings import PretrainingSettings
from elmokit.pretrain.stream import Ids, Stream, Window
from elmokit.threads import using_threads

# A table whose gradient touches less than this share of its rows is updated row by row.
_SPARSE_SHARE = 0.25
# The kinds of random choices of an update, each drawn from a seed of its own.
_RESET, _SAMPLE, _DROPOUT = range(3)
# So many of the lanes whose loss is not a number are named.
_LANES_NAMED = 3
_REMEDY = (
    "begin another run with the best model so far (--init-from OUT/model --out NEW), and a smaller "
    "learning_rate or max_grad_norm"
)


@dataclass(frozen=True)
class Update:
    """What one update gave."""

    losses: list[float]  # of each direction, in nats a word
    gradient_norm: float
    learning_rate: float
    seconds: float


class Run:
    """A model that learns from a corpus, update by update.

    Every random choice of an update follows from the seed and the update's number, and lanes are
    split over ranks: so a run that was stopped learns the same, and one that is spread over several
    ranks too, but for its dropout, which each rank draws for its own lanes.
    """

    def __init__(
        self,
        corpus: Corpus,
        settings: PretrainingSettings,
        *,
        device: torch.device | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.corpus, self.settings = corpus, settings
        self._device, self._ranks = device or torch.device("cpu"), ranks or Ranks()
        if settings.precision == "bfloat16":
            _check_bfloat16(self._device)
        self._mine = self._ranks.share(settings.batch_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.model = make_model(settings, len(corpus.vocabulary)).to(self._device)
        self.pretrained = Pretrained(self.model, corpus.vocabulary, corpus.tokenizer)
        self._optimizer = make_optimizer(self.model, settings)
        self.config: BiLMConfig = self.model.bilm.config
        self._streams = [self._stream(direction) for direction in self.config.directions]
        each = self._mine.stop - self._mine.start
        self._state = State.zeros(self.config, each, like=next(self.model.parameters()))
        self.done = 0
        self.begun_with: str | None = None  # the card of another model
        self.best, self.best_update = float("inf"), 0
        self.updates = settings.steps or max(1, int(settings.epochs * self.updates_per_epoch))

    @property
    def updates_per_epoch(self) -> float:
        """How many updates read the text once."""
        return self._predictions / self.words_per_update

    @property
    def epoch(self) -> float:
        """Where in the text's order it stands."""
        return self.settings.skip_epochs + self.done / self.updates_per_epoch

    @property
    def words_per_update(self) -> int:
        """How many words each direction predicts in an update, over all ranks."""
        return (
            self.settings.batch_size
            * self.settings.sequence_length
            * self.settings.gradient_accumulation
        )

    @property
    def samples(self) -> bool:
        """Whether a loss is that among drawn words only, not among all of them."""
        settings = self.settings
        return settings.softmax == "sampled" and settings.num_sampled < len(self.corpus.vocabulary)

    def update(self) -> Update:
        """Read the next windows, and learn from them."""
        settings, started = self.settings, time.perf_counter()
        rate = learning_rate(settings, self.done, self.updates)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad(set_to_none=True)
        self.model.bilm.encoder.requires_grad_(self.done % settings.encoder_every == 0)
        losses = []
        with using_threads(settings.threads or None):
            for part in range(settings.gradient_accumulation):
                windows = [stream.window() for stream in self._streams]
                learnt = self._learn(windows, part)
                self._check(learnt, windows)
                self._state = learnt.state
                losses.append(learnt.losses)
            self._ranks.average_gradients(self.model.parameters())
            norm = clip_gradients(self.model.parameters(), settings.max_grad_norm)
            if not np.isfinite(norm):
                raise NumericError(
                    f"update {self.done}: the gradients are not finite, though the losses are "
                    f"{losses}; {_REMEDY}"
                )
            self._optimizer.step()
        self.done += 1
        means = [sum(column) / len(losses) for column in zip(*losses, strict=True)]
        return Update(means, norm, rate, time.perf_counter() - started)

    @property
    def over(self) -> bool:
        """Whether all updates are done, or validation has not become better for too long."""
        waited = self.settings.patience * self.settings.validation_interval
        return self.done >= self.updates or 0 < waited <= self.done - self.best_update

    def is_best(self, score: float | None) -> bool:
        """Whether a score is better than all before, as the first is, and one that is not known.

        Every rank has a score of its own making; the first rank's is the one that counts.
        """
        score = self._ranks.told_by_first(score)
        if self.best_update > 0 and score is not None and not score < self.best:
            return False
        self.best, self.best_update = float("inf") if score is None else score, self.done
        return True

    def due(self, every: int) -> bool:
        """Whether it is time for what is done every so many updates, and at the end."""
        return self.done >= self.updates or (every > 0 and self.done % every == 0)

    def checkpoint(self) -> Checkpoint:
        """All that this run is; every rank must ask for it at the same time."""
        return Checkpoint(
            update=self.done,
            weights={stored_name(n): t for n, t in self.model.state_dict().items()},
            optimizer=self._optimizer.state_dict(),
            output=self._ranks.gather(self._state.hidden, 2),
            memory=self._ranks.gather(self._state.cell, 2),
            positions=[stream.position for stream in self._streams],
            best=self.best,
            best_update=self.best_update,
            settings=self.settings.to_toml(),
            corpus=self.corpus.fingerprint,
            begun_with=self.begun_with,
        )

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Be the run that a checkpoint was taken of."""
        self.done, self.begun_with = checkpoint.update, checkpoint.begun_with
        self.best, self.best_update = checkpoint.best, checkpoint.best_update
        self.model.load_state_dict(
            {parameter_name(name): tensor for name, tensor in checkpoint.weights.items()}
        )
        self._optimizer.load_state_dict(checkpoint.optimizer)
        self._state = State(
            checkpoint.output[:, :, self._mine].to(self._device),
            checkpoint.memory[:, :, self._mine].to(self._device),
        )
        for stream, position in zip(self._streams, checkpoint.positions, strict=True):
            stream.seek(position)

    @property
    def _predictions(self) -> int:
        """What is predicted of the text in a direction: its words, and the end of each sentence."""
        return self.corpus.words + self.corpus.sentences

    def _stream(self, direction: Direction) -> Stream:
        settings = self.settings
        apart = settings.streams == "independent" and direction == "backward"
        stream = Stream(
            self.corpus.shards,
            lanes=settings.batch_size,
            steps=settings.sequence_length,
            direction=direction,
            shuffle=settings.shuffle,
            seed=settings.seed + apart,
        )
        stream.pass_over(int(settings.skip_epochs * self._predictions))
        return stream

    def _learn(self, windows: list[Window], part: int) -> Learnt:
        settings = self.settings
        mine = [window.lanes(self._mine) for window in windows]
        types, places = np.unique([window.inputs for window in mine], return_inverse=True)
        chars, _ = self.pretrained.indexer.encode([self.corpus.lexicon[t] for t in types])
        chars = np.vstack([np.zeros_like(chars[:1]), chars])  # row 0 is padding
        places = places.reshape(len(mine), -1) + 1
        return add_gradients(
            self.model,
            torch.from_numpy(chars).to(self._device),
            [
                self._reading(direction, windows[direction], places[direction], part)
                for direction in range(len(mine))
            ],
            self._state,
            scale=settings.sequence_length / settings.gradient_accumulation,
            sparse=self._sparse,
            short=settings.precision == "bfloat16",
        )

    def _reading(self, direction: int, window: Window, places: Ids, part: int) -> DirectionInput:
        settings, device = self.settings, self._device
        seed = (settings.seed, self.done, part, direction)
        chances = np.random.default_rng([_RESET, *seed]).random(window.inputs.shape)
        resets = window.starts & (chances < settings.reset_probability)
        generator = torch.Generator(device)
        generator.manual_seed(_one_number(_DROPOUT, *seed, self._ranks.rank))
        targets = window.targets[self._mine].flatten()
        targets[targets >= len(self.corpus.vocabulary)] = UNKNOWN_ID
        return DirectionInput(
            torch.from_numpy(places).to(device),
            torch.from_numpy(targets).to(device),
            Segments.of(resets[self._mine]).to(device),
            Dropout(
                settings.dropout,
                generator,
                variational=settings.variational_dropout,
                weight_rate=settings.weight_dropout,
                word_rate=settings.word_dropout,
            ),
            self._sample(seed),
        )

    def _sample(self, seed: tuple[int, ...]) -> NegativeSample | None:
        words, negatives = len(self.corpus.vocabulary), self.settings.num_sampled
        if self.settings.softmax == "adaptive":
            return None
        if not self.samples:
            return NegativeSample.entire_vocabulary(words, like=next(self.model.parameters()))
        generator = torch.Generator()
        generator.manual_seed(_one_number(_SAMPLE, *seed))
        drawn, log_expected_counts = sample_negatives(words, negatives, generator)
        return NegativeSample(drawn.to(self._device), log_expected_counts.to(self._device))

    @property
    def _sparse(self) -> bool:
        """Whether the gradient of the softmax's table is kept by rows."""
        settings, words = self.settings, len(self.corpus.vocabulary)
        possible = settings.optimizer == "adagrad" and self._ranks.size == 1
        touched = 2 * (settings.num_sampled + settings.batch_size * settings.sequence_length)
        few = settings.softmax == "sampled" and touched < _SPARSE_SHARE * words
        return possible and (
            settings.softmax_gradient == "sparse" or (settings.softmax_gradient == "auto" and few)
        )

    def _check(self, learnt: Learnt, windows: list[Window]) -> None:
        """Refuse to learn from what is not a number, and name the text it came from."""
        if np.isfinite(learnt.losses).all():
            return
        direction = int(np.argmin(np.isfinite(learnt.losses)))
        lanes = [lane + self._mine.start for lane in learnt.faulty[direction]]
        told = [
            f"lane {lane} was reading {self._text(windows[direction], lane)!r}"
            for lane in lanes[:_LANES_NAMED]
        ]
        if len(lanes) > _LANES_NAMED:
            told.append(f"and {len(lanes) - _LANES_NAMED} lanes more")
        raise NumericError(
            f"update {self.done}: the {self.config.directions[direction]} loss is "
            f"{learnt.losses[direction]}; {', '.join(told) or 'no lane by itself is at fault'}; "
            f"{_REMEDY}"
        )

    def _text(self, window: Window, lane: int) -> str:
        """What a lane reads in a window, and the word that it is to predict last."""
        ids = [*window.inputs[lane], window.targets[lane, -1]]
        return " ".join(self.corpus.lexicon[word] for word in ids)


def make_model(settings: PretrainingSettings, words: int) -> LanguageModel:
    """A new model with random weights."""
    if settings.softmax == "adaptive" and settings.cutoffs[-1] >= words:
        raise ConfigError(
            f"cutoffs is {settings.cutoffs}, but there are only {words:,} words to predict"
        )
    softmax = (
        AdaptiveSoftmax(words, settings.projection_size, settings.cutoffs)
        if settings.softmax == "adaptive"
        else Softmax(words, settings.projection_size)
    )
    return LanguageModel(BiLM(settings.bilm(words)), softmax, tie_weights=settings.tie_weights)


def _check_bfloat16(device: torch.device) -> None:
    """Refuse a device that has no instructions for it, and would gain nothing."""
    if device.type == "cuda":
        possible = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # newer torch's
        possible = device.type == "cpu" and bool(known.get("avx512_bf16"))
    if not possible:
        raise ConfigError(
            f"precision is bfloat16, which this {device} does not multiply; leave it float32"
        )


def _one_number(*seed: int) -> int:
    """One seed of several numbers."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1))
