"""The LSTMs of a biLM: projected, clipped, with skip connections, one stack per direction."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.model.dropout import Dropout
from elmokit.model.kernels import Kernel, KernelStack, LayerParameters
from elmokit.model.packed_linear import (
    LinearOp,
    PlainLinear,
    Precision,
    matmul_dtype,
    pack_linear,
)
from elmokit.model_config import BiLMConfig
from elmokit.threads import torch_threads

# The part of the gates that depends on the input is computed for many steps at once: for this many
# numbers, which is enough for an efficient product, and bounds memory for a sentence of any length.
_WINDOW_NUMBERS = 2**21


@dataclass(frozen=True)
class LSTMWeights:
    """The weights of a layer as linear operations, possibly packed for inference."""

    input: LinearOp  # (tokens, dim) -> (tokens, 4 * cell_size)
    recurrent: LinearOp  # (rows, dim) -> (rows, 4 * cell_size)
    projection: LinearOp | None  # (rows, cell_size) -> (rows, dim)
    peepholes: Tensor | None = None  # (3, cell_size)

    @classmethod
    def of(
        cls,
        make: Callable[[Tensor, Tensor | None], LinearOp],
        input_weight: Tensor,
        recurrent_weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        peepholes: Tensor | None,
    ) -> "LSTMWeights":
        """The operations that `make` gives for each weight and its bias."""
        return cls(
            make(input_weight, bias),
            make(recurrent_weight, None),
            None if projection is None else make(projection, None),
            peepholes,
        )


class Clips(NamedTuple):
    """The largest absolute value in a cell state and in a projected hidden state; None: no clip."""

    cell: float | None
    projection: float | None


class TorchStack(list[LSTMWeights]):
    """The layers of one direction, packed for torch's operations."""

    @property
    def batch_invariant(self) -> bool:
        """Whether a row has the same bits whatever rows are beside it."""
        return self[0].recurrent.batch_invariant

    def max_threads(self, work: float, steps: int) -> int:
        """How many threads are faster than one, at so many multiplications in each step."""
        return int(work // self[0].recurrent.min_work_per_thread)


PackedStack = TorchStack | KernelStack


class LSTMStack(nn.Module):
    """The LSTM layers of one direction; with `skip_connections`, a layer's input is added to its
    output, except in the first layer."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.skip_connections = config.skip_connections
        self.layers = nn.ModuleList(ProjectedLSTM(config) for _ in range(config.num_layers))

    def forward(
        self,
        inputs: Tensor,
        batch_sizes: Sequence[int],
        hidden: Tensor,
        cell: Tensor,
        num_layers: int,
        weights: PackedStack | None = None,
        dropout: Dropout | None = None,
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """The outputs of the first `num_layers` layers, and all layers' hidden and cell states.

        `inputs` and each output are (tokens, dim), packed as in torch's PackedSequence;
        `hidden` is (layers, sentences, dim), `cell` (layers, sentences, cell_size). The states of
        layers that are not run stay the same. `weights` are those of `pack`; without them, the
        parameters are used. In training, `dropout` is applied to the input of each layer.
        """
        if isinstance(weights, KernelStack):
            return weights.run(inputs, batch_sizes, hidden, cell, num_layers)
        outputs, hidden_states, cell_states = [], list(hidden), list(cell)
        for number, layer in enumerate(self.layers[:num_layers]):
            if dropout is not None:
                inputs = dropout(inputs, batch_sizes)
            output, hidden_states[number], cell_states[number] = layer(
                inputs,
                batch_sizes,
                hidden_states[number],
                cell_states[number],
                weights and weights[number],
                dropout,
            )
            inputs = output + inputs if self.skip_connections and number > 0 else output
            outputs.append(inputs)
        return outputs, torch.stack(hidden_states), torch.stack(cell_states)

    def pack(self, precision: Precision, kernel: Kernel) -> PackedStack:
        """The weights of every layer, packed once for inference in a precision."""
        layers = [layer for layer in self.layers if isinstance(layer, ProjectedLSTM)]
        if kernel == "torch":
            pack = partial(pack_linear, precision=precision)
            return TorchStack(layer.weights(pack) for layer in layers)
        return KernelStack(
            [layer.parameters_of_inference() for layer in layers],
            layers[0].clips,
            precision,
            skip_connections=self.skip_connections,
        )


class ProjectedLSTM(nn.Module):
    """An LSTM layer whose hidden state is projected and clipped, and whose cell state is clipped.

    The rows of its weights are four gates: input, forget, output, candidate. With `peepholes`, the
    first three also depend on the cell state, by a weight for each of its numbers: the input and
    forget gates on the one before the step, the output gate on the one after it.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        dim, cell_size = config.projection_size, config.cell_size
        self.clips = Clips(config.cell_clip, config.projection_clip)
        self.forget_bias = config.forget_bias
        self.input_weight = nn.Parameter(torch.empty(4 * cell_size, dim))
        self.recurrent_weight = nn.Parameter(torch.empty(4 * cell_size, dim))
        self.bias = nn.Parameter(torch.zeros(4 * cell_size))
        self.projection = None if dim == cell_size else nn.Parameter(torch.empty(dim, cell_size))
        self.peepholes = nn.Parameter(torch.zeros(3, cell_size)) if config.peepholes else None
        # TensorFlow's default for its single kernel of input and recurrent weights.
        bound = (6 / (2 * dim + 4 * cell_size)) ** 0.5
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.recurrent_weight, -bound, bound)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def forward(
        self,
        inputs: Tensor,
        batch_sizes: Sequence[int],
        hidden: Tensor,
        cell: Tensor,
        weights: LSTMWeights | None = None,
        dropout: Dropout | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The hidden state after each token, (tokens, dim), and the states after each sentence."""
        if weights is None and not torch.is_grad_enabled():
            weights = self.weights(PlainLinear)
        if weights is not None:
            return lstm_forward(weights, inputs, batch_sizes, hidden, cell, self.clips)
        result: tuple[Tensor, Tensor, Tensor] = LSTMFunction.apply(  # type: ignore[no-untyped-call]
            inputs,
            hidden,
            cell,
            self.input_weight,
            dropout.drop_weights(self.recurrent_weight) if dropout else self.recurrent_weight,
            self._bias(),
            self.projection,
            self.peepholes,
            batch_sizes,
            self.clips,
        )
        return result

    def parameters_of_inference(self) -> LayerParameters:
        """The parameters as a compiled layer takes them."""
        return LayerParameters(
            self.input_weight,
            self.recurrent_weight,
            self._bias(),
            self.projection,
            self.peepholes,
        )

    def weights(self, make: Callable[[Tensor, Tensor | None], LinearOp]) -> LSTMWeights:
        """The parameters as the operations that `make` gives for each weight and its bias."""
        return LSTMWeights.of(
            make,
            self.input_weight,
            self.recurrent_weight,
            self._bias(),
            self.projection,
            self.peepholes,
        )

    def _bias(self) -> Tensor:
        """The bias with the constant of the forget gate."""
        cell_size = len(self.bias) // 4
        offset = torch.zeros_like(self.bias)
        offset[cell_size : 2 * cell_size] = self.forget_bias
        return self.bias + offset


class SavedActivations(NamedTuple):
    """What the backward pass needs of every step: gates after their activation, and cell states."""

    gates: Tensor  # (tokens, 4 * cell_size)
    cells: Tensor  # (tokens, cell_size)


def lstm_forward(
    weights: LSTMWeights,
    inputs: Tensor,
    batch_sizes: Sequence[int],
    hidden: Tensor,
    cell: Tensor,
    clips: Clips,
    saved: SavedActivations | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The hidden state after each token, (tokens, dim), and the states after each sentence.

    Fills `saved`, if given.
    """
    hidden, cell = hidden.clone(), cell.clone()
    outputs = inputs.new_empty(len(inputs), hidden.shape[1])
    cell_size = cell.shape[1]
    gates_buffer = inputs.new_empty(len(cell), 4 * cell_size)
    peepholes = weights.peepholes
    num_early_gates = 3 if peepholes is None else 2  # the output gate waits for the cell state
    unprojected_buffer = torch.empty_like(cell)
    rows, end = 0, 0
    step_hidden = hidden[:0]
    for window in _windows(batch_sizes, max(1, _WINDOW_NUMBERS // (4 * cell_size))):
        start, end = end, end + sum(window)
        saved_gates = None if saved is None else saved.gates[start:end]
        for from_input in weights.input(inputs[start:end], out=saved_gates).split(window):
            # from_input: (rows, 4 * cell_size)
            if len(from_input) != rows:  # some sentences have ended, or this is the first step
                hidden[len(from_input) : rows] = step_hidden[len(from_input) :]
                step_hidden = (step_hidden if rows else hidden)[: len(from_input)]
                rows = len(from_input)
                step_cell, gates = cell[:rows], gates_buffer[:rows]
                unprojected = unprojected_buffer[:rows]
                input_gate, forget_gate, output_gate, candidate = gates.split(cell_size, 1)
                early_gates = gates[:, : num_early_gates * cell_size]
            if saved is not None:  # compute the gates where they are saved
                gates = from_input
                input_gate, forget_gate, output_gate, candidate = gates.split(cell_size, 1)
                early_gates = gates[:, : num_early_gates * cell_size]
            weights.recurrent.add_to(from_input, step_hidden, gates)
            if peepholes is not None:
                input_gate.addcmul_(step_cell, peepholes[0])
                forget_gate.addcmul_(step_cell, peepholes[1])
            early_gates.sigmoid_()
            step_cell.mul_(forget_gate).addcmul_(input_gate, candidate.tanh_())
            if clips.cell is not None:
                step_cell.clamp_(-clips.cell, clips.cell)
            if peepholes is not None:
                output_gate.addcmul_(step_cell, peepholes[2]).sigmoid_()
            torch.tanh(step_cell, out=unprojected).mul_(output_gate)
            step_hidden = outputs[start : start + rows]
            step_hidden.copy_(
                unprojected if weights.projection is None else weights.projection(unprojected)
            )
            if clips.projection is not None:
                step_hidden.clamp_(-clips.projection, clips.projection)
            if saved is not None:
                saved.cells[start : start + rows] = step_cell
            start += rows
    hidden[:rows] = step_hidden
    return outputs, hidden, cell


class LSTMFunction(torch.autograd.Function):
    """`lstm_forward` with a gradient; that of each weight is one product over all steps.

    Under torch's autocast, products are computed in its type; gates and cell states stay float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        hidden: Tensor,
        cell: Tensor,
        input_weight: Tensor,
        recurrent_weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        peepholes: Tensor | None,
        batch_sizes: Sequence[int],
        clips: Clips,
    ) -> tuple[Tensor, Tensor, Tensor]:
        tokens, cell_size = len(inputs), cell.shape[1]
        saved = SavedActivations(
            inputs.new_empty(tokens, 4 * cell_size), inputs.new_empty(tokens, cell_size)
        )
        dtype = matmul_dtype(inputs)
        make = partial(PlainLinear, dtype=dtype)
        weights = LSTMWeights.of(make, input_weight, recurrent_weight, bias, projection, peepholes)
        result = lstm_forward(weights, inputs, batch_sizes, hidden, cell, clips, saved)
        ctx.save_for_backward(
            inputs, hidden, cell, input_weight, recurrent_weight, projection, peepholes,
            result[0], *saved,
        )  # fmt: skip
        ctx.batch_sizes, ctx.clips, ctx.dtype = batch_sizes, clips, dtype
        return result

    @staticmethod
    @once_differentiable
    @torch_threads(1)  # as forward: a barrier in every step would cost more than a thread gains
    def backward(  # noqa: PLR0915 the equations in their order
        ctx: Any, outputs_grad: Tensor, hidden_grad: Tensor, cell_grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        (
            inputs, first_hidden, first_cell, input_weight, recurrent_weight, projection,
            peepholes, outputs, gates, cells,
        ) = ctx.saved_tensors  # fmt: skip
        batch_sizes, clips = ctx.batch_sizes, ctx.clips
        cell_size = first_cell.shape[1]

        def short(values: Tensor) -> Tensor:
            return values.to(ctx.dtype)

        short_recurrent = short(recurrent_weight)
        short_projection = None if projection is None else short(projection)
        previous = _previous_step_indices(batch_sizes)
        first = max(batch_sizes, default=0)
        previous_cells = torch.cat([first_cell[:first], cells[previous]])
        previous_hidden = torch.cat([first_hidden[:first], outputs[previous]])
        tanh_cells = torch.tanh(cells)

        # Gradients of the gates before their activation, and of the outputs before their clipping.
        gates_grad = torch.empty_like(gates)
        autocast = ctx.dtype != gates_grad.dtype
        short_gates_grad = torch.empty_like(gates_grad, dtype=ctx.dtype) if autocast else gates_grad
        unclipped_grad = torch.empty_like(outputs)
        clipped_cells = _clipped(cells, clips.cell)
        clipped_outputs = _clipped(outputs, clips.projection)
        hidden_grad, cell_grad = hidden_grad.clone(), cell_grad.clone()
        buffer = torch.empty_like(cell_grad)
        sigmoid_backward = torch.ops.aten.sigmoid_backward
        tanh_backward = torch.ops.aten.tanh_backward
        end = len(inputs)
        for rows in reversed(batch_sizes):
            step = slice(end - rows, end)
            end -= rows
            output_grad = torch.add(
                outputs_grad[step], hidden_grad[:rows], out=unclipped_grad[step]
            )
            if clipped_outputs is not None:
                output_grad.masked_fill_(clipped_outputs[step], 0)
            if short_projection is None:
                unprojected_grad = output_grad
            else:
                unprojected_grad = short(output_grad) @ short_projection

            tanh_cell, step_cell_grad, product = tanh_cells[step], cell_grad[:rows], buffer[:rows]
            input_gate, forget_gate, output_gate, candidate = gates[step].split(cell_size, 1)
            input_gate_grad, forget_gate_grad, output_gate_grad, candidate_grad = gates_grad[
                step
            ].split(cell_size, 1)
            torch.mul(unprojected_grad, tanh_cell, out=product)
            sigmoid_backward(product, output_gate, grad_input=output_gate_grad)
            torch.mul(unprojected_grad, output_gate, out=product)
            step_cell_grad.add_(tanh_backward(product, tanh_cell, grad_input=product))
            if peepholes is not None:
                step_cell_grad.addcmul_(output_gate_grad, peepholes[2])
            if clipped_cells is not None:
                step_cell_grad.masked_fill_(clipped_cells[step], 0)
            torch.mul(step_cell_grad, candidate, out=product)
            sigmoid_backward(product, input_gate, grad_input=input_gate_grad)
            torch.mul(step_cell_grad, previous_cells[step], out=product)
            sigmoid_backward(product, forget_gate, grad_input=forget_gate_grad)
            torch.mul(step_cell_grad, input_gate, out=product)
            tanh_backward(product, candidate, grad_input=candidate_grad)
            step_cell_grad.mul_(forget_gate)
            if peepholes is not None:
                step_cell_grad.addcmul_(input_gate_grad, peepholes[0])
                step_cell_grad.addcmul_(forget_gate_grad, peepholes[1])
            if autocast:
                short_step = short_gates_grad[step].copy_(gates_grad[step])
                hidden_grad[:rows] = short_step @ short_recurrent
            else:
                torch.mm(gates_grad[step], short_recurrent, out=hidden_grad[:rows])

        def matmul(left: Tensor, right: Tensor) -> Tensor:
            return (left @ short(right)).to(inputs.dtype)

        needed = ctx.needs_input_grad
        projection_grad = None
        if projection is not None and needed[6]:
            output_gates = gates[:, 2 * cell_size : 3 * cell_size]
            projection_grad = matmul(short(unclipped_grad).t(), tanh_cells.mul_(output_gates))
        peepholes_grad = None
        if peepholes is not None and needed[7]:
            input_gates_grad, forget_gates_grad, output_gates_grad, _ = gates_grad.chunk(4, 1)
            peepholes_grad = torch.stack(
                [
                    (input_gates_grad * previous_cells).sum(0),
                    (forget_gates_grad * previous_cells).sum(0),
                    (output_gates_grad * cells).sum(0),
                ]
            )
        return (
            matmul(short_gates_grad, input_weight) if needed[0] else None,
            hidden_grad,
            cell_grad,
            matmul(short_gates_grad.t(), inputs) if needed[3] else None,
            matmul(short_gates_grad.t(), previous_hidden) if needed[4] else None,
            gates_grad.sum(0) if needed[5] else None,
            projection_grad,
            peepholes_grad,
            None,
            None,
        )


def _clipped(values: Tensor, clip: float | None) -> Tensor | None:
    """Which values are at the clip, so that their gradient is zero; None if there are none."""
    if clip is None:
        return None
    clipped = values.abs() >= clip
    return clipped if clipped.any() else None


def _windows(batch_sizes: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Runs of steps with at most `max_tokens` tokens, or one step that has more."""
    window: list[int] = []
    tokens_left = max_tokens
    for size in batch_sizes:
        if window and size > tokens_left:
            yield window
            window, tokens_left = [], max_tokens
        window.append(size)
        tokens_left -= size
    if window:
        yield window


def _previous_step_indices(batch_sizes: Sequence[int]) -> Tensor:
    """For each packed token from the second step on, the index of the token before it."""
    sizes = torch.tensor(batch_sizes, dtype=torch.long)
    tokens = torch.arange(int(sizes[:1].sum()), int(sizes.sum()))
    return tokens - sizes[:-1].repeat_interleave(sizes[1:])
