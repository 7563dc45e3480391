"""Records of labelled data: sentences with tags, texts with labels, questions, documents.

Positions count words from 0, and `last` is the last word itself, not the one after it.
"""

from collections.abc import Callable
from dataclasses import dataclass

Words = tuple[str, ...]
Tokenize = Callable[[str], list[str]]  # a raw text to its words


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of words and its label."""

    first: int
    last: int
    label: str


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence with a tag for each word."""

    words: Words
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PredicateRoles:
    """A sentence, one predicate in it, and the roles of its arguments as IOB2 tags."""

    words: Words
    predicate: int  # position of its word
    frame: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text with a label.

    `text` is the raw text, if the file held one. `phrases` are parts of the text with labels of
    their own: first word, last word, label.
    """

    words: Words
    label: str
    text: str = ""
    phrases: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TextPair:
    """Two texts with a label for the pair."""

    first: Words
    second: Words
    label: str
    texts: tuple[str, str]  # the raw texts


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and the words of the context that contain it."""

    text: str
    first: int
    last: int
    widened: bool  # whether those words contain more than the answer


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its context; every answer is a stretch of the context."""

    id: str
    question: Words
    context: Words
    offsets: tuple[tuple[int, int], ...]  # start and end in `text` of each word of the context
    text: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """Sentences with clusters of mentions; words are numbered through the whole document."""

    name: str
    part: int
    sentences: tuple[Words, ...]
    clusters: tuple[tuple[tuple[int, int], ...], ...]  # of mentions (first, last)


@dataclass(frozen=True, slots=True)
class GapExample:
    """A pronoun and two names, each (first, last), that it may refer to.

    Words are numbered through the whole text, as in a document.
    """

    id: str
    sentences: tuple[Words, ...]
    pronoun: tuple[int, int]
    a: tuple[int, int]
    b: tuple[int, int]
    is_a: bool
    is_b: bool  # both can be False, never both True
    pronoun_text: str  # without the rest of the word that it may be part of


@dataclass(frozen=True, slots=True)
class SenseInstance:
    """Words used in a sense of WordNet; several keys if several senses are right."""

    id: str
    first: int
    last: int
    lemma: str
    pos: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SenseTaggedSentence:
    """A sentence and the words in it whose senses are known."""

    id: str
    words: Words
    instances: tuple[SenseInstance, ...]
