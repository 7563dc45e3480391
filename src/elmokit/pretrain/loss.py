"""The loss of a pretraining window, and its gradients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.model.bilm import LanguageModel, State
from elmokit.model.char_cnn import CharacterEncoder
from elmokit.model.dropout import Dropout
from elmokit.model.softmax import AdaptiveSoftmax, NegativeSample, Softmax, sampled_loss
from elmokit.threads import allowed_threads, run_side_by_side, torch_threads, using_threads


@dataclass(frozen=True)
class Segments:
    """The rows of a window, longest first, and which lanes they belong to.

    A lane that starts afresh in the middle of a window goes on as another row, from zero: so the
    readers need to know nothing of it.
    """

    tokens: Tensor  # (tokens,), places in the flattened window, step after step
    sizes: list[int]  # how many rows have a word at each step
    lanes: Tensor  # (rows,), the lane of each row
    fresh: Tensor  # (rows,), whether it starts from zero
    last: Tensor  # (lanes,), the row that each lane ends with

    @classmethod
    def of(cls, resets: npt.NDArray[np.bool_]) -> "Segments":
        """The rows of lanes that start afresh at those places, (lanes, steps)."""
        lanes, steps = resets.shape
        cuts = resets.copy()
        cuts[:, 0] = True
        begins = np.flatnonzero(cuts)
        lengths = np.diff(np.append(begins, lanes * steps))
        order = np.argsort(-lengths, kind="stable")
        sizes = (lengths > np.arange(steps)[:, None]).sum(1)
        sizes = sizes[sizes > 0]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        begins = begins[order]
        tokens = np.concatenate([begins[:size] + step for step, size in enumerate(sizes)])
        ends = np.searchsorted(np.flatnonzero(cuts), np.arange(1, lanes + 1) * steps) - 1
        return cls(
            torch.from_numpy(tokens),
            sizes.tolist(),
            torch.from_numpy(begins // steps),
            torch.from_numpy(resets.flatten()[begins]),
            torch.from_numpy(place[ends]),
        )

    def to(self, device: torch.device) -> "Segments":
        """The same rows on a device."""
        return Segments(
            self.tokens.to(device),
            self.sizes,
            self.lanes.to(device),
            self.fresh.to(device),
            self.last.to(device),
        )


# Readers with fewer numbers in a layer's memory, all lanes together, would wait for Python's lock.
_NUMBERS_TO_LEARN_AT_ONCE = 2**15


@dataclass(frozen=True)
class DirectionInput:
    """What one reader reads and is to predict in a step."""

    words: Tensor  # (lanes * steps,), rows of the batch's word types
    targets: Tensor  # (lanes * steps,), words of the softmax
    segments: Segments
    dropout: Dropout
    sample: NegativeSample | None  # wrong answers; None for a softmax that needs none


@dataclass(frozen=True)
class Learnt:
    """The loss of each direction, a mean over its words, and the state its lanes end in.

    `faulty` are the lanes of each direction whose own loss is not a finite number.
    """

    losses: list[float]
    state: State
    faulty: list[list[int]]


def add_gradients(
    model: LanguageModel,
    chars: Tensor,
    readings: Sequence[DirectionInput],
    state: State,
    *,
    scale: float,
    sparse: bool,
    short: bool = False,
) -> Learnt:
    """Add to the weights' gradients those of the mean loss of all directions, times `scale`.

    If `short`, products of the readers and the sampled softmax are bfloat16, sums float32.

    Each word type is encoded once for both readers, which learn at the same time: what they share,
    the word vectors and the softmax, is cut off before them and its gradient passed on after them.
    """
    bilm = model.bilm
    # All words in products of milliseconds: torch's own threads gain, and on a busy machine lose
    # little. A word table has no products.
    threads = allowed_threads() if isinstance(bilm.encoder, CharacterEncoder) else 1
    with torch_threads(threads):
        types = bilm.encode(chars)
    vectors = types.detach().requires_grad_(types.requires_grad)
    answers = _Answers.of(model, readings)
    outputs, memories = list(state.hidden), list(state.cell)
    losses = [0.0] * len(readings)
    faulty: list[list[int]] = [[] for _ in readings]

    def learn(direction: int) -> None:
        reading = readings[direction]
        segments = reading.segments
        fresh = segments.fresh[:, None]
        with torch.autocast(chars.device.type, torch.bfloat16, enabled=short):
            read, output, memory = bilm.lstms[direction](
                F.embedding(reading.words[segments.tokens], reading.dropout.drop_words(vectors)),
                segments.sizes,
                outputs[direction][:, segments.lanes].masked_fill(fresh, 0),
                memories[direction][:, segments.lanes].masked_fill(fresh, 0),
                bilm.config.num_layers,
                dropout=reading.dropout,
            )
            top = reading.dropout(read[-1], segments.sizes)
            loss = answers.loss(direction, top, segments.tokens) / len(top)
        (loss * (scale / len(readings))).backward()
        losses[direction] = loss.item()
        if not math.isfinite(losses[direction]):
            faulty[direction] = answers.faulty_lanes(direction, top.detach(), segments)
        outputs[direction] = output.detach()[:, segments.last]
        memories[direction] = memory.detach()[:, segments.last]

    jobs = [partial(learn, direction) for direction in range(len(readings))]
    much = state.cell[0, 0].numel() >= _NUMBERS_TO_LEARN_AT_ONCE and not isinstance(
        model.softmax, AdaptiveSoftmax
    )  # whose gradients are added up in place: the order would matter
    if much and chars.device.type == "cpu":
        run_side_by_side(jobs, grad=True)
    else:
        with using_threads(1):
            for job in jobs:
                job()
    if types.requires_grad:  # a sixth of the time
        with torch_threads(threads):
            types.backward(vectors.grad)
    answers.pass_gradients(sparse=sparse)
    return Learnt(losses, State(torch.stack(outputs), torch.stack(memories)), faulty)


class _Answers:
    """The part of the softmax that a step needs, and the way back for its gradient."""

    def __init__(
        self,
        softmax: Softmax | AdaptiveSoftmax,
        readings: Sequence[DirectionInput],
        table: Tensor | None,
    ) -> None:
        self._softmax, self._readings = softmax, readings
        if isinstance(softmax, AdaptiveSoftmax):
            return
        # Only the rows that are asked for take part: few of a large table.
        self._table = softmax.weight if table is None else table
        asked = [r.targets for r in readings] + [r.sample.word_ids for r in readings if r.sample]
        self._rows = torch.cat(asked).unique()
        self._place = self._rows.new_zeros(softmax.num_words)
        self._place[self._rows] = torch.arange(len(self._rows), device=self._rows.device)
        self._weight = self._table.detach()[self._rows].requires_grad_()
        self._bias = softmax.bias.detach()[self._rows].requires_grad_()

    @classmethod
    def of(cls, model: LanguageModel, readings: Sequence[DirectionInput]) -> "_Answers":
        assert model.softmax is not None
        return cls(model.softmax, readings, model.tied_embedding)

    def loss(self, direction: int, vectors: Tensor, tokens: Tensor) -> Tensor:
        reading = self._readings[direction]
        targets = reading.targets[tokens]
        if isinstance(self._softmax, AdaptiveSoftmax):
            with torch.autocast(vectors.device.type, enabled=False):
                return -self._softmax.log_likelihood(vectors, targets).sum()
        assert reading.sample is not None
        sample = NegativeSample(
            self._place[reading.sample.word_ids], reading.sample.log_expected_counts[self._rows]
        )
        return sampled_loss(vectors, self._place[targets], self._weight, self._bias, sample)

    def faulty_lanes(self, direction: int, vectors: Tensor, segments: Segments) -> list[int]:
        """The lanes whose loss is not a finite number, each judged by itself."""
        lanes = len(segments.last)
        lane_of = segments.tokens // (len(segments.tokens) // lanes)
        own = [(lane_of == lane).nonzero().flatten() for lane in range(lanes)]
        with torch.no_grad():
            losses = [self.loss(direction, vectors[rows], segments.tokens[rows]) for rows in own]
        return [lane for lane, loss in enumerate(losses) if not bool(loss.isfinite())]

    def pass_gradients(self, *, sparse: bool) -> None:
        if isinstance(self._softmax, AdaptiveSoftmax):
            return
        for whole, part in ((self._table, self._weight), (self._softmax.bias, self._bias)):
            assert part.grad is not None
            if not whole.is_leaf:  # a table shared with the words that are read
                whole.backward(torch.zeros_like(whole).index_copy_(0, self._rows, part.grad))
                continue
            if sparse:
                grad = torch.sparse_coo_tensor(
                    self._rows[None],
                    part.grad,
                    whole.shape,
                    is_coalesced=True,
                    check_invariants=False,
                )
                whole.grad = grad if whole.grad is None else (whole.grad + grad).coalesce()
                continue
            if whole.grad is None:
                whole.grad = torch.zeros_like(whole)
            whole.grad.index_add_(0, self._rows, part.grad)
