"""The LSTMs of a biLM: projected, clipped, with skip connections, one stack per direction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.config import BiLMConfig
from elmokit.model.dropout import Dropout
from elmokit.model.linear import (
    AutocastLinear,
    PlainLinear,
    Precision,
    Product,
    matmul_dtype,
    pack_linear,
)
from elmokit.threads import torch_threads

# So many numbers of the input's part of the gates are computed at once: enough for an efficient
# product, few enough for a sentence of any length.
_WINDOW_NUMBERS = 2**21


@dataclass(frozen=True)
class LSTMWeights:
    """What a layer multiplies with: its input's part of the gates, its own, and the projection."""

    input: Product
    recurrent: Product
    projection: Product | None


class Clips(NamedTuple):
    """How large a number of the memory and of the output may be; None is without limit."""

    cell: float | None
    output: float | None


class SavedActivations(NamedTuple):
    """What the gradient needs of every step: the squashed gates and the memory after it."""

    gates: Tensor  # (tokens, 4 * cell_dim)
    memories: Tensor  # (tokens, cell_dim)


def lstm_forward(
    products: LSTMWeights,
    vectors: Tensor,
    sizes: Sequence[int],
    output: Tensor,
    memory: Tensor,
    clips: Clips,
    trace: SavedActivations | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The recurrence: the output after each word, (tokens, dim), and the state after each sentence.

    A trace, if there is one, is filled with what the gradient needs.
    """
    output, memory = output.clone(), memory.clone()
    outputs = vectors.new_empty(len(vectors), output.shape[1])
    cell_dim = memory.shape[1]
    all_gates = vectors.new_empty(len(memory), 4 * cell_dim)
    all_hidden = torch.empty_like(memory)
    rows, end = 0, 0
    spoken = output[:0]
    for window in _windows(sizes, max(1, _WINDOW_NUMBERS // (4 * cell_dim))):
        start, end = end, end + sum(window)
        kept_gates = None if trace is None else trace.gates[start:end]
        for seen in products.input(vectors[start:end], out=kept_gates).split(window):
            # seen: (rows, 4 * cell_dim)
            if len(seen) != rows:  # some sentences have ended, or this is the first step
                output[len(seen) : rows] = spoken[len(seen) :]
                spoken = (spoken if rows else output)[: len(seen)]
                rows = len(seen)
                kept, gates, hidden = memory[:rows], all_gates[:rows], all_hidden[:rows]
                input_, forget, out, candidate = gates.split(cell_dim, 1)
                squashed = gates[:, : 3 * cell_dim]
            if trace is not None:  # the gates are kept where they are worked out
                gates = seen
                input_, forget, out, candidate = gates.split(cell_dim, 1)
                squashed = gates[:, : 3 * cell_dim]
            products.recurrent.add_to(seen, spoken, gates)
            squashed.sigmoid_()
            kept.mul_(forget).addcmul_(input_, candidate.tanh_())
            if clips.cell is not None:
                kept.clamp_(-clips.cell, clips.cell)
            torch.tanh(kept, out=hidden).mul_(out)
            spoken = outputs[start : start + rows]
            spoken.copy_(hidden if products.projection is None else products.projection(hidden))
            if clips.output is not None:
                spoken.clamp_(-clips.output, clips.output)
            if trace is not None:
                trace.memories[start : start + rows] = kept
            start += rows
    output[:rows] = spoken
    return outputs, output, memory


class LSTMFunction(torch.autograd.Function):
    """The recurrence and its gradient; a weight's gradient is gathered over all steps at once.

    Under torch's autocast the products are of its type; gates and memories stay float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        output: Tensor,
        memory: Tensor,
        input_weight: Tensor,
        recurrent_weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        sizes: Sequence[int],
        clips: Clips,
    ) -> tuple[Tensor, Tensor, Tensor]:
        tokens, cell_dim = len(vectors), memory.shape[1]
        trace = SavedActivations(
            vectors.new_empty(tokens, 4 * cell_dim), vectors.new_empty(tokens, cell_dim)
        )
        dtype = matmul_dtype(vectors)
        products = plain_products(input_weight, recurrent_weight, bias, projection, dtype)
        read = lstm_forward(products, vectors, sizes, output, memory, clips, trace)
        ctx.save_for_backward(
            vectors, output, memory, input_weight, recurrent_weight, projection, read[0], *trace
        )
        ctx.sizes, ctx.clips, ctx.dtype = sizes, clips, dtype
        return read

    @staticmethod
    @once_differentiable
    @torch_threads(1)  # as forward: a barrier in every step would cost more than a thread gains
    def backward(  # noqa: PLR0915 torch's name; one story, as the mathematics has it
        ctx: Any, outputs_grad: Tensor, output_grad: Tensor, memory_grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        (
            vectors, first_output, first_memory, input_weight, recurrent_weight, projection,
            outputs, gates, memories,
        ) = ctx.saved_tensors  # fmt: skip
        sizes, (cell_clip, output_clip) = ctx.sizes, ctx.clips
        cell_dim = first_memory.shape[1]

        def short(values: Tensor) -> Tensor:
            return values.to(ctx.dtype)

        recurrent = short(recurrent_weight)
        projected = None if projection is None else short(projection)
        before = _steps_before(sizes)
        first = max(sizes, default=0)
        memories_before = torch.cat([first_memory[:first], memories[before]])
        outputs_before = torch.cat([first_output[:first], outputs[before]])
        tanh_memories = torch.tanh(memories)

        # What flows into each gate before its squashing, and into each unclipped output.
        flow = torch.empty_like(gates)
        short_flow = flow if ctx.dtype == flow.dtype else torch.empty_like(flow, dtype=ctx.dtype)
        said_flow = torch.empty_like(outputs)
        clipped_memories = _reaching(memories, cell_clip)
        clipped_outputs = _reaching(outputs, output_clip)
        output_grad, memory_grad = output_grad.clone(), memory_grad.clone()
        room = torch.empty_like(memory_grad)
        into_sigmoid, into_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
        end = len(vectors)
        for rows in reversed(sizes):
            at = slice(end - rows, end)
            end -= rows
            said_grad = torch.add(outputs_grad[at], output_grad[:rows], out=said_flow[at])
            if clipped_outputs is not None:
                said_grad.masked_fill_(clipped_outputs[at], 0)
            hidden_grad = said_grad if projected is None else short(said_grad) @ projected

            tanh, kept_grad, product = tanh_memories[at], memory_grad[:rows], room[:rows]
            input_, forget, out, candidate = gates[at].split(cell_dim, 1)
            into_input, into_forget, into_out, into_candidate = flow[at].split(cell_dim, 1)
            torch.mul(hidden_grad, tanh, out=product)
            into_sigmoid(product, out, grad_input=into_out)
            torch.mul(hidden_grad, out, out=product)
            kept_grad.add_(into_tanh(product, tanh, grad_input=product))
            if clipped_memories is not None:
                kept_grad.masked_fill_(clipped_memories[at], 0)
            torch.mul(kept_grad, candidate, out=product)
            into_sigmoid(product, input_, grad_input=into_input)
            torch.mul(kept_grad, memories_before[at], out=product)
            into_sigmoid(product, forget, grad_input=into_forget)
            torch.mul(kept_grad, input_, out=product)
            into_tanh(product, candidate, grad_input=into_candidate)
            kept_grad.mul_(forget)
            if ctx.dtype == flow.dtype:
                torch.mm(flow[at], recurrent, out=output_grad[:rows])
            else:
                output_grad[:rows] = short_flow[at].copy_(flow[at]) @ recurrent

        def gathered(left: Tensor, right: Tensor) -> Tensor:
            return (left @ short(right)).to(vectors.dtype)

        wanted = ctx.needs_input_grad
        projection_grad = None
        if projection is not None and wanted[6]:
            out = gates[:, 2 * cell_dim : 3 * cell_dim]
            projection_grad = gathered(short(said_flow).t(), tanh_memories.mul_(out))
        return (
            gathered(short_flow, input_weight) if wanted[0] else None,
            output_grad,
            memory_grad,
            gathered(short_flow.t(), vectors) if wanted[3] else None,
            gathered(short_flow.t(), outputs_before) if wanted[4] else None,
            flow.sum(0) if wanted[5] else None,
            projection_grad,
            None,
            None,
        )


def plain_products(
    input_weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    projection: Tensor | None,
    dtype: torch.dtype | None = None,
) -> LSTMWeights:
    """The products of a layer's own weights; in a shorter type, where one is named."""

    def product(weight: Tensor, bias: Tensor | None) -> Product:
        if dtype in (None, weight.dtype):
            return PlainLinear(weight, bias)
        return AutocastLinear(weight, bias, dtype)

    return LSTMWeights(
        product(input_weight, bias),
        product(recurrent_weight, None),
        None if projection is None else product(projection, None),
    )


def _reaching(values: Tensor, clip: float | None) -> Tensor | None:
    """Where values stand at the clip, so that nothing flows back; None if nowhere."""
    if clip is None:
        return None
    reaching = values.abs() >= clip
    return reaching if reaching.any() else None


def _windows(sizes: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Runs of steps with at most so many tokens each, or one step if that has more."""
    window: list[int] = []
    left = tokens
    for size in sizes:
        if window and size > left:
            yield window
            window, left = [], tokens
        window.append(size)
        left -= size
    if window:
        yield window


def _steps_before(sizes: Sequence[int]) -> Tensor:
    """For each packed token from the second step on, where the step before it stands."""
    counts = torch.tensor(sizes, dtype=torch.long)
    starts = counts.cumsum(0) - counts
    return torch.cat(
        [start + torch.arange(rows) for start, rows in zip(starts[:-1], sizes[1:], strict=True)]
        or [starts[:0]]
    )


class LSTMStack(nn.Module):
    """A stack of LSTM layers that reads in one direction; `skip` adds a layer's input to it."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.skip = config.skip_connections
        self.layers = nn.ModuleList(ProjectedLSTM(config) for _ in range(config.num_layers))

    def forward(
        self,
        vectors: Tensor,
        sizes: Sequence[int],
        output: Tensor,
        memory: Tensor,
        top: int,
        products: Sequence[LSTMWeights] | None = None,
        dropout: Dropout | None = None,
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """What the layers up to `top` say after each word, and the state they end in.

        `vectors` and what the layers say are (tokens, dim); the states `output` and `memory` are
        (layers, sentences, dim) and (layers, sentences, cell_dim). Layers above `top` do not move.
        `products` are those of `pack`, for use; without them the layers' own weights serve.
        In learning, each layer reads through `dropout`, and what it adds is what it read.
        """
        said, outputs, memories = [], list(output), list(memory)
        for place, layer in enumerate(self.layers[:top]):
            if dropout is not None:
                vectors = dropout(vectors, sizes)
            read, outputs[place], memories[place] = layer(
                vectors,
                sizes,
                outputs[place],
                memories[place],
                products and products[place],
                dropout,
            )
            vectors = read + vectors if self.skip and place > 0 else read
            said.append(vectors)
        return said, torch.stack(outputs), torch.stack(memories)

    def pack(self, precision: Precision) -> list[LSTMWeights]:
        """The products of every layer, made once for use in a precision."""
        layers = [layer for layer in self.layers if isinstance(layer, ProjectedLSTM)]
        return [layer.pack(precision) for layer in layers]


class ProjectedLSTM(nn.Module):
    """An LSTM layer whose output is projected and clipped and whose memory is clipped.

    The rows of its weights are four gates: input, forget, output, candidate.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        dim, cell_dim = config.projection_size, config.cell_size
        self.clips = Clips(config.cell_clip, config.projection_clip)
        self.forget_bias = config.forget_bias
        self.input_weight = nn.Parameter(torch.empty(4 * cell_dim, dim))
        self.recurrent_weight = nn.Parameter(torch.empty(4 * cell_dim, dim))
        self.bias = nn.Parameter(torch.zeros(4 * cell_dim))
        self.projection = None if dim == cell_dim else nn.Parameter(torch.empty(dim, cell_dim))
        # TensorFlow's default for its one kernel of both inputs.
        bound = (6 / (2 * dim + 4 * cell_dim)) ** 0.5
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.recurrent_weight, -bound, bound)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def forward(
        self,
        vectors: Tensor,
        sizes: Sequence[int],
        output: Tensor,
        memory: Tensor,
        products: LSTMWeights | None = None,
        dropout: Dropout | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The output after each word, (tokens, dim), and the state after each sentence."""
        if products is not None:
            return lstm_forward(products, vectors, sizes, output, memory, self.clips)
        if not torch.is_grad_enabled():
            return lstm_forward(self._plain_products(), vectors, sizes, output, memory, self.clips)
        read: tuple[Tensor, Tensor, Tensor] = LSTMFunction.apply(  # type: ignore[no-untyped-call]
            vectors,
            output,
            memory,
            self.input_weight,
            dropout.drop_weights(self.recurrent_weight) if dropout else self.recurrent_weight,
            self._whole_bias(),
            self.projection,
            sizes,
            self.clips,
        )
        return read

    def pack(self, precision: Precision) -> LSTMWeights:
        """The products of this layer, made once for use in a precision."""
        make = partial(pack_linear, precision=precision)
        return LSTMWeights(
            make(self.input_weight, self._whole_bias()),
            make(self.recurrent_weight, None),
            None if self.projection is None else make(self.projection, None),
        )

    def _plain_products(self) -> LSTMWeights:
        return plain_products(
            self.input_weight, self.recurrent_weight, self._whole_bias(), self.projection
        )

    def _whole_bias(self) -> Tensor:
        cell_dim = len(self.bias) // 4
        offset = torch.zeros_like(self.bias)
        offset[cell_dim : 2 * cell_dim] = self.forget_bias
        return self.bias + offset
