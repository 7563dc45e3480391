"""Lines of text become the uses of a word: where it stands, and what it was labelled."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.pooling import Vectors

Split = Callable[[str], list[list[str]]]


@dataclass(frozen=True)
class Use:
    """A word at a place of a sentence."""

    words: tuple[str, ...]
    place: int
    label: str | None = None

    @property
    def word(self) -> str:
        """The word as it is written there."""
        return self.words[self.place]

    def excerpt(self, beside: int) -> str:
        """The word with so many words before and after it."""
        start, end = max(0, self.place - beside), self.place + beside + 1
        before, after = "… " * (start > 0), " …" * (end < len(self.words))
        return before + " ".join(self.words[start:end]) + after


def find_uses(
    word: str, lines: Iterable[str], *, name: str, split: Split, prefix: bool = False
) -> list[Use]:
    """The uses of a word, whatever its case, in the sentences of a file's lines.

    With `prefix`, those of all words that begin so. Either every line is `label TAB sentence`, or
    no line has a tab.
    """
    uses = [
        use
        for label, text in _labelled(lines, name)
        for words in split(text)
        for use in uses_in(words, word, label=label, prefix=prefix)
    ]
    if not uses:
        remedy = "is it written so there?" if prefix else "give --prefix for its inflections"
        raise InputError(f"{name}: no use of {word!r}; {remedy}")
    return uses


def uses_in(
    words: Sequence[str], word: str, *, label: str | None = None, prefix: bool = False
) -> list[Use]:
    """The uses of a word, whatever its case, in one sentence."""
    form, sentence = word.casefold(), tuple(words)
    return [
        Use(sentence, place, label)
        for place, own in enumerate(map(str.casefold, sentence))
        if own == form or (prefix and own.startswith(form))
    ]


def embed_uses(embedder: Embedder, uses: Sequence[Use]) -> Vectors:  # (layers, uses, dim)
    """The vectors of uses in every layer; a sentence with several uses is read once."""
    sentences = {use.words: None for use in uses}
    arrays = dict(zip(sentences, embedder.embed(map(list, sentences)), strict=True))
    return np.stack([arrays[use.words][:, use.place] for use in uses], 1)


def _labelled(lines: Iterable[str], name: str) -> Iterator[tuple[str | None, str]]:
    """The label and the text of each line that is not blank."""
    labelled: bool | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if labelled is None:
            labelled = bool(tab)
        if labelled != bool(tab) or "\t" in text or (labelled and not label.strip()):
            raise InputError(
                f"{name}, line {number}: expected {'a label, ' * labelled}"
                f"{'one tab and a sentence' if labelled else 'no tab'}, as in the lines before"
            )
        yield (label.strip(), text) if labelled else (None, line)
