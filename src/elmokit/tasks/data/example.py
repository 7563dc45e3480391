"""Words become an example: the records that leave a file of labelled text.

Places count words from 0, and `last` is the last word itself, not the one after it.
"""

from dataclasses import dataclass

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Words that stand side by side and have a label together."""

    first: int
    last: int
    label: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence with a tag for each word."""

    words: Words
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Roles:
    """A sentence, one predicate in it, and the roles of that predicate as IOB2 tags."""

    words: Words
    predicate: int  # the place of its word
    frame: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text with a label; `text` as it stood in the file, where the file was raw.

    `phrases` are parts of it with labels of their own: the first word, the last, the label.
    """

    words: Words
    label: str
    text: str = ""
    phrases: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts with a label."""

    first: Words
    second: Words
    label: str
    texts: tuple[str, str]  # as they stood in the file


@dataclass(frozen=True, slots=True)
class Scored:
    """Two texts and how much they mean the same."""

    first: Words
    second: Words
    score: float
    texts: tuple[str, str]  # as they stood in the file


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and the words of its context that hold it."""

    text: str
    first: int
    last: int
    widened: bool  # whether those words hold more than the answer


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its context; every answer is a stretch of the context."""

    id: str
    question: Words
    context: Words
    offsets: tuple[tuple[int, int], ...]  # where each word of the context starts and ends in `text`
    text: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """Sentences and the mentions in them that are the same; words count through the document."""

    name: str
    part: int
    sentences: tuple[Words, ...]
    clusters: tuple[tuple[tuple[int, int], ...], ...]  # of (first, last)


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A pronoun and two names before or after it, each (first, last), that it may stand for.

    Words count through the text, as in a document.
    """

    id: str
    sentences: tuple[Words, ...]
    pronoun: tuple[int, int]
    a: tuple[int, int]
    b: tuple[int, int]
    is_a: bool
    is_b: bool  # neither is possible, both is not
    said: str  # the pronoun alone, whatever word it is part of


@dataclass(frozen=True, slots=True)
class Instance:
    """Words used in a sense of WordNet: all its keys where several are right."""

    id: str
    first: int
    last: int
    lemma: str
    pos: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sensed:
    """A sentence and the words in it whose senses are known."""

    id: str
    words: Words
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True)
class InContext:
    """One word in two sentences, and whether it means the same in both."""

    word: str
    pos: str
    first: Words
    second: Words
    places: tuple[int, int]
    same: bool
