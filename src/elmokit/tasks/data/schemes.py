"""Tags become spans, and back: IOB1, IOB2, BIOES and BMES.

A tag is a letter, a hyphen and a label (`B-PER`), or `O` outside of every span.

| scheme | a span of three, a span of one | a span right after one of its own label |
| ------ | ------------------------------ | --------------------------------------- |
| iob1   | I I I, I                       | begins with B                           |
| iob2   | B I I, B                       | as any other                            |
| bioes  | B I E, S                       | as any other                            |
| bmes   | B M E, S                       | as any other                            |
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from elmokit.errors import InputError
from elmokit.tasks.data.example import Span

Scheme = Literal["iob1", "iob2", "bioes", "bmes"]

TAG_FORM = "O or one of B, I, M, E and S, a hyphen, a label"


def spans_of(tags: Sequence[str]) -> tuple[Span, ...]:
    """The spans of a sentence's tags, whatever the scheme, as conlleval reads them.

    What no scheme would write is read too, as a model that tags word by word may say it: a span
    begins at B and S, at I, M and E after O, E, S or another label; it ends at E and S, and before
    whatever begins a span or is O. So `O I-X I-X` is a span in every scheme, `B-X O` is one of one
    word, and `I-X I-Y` are two.
    """
    spans = []
    first, letter, label = 0, "O", ""
    for place, tag in enumerate(tags):
        now, of = _letter_and_label(tag)
        begins = now in "BS" or (now != "O" and (letter in "OES" or of != label))
        if letter != "O" and (begins or now == "O"):
            spans.append(Span(first, place - 1, label))
        if begins:
            first = place
        letter, label = now, of
    if letter != "O":
        spans.append(Span(first, len(tags) - 1, label))
    return tuple(spans)


def tags_of(spans: Iterable[Span], length: int, scheme: Scheme) -> tuple[str, ...]:
    """The tags of a sentence of `length` words; spans may not overlap."""
    tags = ["O"] * length
    for span in sorted(spans, key=lambda span: span.first):
        if not 0 <= span.first <= span.last < length:
            raise InputError(f"{span} does not lie in a sentence of {length} words")
        if any(tag != "O" for tag in tags[span.first : span.last + 1]):
            raise InputError(f"{span} overlaps another span, which tags cannot say")
        before = tags[span.first - 1] if span.first else "O"
        for place in range(span.first, span.last + 1):
            letter = _letter_at(place, span, scheme, touches=before[2:] == span.label)
            tags[place] = f"{letter}-{span.label}"
    return tuple(tags)


def convert(tags: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """The same spans in another scheme."""
    return tags_of(spans_of(tags), len(tags), scheme)


def is_tag(tag: str) -> bool:
    """Whether some scheme would write it."""
    return tag == "O" or (len(tag) > 2 and tag[0] in "BIMES" and tag[1] == "-")


def _letter_and_label(tag: str) -> tuple[str, str]:
    if tag == "O":
        return "O", ""
    if not is_tag(tag):
        raise InputError(f"tag {tag!r}, expected {TAG_FORM}")
    return tag[0], tag[2:]


def _letter_at(place: int, span: Span, scheme: Scheme, *, touches: bool) -> str:
    """`touches`: the word before the span is in another one with the same label."""
    begins, ends = place == span.first, place == span.last
    if scheme == "iob1":
        return "B" if begins and touches else "I"
    if scheme == "iob2":
        return "B" if begins else "I"
    if begins:
        return "S" if ends else "B"
    return "E" if ends else "M" if scheme == "bmes" else "I"
