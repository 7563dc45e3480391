"""The bidirectional language model: one word encoder, two LSTM stacks, a softmax."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from elmokit.batching import Batch
from elmokit.errors import InputError
from elmokit.model.char_cnn import CharacterEncoder, LexiconEncoder, WordEmbedding
from elmokit.model.kernels import Kernel
from elmokit.model.lstm import LSTMStack, PackedStack
from elmokit.model.packed_linear import Precision
from elmokit.model.softmax import AdaptiveSoftmax, Softmax
from elmokit.model_config import BiLMConfig, Direction
from elmokit.threads import allowed_threads, run_side_by_side, using_threads

# A product of fewer rows takes hardly less time, as most of it goes into reading the weights.
_MIN_ROWS_PER_THREAD = 16


class BiLM(nn.Module):
    """A bidirectional language model without its softmax.

    Layer 0 is the context-free word vector, once for each direction; layer k holds the hidden
    states of the k-th LSTM layer, forward half first, then backward. Layers may be aligned to those
    of another language's model (Schuster et al. 2019): then `forward` gives them aligned.

    Example:
        characters = elmokit.CharacterConfig(filters=((1, 16), (2, 32), (3, 64)))
        config = elmokit.BiLMConfig(64, 128, num_layers=2, characters=characters)
        bilm = elmokit.BiLM(config)  # random weights
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder: nn.Module
        if config.characters is not None:
            self.encoder = CharacterEncoder(config.characters, config.projection_size)
        elif config.lexicons is not None:
            self.encoder = LexiconEncoder(config.lexicons, config.projection_size)
        else:
            assert config.vocabulary_size is not None  # checked by the config
            self.encoder = WordEmbedding(config.vocabulary_size, config.projection_size)
        self.lstms = nn.ModuleList(LSTMStack(config) for _ in config.directions)
        size = config.output_size
        for layer in config.aligned_layers:
            self.register_buffer(f"alignment_{layer}", torch.zeros(size, size))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def version(self) -> list[tuple[object, ...]]:
        """A value that changes when a parameter is written to, replaced, moved or cast."""
        version: list[tuple[object, ...]] = []
        modules: list[nn.Module | None] = [self]
        for module in modules:  # each call asks for this, and `parameters()` takes twice as long
            if module is not None:
                modules += module._modules.values()
                version += [
                    (p.data_ptr(), p.device, p.dtype, 0 if p.is_inference() else p._version)
                    for p in module._parameters.values()
                    if p is not None
                ]
        return version

    def forward(self, batch: Batch, state: "State | None" = None) -> "tuple[Tensor, State]":
        """All layers, (layers + 1, sentences, steps, output_size), 0 at padding; and the state."""
        layers, state = self.run_lstms(self.encode(batch.chars), batch.words, state)
        return self.align(layers, range(self.config.num_layers + 1)), state

    def set_alignment(self, matrices: Mapping[int, Tensor]) -> None:
        """Align these layers, and no others, with a matrix each, (output_size, output_size)."""
        for layer in self.config.aligned_layers:
            delattr(self, f"alignment_{layer}")
        self.config = replace(self.config, aligned_layers=tuple(sorted(matrices)))
        for layer, matrix in sorted(matrices.items()):
            self.register_buffer(f"alignment_{layer}", matrix.to(self.device))

    def align(self, layers: Tensor, numbers: Sequence[int]) -> Tensor:
        """Layers with these numbers, (layers, ..., output_size), aligned where they are to be."""
        if not self.config.aligned_layers:
            return layers
        aligned = [
            F.linear(layer, self.get_buffer(f"alignment_{number}").to(layer))
            if number in self.config.aligned_layers
            else layer
            for layer, number in zip(layers, numbers, strict=True)
        ]
        return torch.stack(aligned)

    def encode(self, chars: Tensor) -> Tensor:  # (types, ids of a word) -> (types, dim)
        """The vector of each word type; that of row 0, padding, is zero."""
        with torch.autocast(chars.device.type, enabled=False):
            vectors = self.encoder(chars[1:])
        return torch.cat([vectors.new_zeros(1, self.config.projection_size), vectors])

    def run_lstms(
        self,
        types: Tensor,
        words: Tensor,
        state: "State | None" = None,
        *,
        layers: Sequence[int] | None = None,
        directions: Sequence[Direction] | None = None,
        packed_weights: Sequence[PackedStack] | None = None,
    ) -> "tuple[Tensor, State]":
        """The chosen layers of sentences, and the state after them.

        `types`, (types, dim), are word vectors, and `words`, (sentences, steps), their indices.
        The layers are as the softmax expects them, not aligned.
        Layers and directions that were not chosen are not run, and their state does not change.
        `packed_weights`, from `pack`, are for use without gradients; then directions and groups of
        sentences run at the same time, where that is faster.
        """
        config = self.config
        layers = range(config.num_layers + 1) if layers is None else layers
        directions = config.directions if directions is None else directions
        if state is None:
            state = State.zeros(config, len(words), like=types)
        if state.num_sentences != len(words):
            raise InputError(
                f"the state is of {state.num_sentences} sentences, but the batch has {len(words)}; "
                "give the state of the same sentences, or none"
            )
        num_layers, dim = max(layers, default=0), config.projection_size
        packed, num_groups = PackedSteps.of(words), 0
        if packed_weights is not None and num_layers > 0:
            num_groups = self._num_groups(packed, len(directions), packed_weights[0])
        groups = [packed]
        if num_groups > 1:
            order = packed.sentence_order
            groups = [PackedSteps.of(words, order[n::num_groups]) for n in range(num_groups)]
        outputs = types.new_zeros(len(layers), words.numel(), len(directions) * dim)
        after = State(state.hidden.clone(), state.cell.clone())

        def run(group: PackedSteps, half: int) -> None:
            """Run one direction of a group, and write its layers and its state."""
            direction = config.directions.index(directions[half])
            order, tokens = group.sentence_order, group.token_indices[directions[half]]
            inputs = types[words.flatten()[tokens]]  # (tokens, dim)
            with _without_autocast(words.device):
                lstm_layers, hidden, cell = self.lstms[direction](
                    inputs,
                    group.batch_sizes,
                    state.hidden[direction][:, order],
                    state.cell[direction][:, order],
                    num_layers,
                    packed_weights and packed_weights[direction],
                )
            all_layers = [inputs, *lstm_layers]
            for number, layer in enumerate(layers):
                columns = slice(half * dim, (half + 1) * dim)
                outputs[number, :, columns].index_copy_(0, tokens, all_layers[layer])
            after.hidden[direction].index_copy_(1, order, hidden)
            after.cell[direction].index_copy_(1, order, cell)

        jobs = [partial(run, group, half) for group in groups for half in range(len(directions))]
        if num_groups > 0:
            run_side_by_side(jobs)
        else:
            with using_threads(1):
                for job in jobs:
                    job()
        return outputs.view(len(layers), *words.shape, outputs.shape[2]), after

    def pack(self, precision: Precision, kernel: Kernel) -> list[PackedStack]:
        """The weights of each direction's layers, packed once for inference in a precision."""
        stacks = [stack for stack in self.lstms if isinstance(stack, LSTMStack)]
        return run_side_by_side([partial(stack.pack, precision, kernel) for stack in stacks])

    def _num_groups(self, packed: "PackedSteps", num_directions: int, stack: PackedStack) -> int:
        """How many groups of sentences run at the same time, a thread for each direction of each.

        0 if it is faster to run the directions of all sentences one after the other.
        """
        rows = packed.mean_batch_size
        work = rows * 4 * self.config.cell_size * self.config.projection_size
        max_threads = stack.max_threads(work, len(packed.batch_sizes))
        if packed.sentence_order.device.type != "cpu" or max_threads == 0:
            return 0
        if not stack.batch_invariant:
            return 1
        max_groups = min(rows // _MIN_ROWS_PER_THREAD, max_threads)
        return max(1, min(allowed_threads() // max(1, num_directions), int(max_groups)))


def _without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """No shorter types for products; what is off already need not be switched off."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@dataclass(frozen=True)
class State:
    """Hidden and cell states for each direction, layer and sentence.

    Example:
        batch = elmokit.Batch.from_sentences([["a", "cat"]], model.pretrained.indexer)
        layers, state = model.bilm(batch)
        layers, state = model.bilm(batch, state)  # goes on where the first run ended
    """

    hidden: Tensor  # (directions, layers, sentences, dim)
    cell: Tensor  # (directions, layers, sentences, cell_size)

    @classmethod
    def zeros(cls, config: BiLMConfig, num_sentences: int, like: Tensor) -> "State":
        """The state of sentences that start fresh, with the device and type of a tensor."""
        shape = len(config.directions), config.num_layers, num_sentences
        return cls(
            like.new_zeros(*shape, config.projection_size), like.new_zeros(*shape, config.cell_size)
        )

    @property
    def num_sentences(self) -> int:
        return self.hidden.shape[2]

    def rows(self, indices: Tensor) -> "State":
        return State(self.hidden[:, :, indices], self.cell[:, :, indices])

    def with_rows(self, indices: Tensor, other: "State") -> "State":
        """This state, with that of the sentences at `indices` replaced by `other`."""
        return State(
            self.hidden.index_copy(2, indices, other.hidden),
            self.cell.index_copy(2, indices, other.cell),
        )

    def followed_by(self, other: "State") -> "State":
        """The state of this one's sentences, then the other's."""
        both = (self.hidden, other.hidden), (self.cell, other.cell)
        return State(*(torch.cat(parts, 2) for parts in both))

    def to(self, like: Tensor) -> "State":
        """The state with the device and type of a tensor."""
        return State(self.hidden.to(like), self.cell.to(like))

    def detach(self) -> "State":
        return State(self.hidden.detach(), self.cell.detach())


@dataclass(frozen=True)
class PackedSteps:
    """Sentences in the order in which LSTMs run them: step by step, the longest sentence first.

    As in torch's PackedSequence; the tokens of all steps are one after another.
    """

    sentence_order: Tensor  # (sentences,), the longest first
    batch_sizes: list[int]  # how many sentences have a word at each step
    token_indices: dict[Direction, Tensor]  # (tokens,), into the flattened sentences

    @property
    def mean_batch_size(self) -> float:
        """The mean number of sentences that have a word at a step."""
        return sum(self.batch_sizes) / max(1, len(self.batch_sizes))

    @classmethod
    def of(cls, words: Tensor, order: Tensor | None = None) -> "PackedSteps":
        """The packed steps of padded word indices, (sentences, steps).

        Only the sentences of `order` are packed, if it is given; it has the longest first.
        """
        rows = words.cpu().numpy()
        lengths = np.count_nonzero(rows > 0, axis=1)
        by_length = np.argsort(-lengths, kind="stable") if order is None else order.cpu().numpy()
        lengths = lengths[by_length]
        num_steps = int(lengths.max(initial=0))
        has_word = np.arange(num_steps)[:, None] < lengths  # (steps, sentences)
        step, row = has_word.nonzero()
        begin = by_length[row] * rows.shape[1]
        return cls(
            torch.from_numpy(by_length).to(words.device),
            np.count_nonzero(has_word, axis=1).tolist(),
            # The backward LSTM is a forward LSTM on reversed text.
            {
                "forward": torch.from_numpy(begin + step).to(words.device),
                "backward": torch.from_numpy(begin + lengths[row] - 1 - step).to(words.device),
            },
        )


def _count_fused_steps(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Count what fused optimizers write: torch does not, and `BiLM.version` relies on it."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            torch.autograd.graph.increment_version(group["params"])


register_optimizer_step_post_hook(_count_fused_steps)


class LanguageModel(nn.Module):
    """A BiLM and, unless it was left out, the softmax that it was trained with.

    With `tie_weights`, a word-level model has the same vectors for input and softmax.
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
        """The word vectors of input and softmax, if they are the same."""
        if not self._tie_weights:
            return None
        assert isinstance(self.bilm.encoder, WordEmbedding)
        return self.bilm.encoder.embedding.weight[1:]

    def copy_tied_embedding(self) -> None:
        """Copy tied word vectors, which are trained in the embedding, to the softmax."""
        if self._tie_weights:
            assert isinstance(self.softmax, Softmax)
            assert self.tied_embedding is not None
            with torch.no_grad():
                self.softmax.weight.copy_(self.tied_embedding)
