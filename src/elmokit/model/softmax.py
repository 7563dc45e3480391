"""Full, adaptive and sampled softmax over the vocabulary."""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.errors import ConfigError
from elmokit.model.packed_linear import add_matmul, init_normal, matmul_dtype
from elmokit.threads import run_side_by_side

# Logits are computed in blocks of 16 MB, but for at least this many vectors: malloc returns larger
# blocks than 32 MB to the system each time, and fetching their pages again takes long.
_LOGITS_PER_BLOCK = 2**22
_MIN_ROWS_PER_BLOCK = 16
# Weights in a block of a full softmax: the blocks are always the same, so that bits do not depend
# on the number of threads.
_WEIGHTS_PER_BLOCK = 2**21


class Softmax(nn.Module):
    """A vector and a bias for each word of the vocabulary, the same for both directions."""

    def __init__(self, num_words: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_words, dim))
        self.bias = nn.Parameter(torch.zeros(num_words))
        init_normal(self.weight, dim)

    @property
    def num_words(self) -> int:
        return len(self.bias)

    def forward(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., num_words)
        """The log-probability of each word."""
        return F.log_softmax(self._logits(vectors), -1)

    def log_likelihood(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """The log-probability of each target: (tokens, dim), (tokens,) -> (tokens,)."""
        rows = max(_MIN_ROWS_PER_BLOCK, _LOGITS_PER_BLOCK // self.num_words)

        def losses(vectors: Tensor, targets: Tensor) -> Tensor:
            logits = F.linear(vectors, self.weight, self.bias)
            return F.cross_entropy(logits, targets, reduction="none")

        blocks = zip(vectors.split(rows), targets.split(rows), strict=True)
        jobs = [partial(losses, *block) for block in blocks]
        if torch.is_grad_enabled() or vectors.device.type != "cpu":
            return -torch.cat([job() for job in jobs])
        return -torch.cat(run_side_by_side(jobs))

    def _logits(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., num_words)
        if torch.is_grad_enabled() or vectors.device.type != "cpu":
            return F.linear(vectors, self.weight, self.bias)
        words = max(1, _WEIGHTS_PER_BLOCK // self.weight.shape[1])
        logits = vectors.new_empty(*vectors.shape[:-1], self.num_words)

        def fill(start: int) -> None:
            block = slice(start, start + words)
            logits[..., block] = F.linear(vectors, self.weight[block], self.bias[block])

        run_side_by_side([partial(fill, start) for start in range(0, self.num_words, words)])
        return logits


class AdaptiveSoftmax(nn.Module):
    """The most frequent words in full; rarer words in classes with ever smaller vectors.

    Words are in order of frequency; `cutoffs` are the first ids of the classes (Grave et al. 2017).
    """

    def __init__(self, num_words: int, dim: int, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        if dim < 4 ** len(cutoffs):
            raise ConfigError(
                f"cutoffs is {cutoffs}, but with {len(cutoffs)} classes a vector must have "
                f"{4 ** len(cutoffs)} dimensions or more, and it has {dim}; give fewer cutoffs"
            )
        self.cutoffs = cutoffs
        self.num_words = num_words
        self.classes = nn.AdaptiveLogSoftmaxWithLoss(
            dim, num_words, list(cutoffs), div_value=4.0, head_bias=True
        )

    def forward(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., num_words)
        """The log-probability of each word."""
        flat: Tensor = self.classes.log_prob(vectors.reshape(-1, vectors.shape[-1]))
        return flat.view(*vectors.shape[:-1], self.num_words)

    def log_likelihood(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """The log-probability of each target: (tokens, dim), (tokens,) -> (tokens,)."""
        likelihood: Tensor = self.classes(vectors, targets).output
        return likelihood


class NegativeSample(NamedTuple):
    """Negative samples, and the log of how often each word is expected to be among them."""

    word_ids: Tensor  # (num_sampled,)
    log_expected_counts: Tensor  # (num_words,)

    @classmethod
    def entire_vocabulary(cls, num_words: int, like: Tensor) -> "NegativeSample":
        """Every word, for the loss of the full softmax."""
        return cls(torch.arange(num_words, device=like.device), like.new_zeros(num_words))


def sample_negatives(
    num_words: int, num_sampled: int, generator: torch.Generator
) -> NegativeSample:
    """Distinct words drawn from a log-uniform distribution over ids in order of frequency.

    As in TensorFlow, words are drawn until there are enough different ones.
    """
    logs = torch.arange(1, num_words + 2, dtype=torch.float64).log()
    drawn = torch.empty(0, dtype=torch.long)
    while True:
        uniform = torch.rand(4 * num_sampled, dtype=torch.float64, generator=generator)
        ids = (uniform * math.log(num_words + 1)).exp_().long().sub_(1).clamp_(max=num_words - 1)
        drawn = torch.cat([drawn, ids])
        first_draw = torch.full((num_words,), len(drawn)).scatter_reduce_(
            0, drawn, torch.arange(len(drawn)), "amin"
        )
        order = first_draw.argsort(stable=True)
        if first_draw[order[num_sampled - 1]] < len(drawn):
            break
    tries = int(first_draw[order[num_sampled - 1]]) + 1
    probability = (logs[1:] - logs[:-1]) / math.log(num_words + 1)
    expected_counts = -torch.expm1(tries * torch.log1p(-probability))
    return NegativeSample(order[:num_sampled], expected_counts.log().float())


def sampled_loss(
    vectors: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, sample: NegativeSample
) -> Tensor:
    """The summed negative log-likelihood of the targets against the sample: a number.

    (tokens, dim), (tokens,), (num_words, dim), (num_words,). A target that is also in the sample
    counts once.
    """
    offsets = bias - sample.log_expected_counts
    sample_index = torch.full((len(bias),), -1, device=targets.device)
    sample_index[sample.word_ids] = torch.arange(len(sample.word_ids), device=targets.device)
    loss: Tensor = _SampledLoss.apply(  # type: ignore[no-untyped-call]
        vectors,
        F.embedding(sample.word_ids, weight),
        offsets[sample.word_ids],
        F.embedding(targets, weight),
        offsets[targets],
        sample_index[targets],
    )
    return loss


class _SampledLoss(torch.autograd.Function):
    """The loss and its gradient, computed together so that the logits need not be saved.

    Each token has a target, with a vector and an offset of its own, and all share the negative
    samples; `target_index` is the index of a token's target among these, -1 if it is not there.
    Under torch's autocast, products with the negative samples are computed in its type.
    """

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        negatives: Tensor,
        negative_offsets: Tensor,
        targets: Tensor,
        target_offsets: Tensor,
        target_index: Tensor,
    ) -> Tensor:
        vectors_grad, negatives_grad = torch.empty_like(vectors), torch.zeros_like(negatives)
        negative_offsets_grad = torch.zeros_like(negative_offsets)
        targets_grad = torch.empty_like(targets)
        target_offsets_grad = torch.empty_like(target_offsets)
        loss = vectors.new_zeros((), dtype=torch.float64)
        block_rows = max(_MIN_ROWS_PER_BLOCK, _LOGITS_PER_BLOCK // max(1, len(negatives)))
        logits_buffer = vectors.new_empty(min(block_rows, len(vectors)), len(negatives))
        dtype = matmul_dtype(vectors)
        short_negatives = negatives.to(dtype)
        for begin in range(0, len(vectors), block_rows):
            rows = slice(begin, begin + block_rows)
            block = vectors[rows]
            short_block = block.to(dtype)
            logits = add_matmul(
                negative_offsets, short_block, short_negatives.t(), out=logits_buffer[: len(block)]
            )
            in_sample = (target_index[rows] >= 0).nonzero().flatten()
            logits[in_sample, target_index[rows][in_sample]] = -math.inf
            target_logits = (block * targets[rows]).sum(1).add_(target_offsets[rows])
            largest = torch.maximum(logits.amax(1), target_logits)
            logits.sub_(largest[:, None]).exp_()
            target_exp = (target_logits - largest).exp_()
            total = logits.sum(1).add_(target_exp)
            loss += (largest - target_logits + total.log()).sum(dtype=torch.float64)

            probabilities = logits.div_(total[:, None])
            torch.sub(target_exp / total, 1, out=target_offsets_grad[rows])
            short_probabilities = probabilities.to(dtype)
            from_targets = target_offsets_grad[rows][:, None] * targets[rows]
            add_matmul(from_targets, short_probabilities, short_negatives, out=vectors_grad[rows])
            add_matmul(negatives_grad, short_probabilities.t(), short_block, out=negatives_grad)
            negative_offsets_grad.add_(probabilities.sum(0))
            torch.mul(target_offsets_grad[rows][:, None], block, out=targets_grad[rows])
        ctx.save_for_backward(
            vectors_grad, negatives_grad, negative_offsets_grad, targets_grad, target_offsets_grad
        )
        return loss.to(vectors.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*(grad * saved for saved in ctx.saved_tensors), None)
