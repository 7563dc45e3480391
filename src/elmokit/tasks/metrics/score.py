"""Counts become precision, recall and F1."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """What was right of what was found, and of what was wanted; scores of parts add up.

    The two shares have numerators of their own: coreference metrics count them apart.
    """

    found_right: float = 0
    found: float = 0
    wanted_right: float = 0
    wanted: float = 0

    @property
    def precision(self) -> float:
        """The right share of what was found; 0 where nothing was."""
        return self.found_right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The right share of what was wanted; 0 where nothing was."""
        return self.wanted_right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 where both are."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    def __add__(self, other: "Score") -> "Score":
        return Score(
            self.found_right + other.found_right,
            self.found + other.found,
            self.wanted_right + other.wanted_right,
            self.wanted + other.wanted,
        )
