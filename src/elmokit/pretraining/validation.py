"""Validation perplexity on held-out sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from elmokit.formats.pretrained import Pretrained
from elmokit.language_model_results import Perplexity
from elmokit.scoring import perplexity

# A carried state needs sentences in their order: so many neighbours are taken together.
_NEIGHBOURS = 10


@dataclass(frozen=True)
class Validation:
    """Perplexities from a zero state, as users start, and from the state of the text before."""

    zero: Perplexity
    carry: Perplexity

    @property
    def score(self) -> float:
        """Decides which model is best: from a zero state, the mean of both directions."""
        return self.zero.geometric_mean

    def __str__(self) -> str:
        return (
            f"perplexity (full softmax) from a zero state: {_by_direction(self.zero)}; "
            f"from a carried state: {_by_direction(self.carry)}; "
            f"{self.zero.words:,} words, {self.zero.unknown:,} unknown"
        )


def _by_direction(perplexities: Perplexity) -> str:
    values = (("forward", perplexities.forward), ("backward", perplexities.backward))
    return ", ".join(f"{name} {value:.2f}" for name, value in values if value is not None)


def validate(
    pretrained: Pretrained,
    sentences: Sequence[Sequence[str]],
    *,
    words: int = 0,
    streams: int | None = None,
    show_progress_bar: bool | None = False,
) -> Validation | None:
    """Perplexities of held-out sentences, or of a sample of about so many words; None of none."""
    if not sentences:
        return None
    sentences = sample_sentences(sentences, words)
    pretrained.model.copy_tied_embedding()
    measure = partial(perplexity, pretrained, sentences, show_progress_bar=show_progress_bar)
    return Validation(measure(state="zero"), measure(state="carry", streams=streams))


def sample_sentences(sentences: Sequence[Sequence[str]], words: int) -> Sequence[Sequence[str]]:
    """Groups of neighbouring sentences, spread evenly, with about so many words; 0 for all."""
    if words == 0:
        return sentences
    stride = -(-sum(map(len, sentences)) // words)
    return [s for i, s in enumerate(sentences) if i // _NEIGHBOURS % stride == 0]
