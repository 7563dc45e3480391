"""Tagging schemes for spans: IOB1, IOB2, BIOES and BMES, to spans and back.

A tag is a letter, a hyphen and a label (`B-PER`), or `O` outside every span.

| scheme | span of three words, span of one | span right after one with the same label |
| ------ | -------------------------------- | ---------------------------------------- |
| iob1   | I I I, I                         | begins with B                            |
| iob2   | B I I, B                         | as any other                             |
| bioes  | B I E, S                         | as any other                             |
| bmes   | B M E, S                         | as any other                             |
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from elmokit.errors import InputError
from elmokit.tasks.datasets.example_records import Span

Scheme = Literal["iob1", "iob2", "bioes", "bmes"]

TAG_FORM = "O or one of B, I, M, E and S, a hyphen, a label"
# The letters of a span's first, inner and last words, and of a span's only word.
_LETTERS: dict[Scheme, str] = {"iob1": "IIII", "iob2": "BIIB", "bioes": "BIES", "bmes": "BMES"}


def spans_of(tags: Sequence[str]) -> tuple[Span, ...]:
    """The spans of a sentence's tags, in any scheme, as conlleval reads them.

    Sequences that no scheme would write are read too, for a model that tags word by word may
    produce them. A span begins at B and S, and at I, M and E after O, E, S or another label; it
    ends at E and S, and before O or the next beginning. So `O I-X I-X` is a span in every scheme,
    `B-X O` is a span of one word, and `I-X I-Y` are two.
    """
    spans = []
    first, previous_letter, previous_label = 0, "O", ""
    for position, tag in enumerate((*tags, "O")):  # O ends the last span
        if not is_span_tag(tag):
            raise InputError(f"tag {tag!r}, expected {TAG_FORM}")
        letter, label = tag[0], tag[2:]
        begins = letter in "BS" or (
            letter != "O" and (previous_letter in "OES" or label != previous_label)
        )
        if previous_letter != "O" and (begins or letter == "O"):
            spans.append(Span(first, position - 1, previous_label))
        if begins:
            first = position
        previous_letter, previous_label = letter, label
    return tuple(spans)


def tags_of(spans: Iterable[Span], length: int, scheme: Scheme) -> tuple[str, ...]:
    """The tags of a sentence of `length` words; spans may not overlap."""
    tags = ["O"] * length
    first, inner, last, only = [*_LETTERS[scheme]]
    for span in sorted(spans, key=lambda span: span.first):
        if not 0 <= span.first <= span.last < length:
            raise InputError(f"{span} does not lie in a sentence of {length} words")
        if any(tag != "O" for tag in tags[span.first : span.last + 1]):
            raise InputError(f"{span} overlaps another span, which tags cannot express")
        words = span.last - span.first + 1
        letters = [first, *inner * (words - 2), last] if words > 1 else [only]
        if scheme == "iob1" and span.first and tags[span.first - 1][2:] == span.label:
            letters[0] = "B"
        tags[span.first : span.last + 1] = [f"{letter}-{span.label}" for letter in letters]
    return tuple(tags)


def convert_tags(tags: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """The same spans in another scheme."""
    return tags_of(spans_of(tags), len(tags), scheme)


def is_span_tag(tag: str) -> bool:
    """Whether some scheme has this tag."""
    return tag == "O" or (len(tag) > 2 and tag[0] in "BIMES" and tag[1] == "-")


def strip_prefix(tag: str) -> str:
    """The label of a span tag; an empty string for O."""
    return tag[2:]
