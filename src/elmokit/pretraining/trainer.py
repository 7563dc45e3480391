"""The training loop: steps, validation, checkpoints, and resuming a run."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError, InputError, NumericError
from elmokit.formats.native import without_metadata
from elmokit.formats.pretrained import Pretrained, parameter_name, stored_name
from elmokit.model.bilm import BiLM, LanguageModel, State
from elmokit.model.dropout import Dropout
from elmokit.model.softmax import AdaptiveSoftmax, NegativeSample, Softmax, sample_negatives
from elmokit.model_config import BiLMConfig, Direction
from elmokit.pretraining.corpus import UNKNOWN_ID, Corpus
from elmokit.pretraining.distributed import ProcessGroup
from elmokit.pretraining.gradients import DirectionInput, Segments, WindowResult, add_gradients
from elmokit.pretraining.init_from_model import copy_weights
from elmokit.pretraining.run_directory import Checkpoint, RunDirectory, TrainingLog
from elmokit.pretraining.settings import PretrainingSettings
from elmokit.pretraining.training_windows import Ids, Stream, Window
from elmokit.pretraining.validation import Validation, validate
from elmokit.threads import using_threads
from elmokit.toml_settings import to_toml

# After so many seconds without a line of the log, a line of progress is reported.
_SECONDS_BETWEEN_LINES = 60.0
# A softmax whose gradient touches less than this fraction of its rows is updated row by row.
_SPARSE_FRACTION = 0.25
# The kinds of random choices in a step, each drawn from a seed of its own.
_RESET, _SAMPLE, _DROPOUT = range(3)
# An error names at most so many sequences whose loss is not finite.
_SEQUENCES_NAMED = 3
_REMEDY = (
    "start another run from the best model so far (--init-from OUT/model --out NEW), with a "
    "smaller learning_rate or max_grad_norm"
)


def pretrain(
    corpus: Corpus,
    settings: PretrainingSettings,
    out: str | Path,
    *,
    init_from: Pretrained | None = None,
    device: str | torch.device = "cpu",
    report: Callable[[str], None] | None = None,
) -> Validation | None:
    """Train a model on a corpus; `out/model` is the best one so far.

    A run that was killed at any moment resumes when it is called again with the same arguments,
    and ends with the same weights. With more `steps` or `epochs`, a finished run continues.
    `report` is called with lines of progress; without it nothing is reported.

    Returns the validation of the best model on all held-out text; None if there is no such text,
    or if the run had ended before.

    Example:
        settings = elmokit.PretrainingSettings(projection_size=16, cell_size=32, steps=3)
        elmokit.pretrain(elmokit.Corpus.open("corpus"), settings, "run", report=print)
        model = elmokit.load("run")
    """
    device = ProcessGroup.device(device)
    group = ProcessGroup.join(device)
    show_progress_bar = None if report and group.is_first else False  # during long validations
    saved_at = reported_at = time.monotonic()

    def tell(line: str) -> None:
        nonlocal reported_at
        reported_at = time.monotonic()
        if report is not None and group.is_first:
            report(line)

    run_dir = RunDirectory(Path(out), corpus, settings, writes=group.is_first)
    with run_dir.lock(wait_seconds=group.lock_seconds, tell=tell):
        group.broadcast(None)  # the other ranks wait until the directory exists
        checkpoint = run_dir.read_checkpoint()
        trainer = Trainer(corpus, settings, device=device, group=group)
        start = trainer.start(out, checkpoint, init_from)
        if trainer.step != group.broadcast(trainer.step):
            raise ConfigError(f"{out}: ranks do not see the same files there; use a shared disk")
        if start is not None:
            tell(start)
        run_dir.write_settings()
        if checkpoint is None:
            run_dir.save_checkpoint(trainer.checkpoint())  # the directory is this run's from now on

        log = TrainingLog(run_dir.path, trainer, group)
        results: list[StepResult] = []  # since the last line of the log
        while not trainer.finished:
            results.append(trainer.train_step())

            if trainer.is_due(settings.log_interval):
                tell(log.write_progress(results))
                results = []
            elif time.monotonic() - reported_at > _SECONDS_BETWEEN_LINES:
                tell(f"step {trainer.step:,} of {trainer.total_steps:,}")

            if trainer.is_due(settings.validation_interval):
                validation = validate(
                    trainer.pretrained,
                    corpus.valid,
                    words=settings.validation_words,
                    show_progress_bar=show_progress_bar,
                )
                tell(log.write_validation(validation))
                if trainer.is_best(validation):
                    run_dir.save_model(trainer.pretrained, trainer.model_card(validation))

            is_late = time.monotonic() - saved_at > 60 * settings.checkpoint_minutes
            if group.broadcast(is_late) or trainer.finished:
                run_dir.save_checkpoint(trainer.checkpoint())
                saved_at = time.monotonic()

        final_validation = None
        if group.is_first and corpus.valid and not log.has_final_validation:
            final_validation = validate(
                run_dir.load_best_model(), corpus.valid, show_progress_bar=show_progress_bar
            )
            line = log.write_validation(final_validation, final=True)
            tell(f"the best model, all held-out text: {line}")
        log.close()
        group.close()
        return final_validation


@dataclass(frozen=True)
class StepResult:
    """The losses and the speed of one step."""

    losses: list[float]  # of each direction, in nats per word; of this rank's rows
    gradient_norm: float
    learning_rate: float
    seconds: float


class Trainer:
    """The model, optimizer and data streams of a run, trained step by step.

    A batch consists of micro-batches, and ranks share its rows. Every random choice follows from
    the seed, the number of the step and, for dropout, the first of the rows that are computed
    together. So a resumed run has the same weights as an uninterrupted one, and several ranks as
    one, except for rounding, if each rank has whole micro-batches or there is no dropout.
    """

    def __init__(
        self,
        corpus: Corpus,
        settings: PretrainingSettings,
        *,
        device: torch.device | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        self.corpus, self.settings = corpus, settings
        self._device, self._group = device or torch.device("cpu"), group or ProcessGroup()
        if settings.precision == "bfloat16":
            _check_bfloat16(self._device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.model = make_model(settings, len(corpus.vocabulary)).to(self._device)
        self.pretrained = Pretrained(self.model, corpus.vocabulary, corpus.tokenizer)
        self._optimizer = make_optimizer(self.model, settings, self._group)
        self.config: BiLMConfig = self.model.bilm.config
        self._micro_batches = self._open_micro_batches()
        self.step = 0
        self.initial_card: str | None = None  # the model card of init_from
        self.best_score, self.best_step = float("inf"), 0
        self.total_steps = settings.steps or max(1, int(settings.epochs * self.steps_per_epoch))

    @property
    def num_rows(self) -> int:
        """How many rows of the batch are this rank's."""
        return sum(micro_batch.num_rows for micro_batch in self._micro_batches)

    @property
    def words_per_step(self) -> int:
        """How many words each direction predicts in a step, over all ranks."""
        settings = self.settings
        return settings.batch_size * settings.sequence_length * settings.gradient_accumulation

    @property
    def steps_per_epoch(self) -> float:
        return self.corpus.predictions / self.words_per_step

    @property
    def steps_left(self) -> int:
        return self.total_steps - self.step

    @property
    def epoch(self) -> float:
        """The position in the text, in epochs."""
        return self.settings.skip_epochs + self.step / self.steps_per_epoch

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or validation has not improved for too long."""
        waiting_steps = self.settings.patience * self.settings.validation_interval
        return self.step >= self.total_steps or 0 < waiting_steps <= self.step - self.best_step

    @property
    def loss_is_sampled(self) -> bool:
        """Whether the loss is over a sample of the vocabulary instead of all of it."""
        settings = self.settings
        return settings.softmax == "sampled" and settings.num_sampled < len(self.corpus.vocabulary)

    def train_step(self) -> StepResult:
        """Read the next windows, add up their gradients, and update the weights."""
        settings, started = self.settings, time.perf_counter()
        rate = learning_rate(settings, self.step, self.total_steps)
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = rate
        self._optimizer.zero_grad(set_to_none=True)
        self.model.bilm.encoder.requires_grad_(self.step % settings.encoder_every == 0)
        with using_threads(settings.threads or None):
            losses = self._add_up_gradients()
            self._group.sum_gradients(self.model.parameters())
            norm = clip_gradients(self.model.parameters(), settings.max_grad_norm)
            if not np.isfinite(norm):
                raise NumericError(
                    f"step {self.step}: the gradients are not finite, though the losses are "
                    f"{losses}; {_REMEDY}"
                )
            # Unless told so, torch warns that its own Adagrad does not check sparse gradients.
            with torch.sparse.check_sparse_tensor_invariants(False):
                self._optimizer.step()
        self.step += 1
        return StepResult(losses, norm, rate, time.perf_counter() - started)

    def _add_up_gradients(self) -> list[float]:
        """Add up the gradients of this rank's micro-batches; the mean loss of each direction.

        The gradients of a micro-batch are complete before they are added to those of others: so
        the sum of two has the same bits whether one rank or two have computed them.
        """
        weights = [*self.model.parameters()]
        totals: list[Tensor | None] = [None] * len(weights)
        losses = np.zeros(len(self.config.directions))
        for micro_batch in self._micro_batches:
            for part in range(self.settings.gradient_accumulation):
                windows = [stream.next_window() for stream in micro_batch.streams]
                result = self._add_gradients(micro_batch, windows, part)
                self._check_finite(result, micro_batch, windows)
                micro_batch.state = result.state
                losses += np.multiply(result.losses, micro_batch.num_rows)
            if len(self._micro_batches) > 1:
                totals = [
                    _sum(total, weight.grad) for total, weight in zip(totals, weights, strict=True)
                ]
                self._optimizer.zero_grad(set_to_none=True)
        if len(self._micro_batches) > 1:
            for total, weight in zip(totals, weights, strict=True):
                weight.grad = total
        count = self.num_rows * self.settings.gradient_accumulation
        return [float(total) / count for total in losses]

    def is_due(self, interval: int) -> bool:
        """Whether the step is a multiple of the interval, or the last one."""
        return self.step >= self.total_steps or (interval > 0 and self.step % interval == 0)

    def is_best(self, validation: Validation | None) -> bool:
        """Whether a validation's score is better than all before; it is remembered then.

        The first score counts as better, and so does a missing one. Each rank computes a score;
        that of the first rank decides.
        """
        score = self._group.broadcast(None if validation is None else validation.score)
        if self.best_step > 0 and score is not None and not score < self.best_score:
            return False
        self.best_score = float("inf") if score is None else score
        self.best_step = self.step
        return True

    def checkpoint(self) -> Checkpoint:
        """All state of the run; every rank must call this at the same step."""
        states = [micro_batch.state for micro_batch in self._micro_batches]
        positions = {
            micro_batch.number: [stream.position for stream in micro_batch.streams]
            for micro_batch in self._micro_batches
        }
        by_number = sorted(self._group.union(positions).items())
        return Checkpoint(
            step=self.step,
            weights={stored_name(n): t for n, t in self.model.state_dict().items()},
            optimizer=self._group.optimizer_state(self._optimizer),
            hidden=self._group.gather(torch.cat([state.hidden for state in states], 2), 2),
            cell=self._group.gather(torch.cat([state.cell for state in states], 2), 2),
            positions=[position for _, of_directions in by_number for position in of_directions],
            best_score=self.best_score,
            best_step=self.best_step,
            settings=to_toml(self.settings),
            corpus=self.corpus.fingerprint,
            initial_card=self.initial_card,
        )

    def start(
        self, out: str | Path, checkpoint: Checkpoint | None, init_from: Pretrained | None
    ) -> str | None:
        """Restore a checkpoint, or else copy the weights of another model; says which.

        InputError if the run in `out` has done more steps than the settings ask for.
        """
        if checkpoint is None:
            if init_from is None:
                return None
            self.initial_card = init_from.card
            return copy_weights(init_from, self.pretrained)
        if checkpoint.step > self.total_steps:
            raise InputError(
                f"{out}: this run has done {checkpoint.step:,} steps, more than the "
                f"{self.total_steps:,} that the settings ask for; set more steps or epochs, or "
                "give another --out"
            )
        self.step, self.initial_card = checkpoint.step, checkpoint.initial_card
        self.best_score, self.best_step = checkpoint.best_score, checkpoint.best_step
        self.model.load_state_dict(
            {parameter_name(name): tensor for name, tensor in checkpoint.weights.items()}
        )
        self._optimizer.load_state_dict(checkpoint.optimizer)
        for micro_batch in self._micro_batches:
            micro_batch.state = State(
                checkpoint.hidden[:, :, micro_batch.rows].to(self._device),
                checkpoint.cell[:, :, micro_batch.rows].to(self._device),
            )
            first = micro_batch.number * len(micro_batch.streams)
            positions = checkpoint.positions[first : first + len(micro_batch.streams)]
            for stream, position in zip(micro_batch.streams, positions, strict=True):
                stream.seek(position)
        return f"resuming after step {self.step:,} of {self.total_steps:,}"

    def model_card(self, validation: Validation | None) -> str:
        """The card of the model as it is now, in Markdown."""
        corpus = self.corpus
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        card = (
            "# An ELMo model\n\n"
            f"Pretrained by elmokit on {corpus.words:,} words in {corpus.sentences:,} sentences, "
            f"tokenized by `{corpus.tokenizer}`; {len(corpus.vocabulary):,} words to predict; "
            f"{parameters:,} parameters; {self.step:,} steps of {self.words_per_step:,} words.\n"
            f"\nHeld-out text: {validation or 'none'}.\n\n"
            f"Settings:\n\n```toml\n{to_toml(self.settings)}```\n"
        )
        if self.initial_card is not None:
            lines = without_metadata(self.initial_card).splitlines() or ["nothing"]
            card += "\nTraining started from the weights of another model. Its card:\n\n"
            card += "".join(f"> {line}".rstrip() + "\n" for line in lines)
        return card

    def _open_micro_batches(self) -> list["MicroBatch"]:
        """The micro-batches, or parts of them, that this rank's rows are in."""
        settings = self.settings
        mine = self._group.rows(settings.batch_size)
        micro_batches = []
        for number in range(settings.micro_batches):
            begin, end = (
                n * settings.batch_size // settings.micro_batches for n in (number, number + 1)
            )
            rows = slice(max(begin, mine.start), min(end, mine.stop))
            if rows.start < rows.stop:
                streams = [
                    self._open_stream(number, end - begin, direction)
                    for direction in self.config.directions
                ]
                state = State.zeros(
                    self.config, rows.stop - rows.start, like=next(self.model.parameters())
                )
                micro_batches.append(MicroBatch(number, begin, rows, streams, state))
        return micro_batches

    def _open_stream(self, number: int, num_rows: int, direction: Direction) -> Stream:
        settings = self.settings
        is_independent = settings.streams == "independent" and direction == "backward"
        stream = Stream(
            self.corpus.shards,
            batch_size=num_rows,
            sequence_length=settings.sequence_length,
            direction=direction,
            shuffle=settings.shuffle,
            seed=settings.seed + is_independent,
            part=(number, settings.micro_batches),
        )
        stream.skip(settings.skip_epochs)
        return stream

    def _add_gradients(
        self, micro_batch: "MicroBatch", windows: list[Window], part: int
    ) -> WindowResult:
        """Add the gradients of one window, part `part` of this step's."""
        settings = self.settings
        my_windows = [window.rows(micro_batch.own_rows) for window in windows]
        inputs = [window.inputs for window in my_windows]
        type_ids, type_rows = np.unique(inputs, return_inverse=True)
        chars, _ = self.pretrained.indexer.encode([self.corpus.lexicon[t] for t in type_ids])
        chars = np.vstack([np.zeros_like(chars[:1]), chars])  # row 0 is padding
        type_rows = type_rows.reshape(len(my_windows), -1) + 1
        share = micro_batch.num_rows / settings.batch_size
        return add_gradients(
            self.model,
            torch.from_numpy(chars).to(self._device),
            [
                self._direction_input(
                    direction, micro_batch, my_windows[direction], type_rows[direction], part
                )
                for direction in range(len(my_windows))
            ],
            micro_batch.state,
            scale=settings.sequence_length / settings.gradient_accumulation * share,
            sparse=self._sparse,
            bfloat16=settings.precision == "bfloat16",
        )

    def _direction_input(
        self,
        direction: int,
        micro_batch: "MicroBatch",
        window: Window,
        type_rows: Ids,
        part: int,
    ) -> DirectionInput:
        settings, device = self.settings, self._device
        seed = (settings.seed, self.step, part, direction)
        shape = settings.batch_size, settings.sequence_length
        chances = np.random.default_rng([_RESET, *seed]).random(shape)[micro_batch.rows]
        resets = window.starts & (chances < settings.reset_probability)
        generator = torch.Generator(device)
        generator.manual_seed(_combine_seeds(_DROPOUT, *seed, micro_batch.rows.start))
        targets = window.targets.flatten()
        targets[targets >= len(self.corpus.vocabulary)] = UNKNOWN_ID
        return DirectionInput(
            torch.from_numpy(type_rows).to(device),
            torch.from_numpy(targets).to(device),
            Segments.of(resets, device),
            Dropout(
                settings.dropout,
                generator,
                variational=settings.variational_dropout,
                weight_rate=settings.weight_dropout,
                word_rate=settings.word_dropout,
            ),
            self._sample_negatives(seed),
        )

    def _sample_negatives(self, seed: tuple[int, ...]) -> NegativeSample | None:
        num_words = len(self.corpus.vocabulary)
        if self.settings.softmax == "adaptive":
            return None
        if not self.loss_is_sampled:
            return NegativeSample.entire_vocabulary(num_words, like=next(self.model.parameters()))
        generator = torch.Generator().manual_seed(_combine_seeds(_SAMPLE, *seed))
        sample = sample_negatives(num_words, self.settings.num_sampled, generator)
        return NegativeSample(*(tensor.to(self._device) for tensor in sample))

    @property
    def _sparse(self) -> bool:
        """Whether the gradient of the softmax's weights is stored by rows."""
        settings, num_words = self.settings, len(self.corpus.vocabulary)
        is_possible = settings.optimizer == "adagrad" and self._group.size == 1
        rows = 2 * (settings.num_sampled + settings.batch_size * settings.sequence_length)
        is_faster = settings.softmax == "sampled" and rows < _SPARSE_FRACTION * num_words
        choice = settings.softmax_gradient
        return is_possible and (choice == "sparse" or (choice == "auto" and is_faster))

    def _check_finite(
        self, result: WindowResult, micro_batch: "MicroBatch", windows: list[Window]
    ) -> None:
        """Refuse a loss that is not finite, and name the text it came from."""
        if np.isfinite(result.losses).all():
            return
        direction = int(np.argmin(np.isfinite(result.losses)))
        rows = result.not_finite[direction]
        window = windows[direction].rows(micro_batch.own_rows)
        details = []
        for row in rows[:_SEQUENCES_NAMED]:
            word_ids = [*window.inputs[row], window.targets[row, -1]]
            text = " ".join(self.corpus.lexicon[word] for word in word_ids)
            details.append(f"row {micro_batch.rows.start + row} of the batch was {text!r}")
        if len(rows) > _SEQUENCES_NAMED:
            details.append(f"and {len(rows) - _SEQUENCES_NAMED} rows more")
        raise NumericError(
            f"step {self.step}: the {self.config.directions[direction]} loss is "
            f"{result.losses[direction]}; {', '.join(details) or 'each row by itself is finite'}; "
            f"{_REMEDY}"
        )


@dataclass
class MicroBatch:
    """The rows of a batch that this rank computes together, and the text that they read."""

    number: int
    begin: int  # its first row, which is another rank's if two share it
    rows: slice  # of the batch: those of this rank
    streams: list[Stream]  # of each direction
    state: State

    @property
    def num_rows(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def own_rows(self) -> slice:
        """This rank's rows of the micro-batch."""
        return slice(self.rows.start - self.begin, self.rows.stop - self.begin)


def _sum(total: Tensor | None, grad: Tensor | None) -> Tensor | None:
    if total is None or grad is None:
        return grad if total is None else total
    # The sum of a dense and a sparse gradient is asked for in this order.
    return grad + total if total.is_sparse else total + grad


def make_model(settings: PretrainingSettings, vocabulary_size: int) -> LanguageModel:
    """A new model with random weights."""
    softmax: Softmax | AdaptiveSoftmax
    if settings.softmax != "adaptive":
        softmax = Softmax(vocabulary_size, settings.projection_size)
    elif settings.cutoffs[-1] < vocabulary_size:
        softmax = AdaptiveSoftmax(vocabulary_size, settings.projection_size, settings.cutoffs)
    else:
        raise ConfigError(
            f"cutoffs is {settings.cutoffs}, but there are only {vocabulary_size:,} words to "
            "predict"
        )
    bilm = BiLM(settings.bilm(vocabulary_size))
    return LanguageModel(bilm, softmax, tie_weights=settings.tie_weights)


def make_optimizer(
    model: nn.Module, settings: PretrainingSettings, group: ProcessGroup | None = None
) -> torch.optim.Optimizer:
    """Adagrad, or AdamW with weight decay of matrices only."""
    make = partial((group or ProcessGroup()).make_optimizer, shard=settings.shard_optimizer)
    if settings.optimizer == "adagrad":
        return make(
            torch.optim.Adagrad,
            model.parameters(),
            lr=settings.learning_rate,
            initial_accumulator_value=settings.initial_accumulator,
        )
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if p.dim() > 1]},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return make(
        torch.optim.AdamW,
        groups,
        lr=settings.learning_rate,
        betas=(0.9, settings.beta2),
        weight_decay=settings.weight_decay,
    )


def learning_rate(settings: PretrainingSettings, step: int, total_steps: int) -> float:
    """The learning rate of a step, counted from 0."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(1, total_steps - settings.warmup_steps)
    final = settings.final_learning_rate
    factor = {
        "constant": 1.0,
        "linear": 1 - (1 - final) * done,
        "cosine": final + (1 - final) * (1 + math.cos(math.pi * done)) / 2,
    }[settings.schedule]
    return settings.learning_rate * factor


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients down to a norm, 0 for no limit; returns the norm they had."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    values = [grad._values() if grad.is_sparse else grad for grad in grads]
    norms = torch.stack([torch.linalg.vector_norm(part) for part in values])
    norm = float(torch.linalg.vector_norm(norms))
    if max_norm > 0 and norm > max_norm:
        for part in values:
            part.mul_(max_norm / norm)
    return norm


def _check_bfloat16(device: torch.device) -> None:
    """Refuse a device without bfloat16 instructions, on which it would gain nothing."""
    if device.type == "cuda":
        is_supported = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        is_supported = device.type == "cpu" and bool(capabilities.get("avx512_bf16"))
    if not is_supported:
        raise ConfigError(
            f"precision is bfloat16, for which this {device} has no instructions; leave it float32"
        )


def _combine_seeds(*seeds: int) -> int:
    """One seed from several numbers."""
    return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> np.uint64(1))
