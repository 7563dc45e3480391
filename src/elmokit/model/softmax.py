"""Full, adaptive and sampled softmax over the vocabulary."""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.errors import ConfigError
from elmokit.model.linear import add_matmul, init_normal, matmul_dtype
from elmokit.threads import run_side_by_side

# So many logits are worked out at once, 16 MB of them, but those of some vectors at least: malloc
# gives a block above 32 MB back each time, and its pages have to be had anew.
_LOGITS_AT_ONCE = 2**22
_LEAST_ROWS = 16
# Weights of one piece of a full softmax: always the same pieces, so that bits do not depend on how
# many threads share them out.
_WEIGHTS_AT_ONCE = 2**21


class Softmax(nn.Module):
    """A vector and a bias for each word of the vocabulary; both readers predict with the same."""

    def __init__(self, words: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, dim))
        self.bias = nn.Parameter(torch.zeros(words))
        init_normal(self.weight, dim)

    @property
    def num_words(self) -> int:
        """How many words it knows."""
        return len(self.bias)

    def forward(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., words)
        """The logarithm of each word's probability."""
        return F.log_softmax(self._logits(vectors), -1)

    def log_likelihood(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """The logarithm of each target's probability: (tokens, dim), (tokens,) -> (tokens,)."""
        rows = max(_LEAST_ROWS, _LOGITS_AT_ONCE // self.num_words)

        def losses(vectors: Tensor, targets: Tensor) -> Tensor:
            logits = F.linear(vectors, self.weight, self.bias)
            return F.cross_entropy(logits, targets, reduction="none")

        pieces = zip(vectors.split(rows), targets.split(rows), strict=True)
        jobs = [partial(losses, *piece) for piece in pieces]
        if torch.is_grad_enabled() or vectors.device.type != "cpu":
            return -torch.cat([job() for job in jobs])
        return -torch.cat(run_side_by_side(jobs))

    def _logits(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., words)
        if torch.is_grad_enabled() or vectors.device.type != "cpu":
            return F.linear(vectors, self.weight, self.bias)
        words = max(1, _WEIGHTS_AT_ONCE // self.weight.shape[1])
        logits = vectors.new_empty(*vectors.shape[:-1], self.num_words)

        def fill(start: int) -> None:
            some = slice(start, start + words)
            logits[..., some] = F.linear(vectors, self.weight[some], self.bias[some])

        run_side_by_side([partial(fill, start) for start in range(0, self.num_words, words)])
        return logits


class AdaptiveSoftmax(nn.Module):
    """The commonest words in full; rarer ones in classes, each with smaller vectors than the last.

    Words are in order of frequency; `cutoffs` are the first ids of the classes (Grave et al. 2017).
    """

    def __init__(self, words: int, dim: int, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        if dim < 4 ** len(cutoffs):
            raise ConfigError(
                f"cutoffs is {cutoffs}: with {len(cutoffs)} classes, dim is to be "
                f"{4 ** len(cutoffs)} or more, but it is {dim}"
            )
        self.cutoffs = cutoffs
        self.num_words = words
        self.classes = nn.AdaptiveLogSoftmaxWithLoss(
            dim, words, list(cutoffs), div_value=4.0, head_bias=True
        )

    def forward(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., words)
        """The logarithm of each word's probability."""
        flat: Tensor = self.classes.log_prob(vectors.reshape(-1, vectors.shape[-1]))
        return flat.view(*vectors.shape[:-1], self.num_words)

    def log_likelihood(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """The logarithm of each target's probability: (tokens, dim), (tokens,) -> (tokens,)."""
        likelihood: Tensor = self.classes(vectors, targets).output
        return likelihood


class NegativeSample(NamedTuple):
    """Words drawn as wrong answers, and the logarithm of how often each word was to be expected."""

    word_ids: Tensor  # (negatives,)
    log_expected_counts: Tensor  # (all words,)

    @classmethod
    def entire_vocabulary(cls, words: int, like: Tensor) -> "NegativeSample":
        """Every word: the loss is then that of the full softmax."""
        return cls(torch.arange(words, device=like.device), like.new_zeros(words))


def sample_negatives(words: int, negatives: int, generator: torch.Generator) -> NegativeSample:
    """Distinct words, the commoner the likelier: log-uniform over ids in order of frequency.

    As TensorFlow draws: again and again, until there are enough different ones.
    """
    logs = torch.arange(1, words + 2, dtype=torch.float64).log()
    drawn = torch.empty(0, dtype=torch.long)
    while True:
        more = torch.rand(4 * negatives, dtype=torch.float64, generator=generator)
        ids = (more * math.log(words + 1)).exp_().long().sub_(1).clamp_(max=words - 1)
        drawn = torch.cat([drawn, ids])
        first = torch.full((words,), len(drawn)).scatter_reduce_(
            0, drawn, torch.arange(len(drawn)), "amin"
        )
        order = first.argsort(stable=True)
        if first[order[negatives - 1]] < len(drawn):
            break
    tries = int(first[order[negatives - 1]]) + 1
    probability = (logs[1:] - logs[:-1]) / math.log(words + 1)
    expected = -torch.expm1(tries * torch.log1p(-probability))
    return NegativeSample(order[:negatives], expected.log().float())


def sampled_loss(
    vectors: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, sample: NegativeSample
) -> Tensor:
    """The sum of each target's negative log likelihood among the sample: a number.

    (tokens, dim), (tokens,), (words, dim), (words,). A target that was also drawn as a wrong answer
    is counted once.
    """
    offsets = bias - sample.log_expected_counts
    place = torch.full((len(bias),), -1, device=targets.device)
    place[sample.word_ids] = torch.arange(len(sample.word_ids), device=targets.device)
    loss: Tensor = _SampledLoss.apply(  # type: ignore[no-untyped-call]
        vectors,
        F.embedding(sample.word_ids, weight),
        offsets[sample.word_ids],
        F.embedding(targets, weight),
        offsets[targets],
        place[targets],
    )
    return loss


class _SampledLoss(torch.autograd.Function):
    """The loss and, worked out along with it, its gradient: so logits are never kept.

    Each token has one right answer, given by vector and offset, and shares the wrong ones;
    `same` is the wrong answer that is in truth the right one, -1 for none. Under torch's autocast
    the wrong answers' products are of its type.
    """

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        wrong: Tensor,
        wrong_offsets: Tensor,
        right: Tensor,
        right_offsets: Tensor,
        same: Tensor,
    ) -> Tensor:
        vectors_grad, wrong_grad = torch.empty_like(vectors), torch.zeros_like(wrong)
        offsets_grad = torch.zeros_like(wrong_offsets)
        right_grad, doubt = torch.empty_like(right), torch.empty_like(right_offsets)
        loss = vectors.new_zeros((), dtype=torch.float64)
        at_once = max(_LEAST_ROWS, _LOGITS_AT_ONCE // max(1, len(wrong)))
        logits = vectors.new_empty(min(at_once, len(vectors)), len(wrong))
        dtype = matmul_dtype(vectors)
        short_wrong = wrong.to(dtype)
        for begin in range(0, len(vectors), at_once):
            at = slice(begin, begin + at_once)
            now = vectors[at]
            short_now = now.to(dtype)
            scores = add_matmul(wrong_offsets, short_now, short_wrong.t(), out=logits[: len(now)])
            hits = (same[at] >= 0).nonzero().flatten()
            scores[hits, same[at][hits]] = -math.inf
            score = (now * right[at]).sum(1).add_(right_offsets[at])
            largest = torch.maximum(scores.amax(1), score)
            scores.sub_(largest[:, None]).exp_()
            alone = (score - largest).exp_()
            total = scores.sum(1).add_(alone)
            loss += (largest - score + total.log()).sum(dtype=torch.float64)

            scores.div_(total[:, None])
            torch.sub(alone / total, 1, out=doubt[at])
            short_scores, own = scores.to(dtype), doubt[at][:, None] * right[at]
            add_matmul(own, short_scores, short_wrong, out=vectors_grad[at])
            add_matmul(wrong_grad, short_scores.t(), short_now, out=wrong_grad)
            offsets_grad.add_(scores.sum(0))
            torch.mul(doubt[at][:, None], now, out=right_grad[at])
        ctx.save_for_backward(vectors_grad, wrong_grad, offsets_grad, right_grad, doubt)
        return loss.to(vectors.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (*(grad * kept for kept in ctx.saved_tensors), None)
