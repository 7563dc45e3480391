"""Validation perplexity on held-out sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.formats.pretrained import Pretrained
from elmokit.results import Perplexity
from elmokit.scoring import perplexity


@dataclass(frozen=True)
class Validation:
    """Perplexities from a zero state, as users start, and from the state of the text before."""

    zero: Perplexity
    carry: Perplexity

    @property
    def score(self) -> float:
        """What is to become smaller: from zero, both directions together."""
        return self.zero.geometric_mean

    def __str__(self) -> str:
        return (
            f"perplexity (full softmax) from a zero state: {_describe(self.zero)}; "
            f"from a carried state: {_describe(self.carry)}; "
            f"{self.zero.words:,} words, {self.zero.unknown:,} unknown"
        )


def validate(
    pretrained: Pretrained, sentences: Sequence[Sequence[str]], *, words: int = 0
) -> Validation | None:
    """The perplexities of held-out sentences: of about so many words, spread evenly, or of all."""
    if not sentences:
        return None
    if words > 0:
        # Stretches of ten sentences: carrying a state needs neighbours.
        stride = -(-sum(len(sentence) for sentence in sentences) // words)
        sentences = [s for place, s in enumerate(sentences) if place // 10 % stride == 0]
    pretrained.model.copy_tied_embedding()
    return Validation(
        perplexity(pretrained, sentences, state="zero", show_progress_bar=False),
        perplexity(pretrained, sentences, state="carry", show_progress_bar=False),
    )


def _describe(found: Perplexity) -> str:
    ways = (("forward", found.forward), ("backward", found.backward))
    return ", ".join(f"{name} {value:.2f}" for name, value in ways if value is not None)
