"""The loss of a training window, and its gradients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.model.bilm import BiLM, LanguageModel, State
from elmokit.model.char_cnn import CharacterEncoder
from elmokit.model.dropout import Dropout
from elmokit.model.softmax import AdaptiveSoftmax, NegativeSample, Softmax, sampled_loss
from elmokit.threads import run_side_by_side, using_threads

# With fewer numbers in a layer's cell state, all rows together, the two directions would wait for
# Python's lock most of the time if they were trained in two threads.
_NUMBERS_FOR_THREADS = 2**15
_TYPES_PER_PIECE = 256


@dataclass(frozen=True)
class Segments:
    """The rows of a window, split where a state is reset, as packed sequences, longest first.

    A row that is reset in the middle of a window continues as another segment with a zero state,
    so the LSTMs need not know about resets.
    """

    tokens: Tensor  # (tokens,), positions in the flattened window, step after step
    batch_sizes: list[int]  # how many segments have a word at each step
    rows: Tensor  # (segments,), the row of the window that each segment is part of
    is_reset: Tensor  # (segments,), whether it starts from a zero state
    last: Tensor  # (batch_size,), the last segment of each row

    @classmethod
    def of(cls, resets: npt.NDArray[np.bool_], device: torch.device | str = "cpu") -> "Segments":
        """The segments of rows that are reset before some words, (batch_size, steps)."""
        num_rows, steps = resets.shape
        is_start = resets.copy()
        is_start[:, 0] = True
        starts = np.flatnonzero(is_start)
        lengths = np.diff(np.append(starts, num_rows * steps))
        order = np.argsort(-lengths, kind="stable")
        batch_sizes = (lengths > np.arange(steps)[:, None]).sum(1)
        batch_sizes = batch_sizes[batch_sizes > 0]
        rank = np.argsort(order)
        starts_by_rank = starts[order]
        tokens = [starts_by_rank[:size] + step for step, size in enumerate(batch_sizes)]
        last = np.searchsorted(starts, np.arange(1, num_rows + 1) * steps) - 1

        def tensor(array: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(device)

        return cls(
            tensor(np.concatenate(tokens)),
            batch_sizes.tolist(),
            tensor(starts_by_rank // steps),
            tensor(resets.flatten()[starts_by_rank]),
            tensor(rank[last]),
        )


@dataclass(frozen=True)
class DirectionInput:
    """What the LSTMs of one direction read and predict in a window."""

    type_rows: Tensor  # (batch_size * steps,), rows of the distinct words' vectors
    targets: Tensor  # (batch_size * steps,), word ids of the softmax
    segments: Segments
    dropout: Dropout
    negatives: NegativeSample | None  # None for a softmax that needs no sample


@dataclass(frozen=True)
class WindowResult:
    """The loss of each direction, a mean over its words, and the final state of each row."""

    losses: list[float]
    state: State
    not_finite: list[list[int]]  # by direction: the rows whose own loss is not finite


def add_gradients(
    model: LanguageModel,
    chars: Tensor,
    inputs: Sequence[DirectionInput],
    state: State,
    *,
    scale: float,
    sparse: bool,
    bfloat16: bool = False,
) -> WindowResult:
    """Add the gradients of the mean loss of all directions, times `scale`, to the weights'.

    With `bfloat16`, products of the LSTMs and the sampled softmax are bfloat16, sums float32.

    Each distinct word is encoded once for both directions, which are trained at the same time: the
    graph is cut between them and what they share, the word vectors and the softmax, whose
    gradients are computed afterwards.
    """
    bilm = model.bilm
    encoded = _EncodedTypes(bilm, chars)
    vectors = encoded.vectors
    softmax = _WindowSoftmax(model, inputs)
    hidden, cell = list(state.hidden), list(state.cell)
    losses = [0.0] * len(inputs)
    not_finite: list[list[int]] = [[] for _ in inputs]

    def train_direction(direction: int) -> None:
        input_ = inputs[direction]
        segments = input_.segments
        is_reset = segments.is_reset[:, None]
        with torch.autocast(chars.device.type, torch.bfloat16, enabled=bfloat16):
            layers, last_hidden, last_cell = bilm.lstms[direction](
                F.embedding(input_.type_rows[segments.tokens], input_.dropout.drop_words(vectors)),
                segments.batch_sizes,
                hidden[direction][:, segments.rows].masked_fill(is_reset, 0),
                cell[direction][:, segments.rows].masked_fill(is_reset, 0),
                bilm.config.num_layers,
                dropout=input_.dropout,
            )
            top = input_.dropout(layers[-1], segments.batch_sizes)
            loss = softmax.loss(direction, top, segments.tokens) / len(top)
        (loss * (scale / len(inputs))).backward()
        losses[direction] = loss.item()
        if not math.isfinite(losses[direction]):
            not_finite[direction] = softmax.rows_not_finite(direction, top.detach(), segments)
        hidden[direction] = last_hidden.detach()[:, segments.last]
        cell[direction] = last_cell.detach()[:, segments.last]

    jobs = [partial(train_direction, direction) for direction in range(len(inputs))]
    is_large = state.cell[0, 0].numel() >= _NUMBERS_FOR_THREADS
    # An adaptive softmax's gradients are added in place: their order would matter.
    is_independent = not isinstance(model.softmax, AdaptiveSoftmax)
    if is_large and is_independent and chars.device.type == "cpu":
        run_side_by_side(jobs, grad=True)
    else:
        with using_threads(1):
            for job in jobs:
                job()
    encoded.add_gradients()
    softmax.add_gradients(sparse=sparse)
    return WindowResult(losses, State(torch.stack(hidden), torch.stack(cell)), not_finite)


class _EncodedTypes:
    """The vectors of a window's distinct words, for which the encoder runs in pieces.

    Pieces have the same size whatever the number of threads, and their gradients are added in
    order: so a training run does not depend on how many threads it has.
    """

    def __init__(self, bilm: BiLM, chars: Tensor) -> None:
        self._weights = [weight for weight in bilm.encoder.parameters() if weight.requires_grad]
        in_pieces = isinstance(bilm.encoder, CharacterEncoder) and chars.device.type == "cpu"
        # Row 0 is padding, which `encode` puts before the vectors of each piece.
        pieces = chars[1:].split(_TYPES_PER_PIECE if in_pieces else len(chars))
        self._pieces = run_side_by_side(
            [partial(bilm.encode, torch.cat([chars[:1], piece])) for piece in pieces], grad=True
        )
        rows = [self._pieces[0], *(piece[1:] for piece in self._pieces[1:])]
        self.vectors = torch.cat(rows).detach().requires_grad_(bool(self._weights))

    def add_gradients(self) -> None:
        """Add the gradients that the vectors have got to those of the encoder's weights."""
        if not self._weights:
            return
        assert self.vectors.grad is not None
        sizes = [len(piece) - 1 for piece in self._pieces]
        jobs = [
            partial(torch.autograd.grad, piece[1:], self._weights, grad)
            for piece, grad in zip(self._pieces, self.vectors.grad[1:].split(sizes), strict=True)
        ]
        for gradients in run_side_by_side(jobs, grad=True):
            for weight, gradient in zip(self._weights, gradients, strict=True):
                # The sum of a dense and a sparse gradient is asked for in this order.
                weight.grad = gradient if weight.grad is None else gradient + weight.grad


class _WindowSoftmax:
    """The softmax's rows that a window needs: few of many, so only they have gradients at first."""

    def __init__(self, model: LanguageModel, inputs: Sequence[DirectionInput]) -> None:
        assert model.softmax is not None
        self._softmax: Softmax | AdaptiveSoftmax = model.softmax
        self._inputs = inputs
        if isinstance(self._softmax, AdaptiveSoftmax):
            return
        tied = model.tied_embedding
        self._all_weights = self._softmax.weight if tied is None else tied
        needed = [each.targets for each in inputs]
        needed += [each.negatives.word_ids for each in inputs if each.negatives]
        self._word_ids = torch.cat(needed).unique()
        rows = torch.arange(len(self._word_ids), device=self._word_ids.device)
        self._row_of_word = rows.new_zeros(self._softmax.num_words)
        self._row_of_word[self._word_ids] = rows
        self._weight = self._all_weights.detach()[self._word_ids].requires_grad_()
        self._bias = self._softmax.bias.detach()[self._word_ids].requires_grad_()

    def loss(self, direction: int, vectors: Tensor, tokens: Tensor) -> Tensor:
        """The sum of the losses of some of a window's tokens."""
        input_ = self._inputs[direction]
        targets = input_.targets[tokens]
        if isinstance(self._softmax, AdaptiveSoftmax):
            with torch.autocast(vectors.device.type, enabled=False):
                return -self._softmax.log_likelihood(vectors, targets).sum()
        assert input_.negatives is not None
        negatives = NegativeSample(
            self._row_of_word[input_.negatives.word_ids],
            input_.negatives.log_expected_counts[self._word_ids],
        )
        return sampled_loss(
            vectors, self._row_of_word[targets], self._weight, self._bias, negatives
        )

    def rows_not_finite(self, direction: int, vectors: Tensor, segments: Segments) -> list[int]:
        """The rows of the window whose own loss is not finite."""
        num_rows = len(segments.last)
        row_of_token = segments.tokens // (len(segments.tokens) // num_rows)
        positions = [(row_of_token == row).nonzero().flatten() for row in range(num_rows)]
        with torch.no_grad():
            losses = [self.loss(direction, vectors[p], segments.tokens[p]) for p in positions]
        return [row for row, loss in enumerate(losses) if not bool(loss.isfinite())]

    def add_gradients(self, *, sparse: bool) -> None:
        """Add the gradients of the rows to those of the whole softmax."""
        if isinstance(self._softmax, AdaptiveSoftmax):
            return
        pairs = ((self._all_weights, self._weight.grad), (self._softmax.bias, self._bias.grad))
        for parameter, rows in pairs:
            assert rows is not None
            before = parameter.grad if parameter.is_leaf else None
            if not parameter.is_leaf:  # tied to the word embeddings
                parameter.backward(torch.zeros_like(parameter).index_copy_(0, self._word_ids, rows))
            elif sparse:
                grad = torch.sparse_coo_tensor(
                    self._word_ids[None],
                    rows,
                    parameter.shape,
                    is_coalesced=True,
                    check_invariants=False,
                )
                parameter.grad = grad if before is None else (before + grad).coalesce()
            else:
                parameter.grad = torch.zeros_like(parameter) if before is None else before
                parameter.grad.index_add_(0, self._word_ids, rows)
