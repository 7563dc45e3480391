"""Word vectors become what a reader knows after each word.

Sentences are read side by side, longest first, so that at every step the sentences still being
read are the first rows and no padding is ever multiplied. Such *packed* vectors stand step after
step: `sizes[t]` rows for step t, `tokens` rows in all.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.model.dropout import Dropout
from elmokit.model.linear import Precision, make_product
from elmokit.model.recurrence import Clips, Products, Recurrence, plain_products, recur


class Reader(nn.Module):
    """A stack of LSTM layers that reads in one direction; `skip` adds a layer's input to it."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.skip = config.skip
        self.layers = nn.ModuleList(ProjectedLSTM(config) for _ in range(config.layers))

    def forward(
        self,
        vectors: Tensor,
        sizes: Sequence[int],
        output: Tensor,
        memory: Tensor,
        top: int,
        products: Sequence[Products] | None = None,
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

    def pack(self, precision: Precision) -> list[Products]:
        """The products of every layer, made once for use in a precision."""
        layers = [layer for layer in self.layers if isinstance(layer, ProjectedLSTM)]
        return [layer.pack(precision) for layer in layers]


class ProjectedLSTM(nn.Module):
    """An LSTM layer whose output is projected and clipped and whose memory is clipped.

    The rows of its weights are four gates: input, forget, output, candidate.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        dim, cell_dim = config.dim, config.cell_dim
        self.clips = Clips(config.cell_clip, config.output_clip)
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
        products: Products | None = None,
        dropout: Dropout | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The output after each word, (tokens, dim), and the state after each sentence."""
        if products is not None:
            return recur(products, vectors, sizes, output, memory, self.clips)
        if not torch.is_grad_enabled():
            return recur(self._plain_products(), vectors, sizes, output, memory, self.clips)
        read: tuple[Tensor, Tensor, Tensor] = Recurrence.apply(  # type: ignore[no-untyped-call]
            vectors,
            output,
            memory,
            self.input_weight,
            dropout.of_weights(self.recurrent_weight) if dropout else self.recurrent_weight,
            self._whole_bias(),
            self.projection,
            sizes,
            self.clips,
        )
        return read

    def pack(self, precision: Precision) -> Products:
        """The products of this layer, made once for use in a precision."""
        make = partial(make_product, precision=precision)
        return Products(
            make(self.input_weight, self._whole_bias()),
            make(self.recurrent_weight, None),
            None if self.projection is None else make(self.projection, None),
        )

    def _plain_products(self) -> Products:
        return plain_products(
            self.input_weight, self.recurrent_weight, self._whole_bias(), self.projection
        )

    def _whole_bias(self) -> Tensor:
        cell_dim = len(self.bias) // 4
        offset = torch.zeros_like(self.bias)
        offset[cell_dim : 2 * cell_dim] = self.forget_bias
        return self.bias + offset
