"""The bidirectional language model: one word encoder, two LSTM stacks, a softmax."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from elmokit.batching import Batch
from elmokit.config import BiLMConfig, Direction
from elmokit.errors import InputError
from elmokit.model.char_cnn import CharacterEncoder, WordEmbedding
from elmokit.model.linear import Precision
from elmokit.model.lstm import LSTMStack, LSTMWeights
from elmokit.model.softmax import AdaptiveSoftmax, Softmax
from elmokit.threads import allowed_threads, run_side_by_side, using_threads

# A product of fewer rows takes hardly less time: it goes into reading the weights.
_ROWS_FOR_A_THREAD = 16


class BiLM(nn.Module):
    """A bidirectional language model without its softmax.

    Layer 0 is the context-free word vector, once for each direction; layer k is what the k-th
    layer of each reader says: forward half first, then backward.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder: nn.Module
        if config.characters is not None:
            self.encoder = CharacterEncoder(config.characters, config.projection_size)
        else:
            assert config.vocabulary_size is not None  # checked by the config
            self.encoder = WordEmbedding(config.vocabulary_size, config.projection_size)
        self.lstms = nn.ModuleList(LSTMStack(config) for _ in config.directions)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def version(self) -> list[tuple[object, ...]]:
        """What changes when weights are written to, replaced, moved or cast."""
        return [
            (p.data_ptr(), p.device, p.dtype, 0 if p.is_inference() else p._version)
            for p in self.parameters()
        ]

    def forward(self, batch: Batch, state: "State | None" = None) -> "tuple[Tensor, State]":
        """All layers, (layers + 1, sentences, steps, vector_dim), 0 at padding; and the state."""
        return self.run_lstms(self.encode(batch.chars), batch.words, state)

    def encode(self, chars: Tensor) -> Tensor:  # (types, width) -> (types, dim)
        """The vector of each word type; that of row 0, padding, is zero."""
        with torch.autocast(chars.device.type, enabled=False):
            vectors = self.encoder(chars[1:])
        return torch.cat([vectors.new_zeros(1, self.config.projection_size), vectors])

    def pack(self, precision: Precision) -> list[list[LSTMWeights]]:
        """The readers' products, made once for use in a precision."""
        readers = [reader for reader in self.lstms if isinstance(reader, LSTMStack)]
        return run_side_by_side([partial(reader.pack, precision) for reader in readers])

    def run_lstms(
        self,
        types: Tensor,
        words: Tensor,
        state: "State | None" = None,
        *,
        layers: Sequence[int] | None = None,
        directions: Sequence[Direction] | None = None,
        products: Sequence[Sequence[LSTMWeights]] | None = None,
    ) -> "tuple[Tensor, State]":
        """The layers asked for (0 to the number of readers' layers), and the state after.

        `types` (types, dim) are word vectors, `words` (sentences, steps) says where they stand.
        Layers and directions that nobody asks for are not run, and their state does not move.
        `products` are those of `pack`, for use without gradients; then directions and groups of
        sentences are read at the same time, where that is faster.
        """
        config = self.config
        layers = range(config.num_layers + 1) if layers is None else layers
        directions = config.directions if directions is None else directions
        if state is None:
            state = State.zeros(config, len(words), like=types)
        if state.sentences != len(words):
            raise InputError(f"a state of {state.sentences} sentences for {len(words)} sentences")
        packing = PackedSteps.of(words)
        top = max(layers, default=0)
        if products is not None and (groups := self._row_groups(packing, directions, products)):
            return self._read_groups(groups, types, words, state, layers, directions, products)

        order = packing.order
        said = types.new_zeros(len(layers), words.numel(), len(directions) * config.projection_size)
        outputs, memories = list(state.hidden), list(state.cell)

        def run(half: int) -> None:
            """Let one reader read, and put what it says and its state in their places."""
            place = config.directions.index(directions[half])
            tokens = packing.tokens[directions[half]]
            vectors = types[words.flatten()[tokens]]  # (tokens, dim)
            with torch.autocast(words.device.type, enabled=False):
                read, output, memory = self.lstms[place](
                    vectors,
                    packing.sizes,
                    outputs[place][:, order],
                    memories[place][:, order],
                    top,
                    products and products[place],
                )
            kept = [vectors, *read]
            for number, layer in enumerate(layers):
                columns = slice(half * config.projection_size, (half + 1) * config.projection_size)
                said[number, :, columns].index_copy_(0, tokens, kept[layer])
            outputs[place] = outputs[place].index_copy(1, order, output)
            memories[place] = memories[place].index_copy(1, order, memory)

        jobs = [partial(run, half) for half in range(len(directions))]
        if products is not None and top > 0 and self._worth_threads(packing, products):
            run_side_by_side(jobs)
        else:
            with using_threads(1):
                for job in jobs:
                    job()
        after = State(torch.stack(outputs), torch.stack(memories))
        return said.view(len(layers), *words.shape, said.shape[2]), after

    def _read_groups(
        self,
        groups: Sequence[Tensor],
        types: Tensor,
        words: Tensor,
        state: "State",
        layers: Sequence[int],
        directions: Sequence[Direction],
        products: Sequence[Sequence[LSTMWeights]],
    ) -> "tuple[Tensor, State]":
        """What `run_lstms` gives, each group of sentences in each direction in a thread."""
        run = partial(self.run_lstms, types, layers=layers, products=products)
        pieces = [(rows, direction) for rows in groups for direction in directions]
        jobs = [
            partial(run, words[rows], state.rows(rows), directions=[direction])
            for rows, direction in pieces
        ]
        size = self.config.projection_size
        vectors = types.new_zeros(len(layers), *words.shape, len(directions) * size)
        after = State(state.hidden.clone(), state.cell.clone())
        for (rows, direction), (part, part_state) in zip(
            pieces, run_side_by_side(jobs), strict=True
        ):
            start = directions.index(direction) * size
            vectors[:, rows, :, start : start + size] = part
            number = self.config.directions.index(direction)
            after.hidden[number, :, rows] = part_state.hidden[number]
            after.cell[number, :, rows] = part_state.cell[number]
        return vectors, after

    def _row_groups(
        self,
        packing: "PackedSteps",
        directions: Sequence[Direction],
        products: Sequence[Sequence[LSTMWeights]],
    ) -> list[Tensor]:
        """Groups of sentences to read at the same time; none where directions are pieces enough."""
        product = products[0][0].recurrent
        rows = sum(packing.sizes) / max(1, len(packing.sizes))  # in an average step
        most = int(min(rows // _ROWS_FOR_A_THREAD, self._work(rows) // product.min_work_per_thread))
        groups = min(allowed_threads() // max(1, len(directions)), most)
        if groups < 2 or not product.rows_independent or packing.order.device.type != "cpu":
            return []
        return [packing.order[number::groups] for number in range(groups)]

    def _worth_threads(
        self, packing: "PackedSteps", products: Sequence[Sequence[LSTMWeights]]
    ) -> bool:
        """Whether both directions at once, a thread each, are faster than one after the other."""
        rows = sum(packing.sizes) / max(1, len(packing.sizes))
        on_cpu = packing.order.device.type == "cpu"
        return on_cpu and self._work(rows) >= products[0][0].recurrent.min_work_per_thread

    def _work(self, rows: float) -> float:
        """Multiplications of the recurrent product in a step of so many rows."""
        return rows * 4 * self.config.cell_size * self.config.projection_size


@dataclass(frozen=True)
class State:
    """What the readers remember between calls: for each direction, layer and sentence."""

    hidden: Tensor  # (directions, layers, sentences, dim)
    cell: Tensor  # (directions, layers, sentences, cell_dim)

    @classmethod
    def zeros(cls, config: BiLMConfig, sentences: int, like: Tensor) -> "State":
        """A fresh state, on the device and of the type of a tensor."""
        shape = len(config.directions), config.num_layers, sentences
        return cls(
            like.new_zeros(*shape, config.projection_size), like.new_zeros(*shape, config.cell_size)
        )

    @property
    def sentences(self) -> int:
        """How many sentences it remembers."""
        return self.hidden.shape[2]

    def rows(self, places: Tensor) -> "State":
        """The state of the sentences at those places."""
        return State(self.hidden[:, :, places], self.cell[:, :, places])

    def with_rows(self, places: Tensor, other: "State") -> "State":
        """This state, those places taken from another."""
        return State(
            self.hidden.index_copy(2, places, other.hidden),
            self.cell.index_copy(2, places, other.cell),
        )

    def followed_by(self, other: "State") -> "State":
        """This state's sentences, then the other's."""
        return State(
            torch.cat([self.hidden, other.hidden], 2), torch.cat([self.cell, other.cell], 2)
        )

    def to(self, like: Tensor) -> "State":
        """The same numbers on the device and of the type of a tensor."""
        return State(self.hidden.to(like), self.cell.to(like))

    def detach(self) -> "State":
        """The same numbers without their history."""
        return State(self.hidden.detach(), self.cell.detach())


@dataclass(frozen=True)
class PackedSteps:
    """Where the tokens of padded sentences stand when they are read step by step, longest first."""

    order: Tensor  # (sentences,), the longest first
    sizes: list[int]  # how many sentences have a word at each step
    tokens: dict[Direction, Tensor]  # (tokens,), places in the flattened sentences

    @classmethod
    def of(cls, words: Tensor) -> "PackedSteps":
        """The packing of padded words, (sentences, steps)."""
        lengths, order = (words > 0).sum(1).sort(descending=True, stable=True)
        steps = torch.arange(words.shape[1], device=words.device)
        reading = steps[:, None] < lengths  # (steps, sentences)
        step, row = reading.nonzero(as_tuple=True)
        begin = order[row] * words.shape[1]
        return cls(
            order,
            [size for size in reading.sum(1).tolist() if size > 0],
            # The backward reader is a forward reader on flipped text.
            {"forward": begin + step, "backward": begin + lengths[row] - 1 - step},
        )


class LanguageModel(nn.Module):
    """A BiLM and, where it was kept, the softmax it was trained with.

    With `tie_weights`, a word-level model predicts a word with the vector by which it reads it.
    """

    def __init__(
        self,
        bilm: BiLM,
        softmax: Softmax | AdaptiveSoftmax | None = None,
        *,
        tie_weights: bool = False,
    ) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self._tie_weights = tie_weights
        self.copy_tied_embedding()

    @property
    def tied_embedding(self) -> Tensor | None:
        """The vectors of words that are both read and predicted, if they are the same."""
        if not self._tie_weights:
            return None
        assert isinstance(self.bilm.encoder, WordEmbedding)
        return self.bilm.encoder.embedding.weight[1:]

    def copy_tied_embedding(self) -> None:
        """Copy what was learnt of shared vectors to the softmax."""
        if self._tie_weights:
            assert isinstance(self.softmax, Softmax)
            assert self.tied_embedding is not None
            with torch.no_grad():
                self.softmax.weight.copy_(self.tied_embedding)
