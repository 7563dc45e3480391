"""Bodies of requests become checked records, and answers have a form that the schema tells."""

from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Strict
from pydantic.dataclasses import dataclass

Text = str | list[str]
Texts = Annotated[list[Text], Field(description="Raw texts, or lists of words.")]
Number = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=1, le=1000, description="How many words.")]
Switch = Annotated[bool, Strict()]

_CLOSED = ConfigDict(extra="forbid")  # a misspelled setting is a mistake, not a wish


@dataclass(frozen=True, config=_CLOSED)
class EmbedForm:
    """Texts whose words want vectors."""

    texts: Texts
    layers: Literal["all", "top"] | Number | Annotated[list[Number], Field(min_length=1)] = "all"
    directions: Literal["both", "forward", "backward"] = "both"


@dataclass(frozen=True, config=_CLOSED)
class EncodeForm:
    """Texts that want one vector each."""

    texts: Texts
    layers: Literal["mean", "top", "concat"] | Number = "mean"
    pooling: Literal["mean", "max", "first", "last"] = "mean"


@dataclass(frozen=True, config=_CLOSED)
class ScoreForm:
    """Texts whose words want probabilities."""

    texts: Texts


@dataclass(frozen=True, config=_CLOSED)
class NextForm:
    """A text that is to go on, or to begin earlier."""

    text: Text
    k: Count = 10
    previous: Annotated[Switch, Field(description="Words before the text, not after it.")] = False
    marks: Annotated[Switch, Field(description="Keep <UNK> and the other mark.")] = False


@dataclass(frozen=True, config=_CLOSED)
class FillForm:
    """A text with gaps."""

    text: Text
    k: Count = 10


@dataclass(frozen=True, config=_CLOSED)
class UsesForm:
    """A word, and texts that use it."""

    word: Annotated[str, Field(description="Words that begin so are uses too.")]
    texts: Texts
    labels: Annotated[list[str] | None, Field(description="One a text, to group by.")] = None


@dataclass(frozen=True, config=_CLOSED)
class SimilarityForm:
    """Two texts whose words are compared."""

    first: Text
    second: Text


@dataclass(frozen=True, config=_CLOSED)
class SearchForm:
    """What passages should be near to, or which word's uses are wanted."""

    query: str
    k: Annotated[int, Strict(), Field(ge=1, le=100, description="How many passages.")] = 10
    word: Annotated[
        str | None, Field(description="Of the query: find uses like its own, in an index of words.")
    ] = None
    any: Annotated[Switch, Field(description="With a word: uses of other words too.")] = False


@plain_dataclass(frozen=True)
class EmbeddedSentence:
    """A sentence with the vectors of its words, and the place of its text in the request."""

    text: int
    words: list[str]
    vectors: list[list[list[float]]]  # (layers, words, dim)


@plain_dataclass(frozen=True)
class EmbedReply:
    """The sentences of all texts, in their order."""

    layers: list[int]
    sentences: list[EmbeddedSentence]


@plain_dataclass(frozen=True)
class EncodeReply:
    """One vector a text."""

    vectors: list[list[float]]  # (texts, dim)


@plain_dataclass(frozen=True)
class ScoredSentence:
    """The natural logarithm of each word's probability, and of the mark at the end."""

    text: int
    words: list[str]
    unknown: int
    perplexity: float | None
    forward: list[float] | None
    backward: list[float] | None


@plain_dataclass(frozen=True)
class TextPerplexity:
    """The perplexity of all texts together; null where a reader is missing or it is infinite."""

    forward: float | None
    backward: float | None
    average: float | None
    both: float | None
    words: int
    unknown: int
    predictions: int


@plain_dataclass(frozen=True)
class ScoreReply:
    """The sentences of all texts, in their order; no perplexity where there are none."""

    perplexity: TextPerplexity | None
    sentences: list[ScoredSentence]


@plain_dataclass(frozen=True)
class GuessedWord:
    """A word that may stand somewhere, and its probability there."""

    word: str
    probability: float


@plain_dataclass(frozen=True)
class NextReply:
    """The likeliest words, the likeliest first."""

    words: list[GuessedWord]


@plain_dataclass(frozen=True)
class FillReply:
    """For each gap the words that fit best."""

    gaps: list[list[GuessedWord]]


@plain_dataclass(frozen=True)
class PlacedUse:
    """A word at a place of a sentence, and the number of its group."""

    words: list[str]
    place: int
    group: int


@plain_dataclass(frozen=True)
class PlaneOfUses:
    """Where each use stands in a layer, and what share of all variance each axis shows."""

    points: list[tuple[float, float]]
    variance: tuple[float, float]


@plain_dataclass(frozen=True)
class UsesReply:
    """The uses, the names of their groups, and a plane a layer."""

    uses: list[PlacedUse]
    groups: list[str]
    layers: list[PlaneOfUses]


@plain_dataclass(frozen=True)
class SimilarityReply:
    """The words of two texts, and the cosine of each pair in each layer."""

    first: list[str]
    second: list[str]
    layers: list[list[list[float]]]  # (layers, words of the first, words of the second)


@plain_dataclass(frozen=True)
class LearntMix:
    """The share of each layer in a mix, and the task, the folder and the place it was learnt at."""

    task: str
    folder: str
    place: str
    layers: list[int]
    shares: list[float]  # one a layer


@plain_dataclass(frozen=True)
class MixesReply:
    """The mixes of all trained tasks that the service was given."""

    mixes: list[LearntMix]


@plain_dataclass(frozen=True)
class FoundPassage:
    """A passage, its words, the places of those near the query, and where it stands in its file.

    In an index of words it is the sentence of a use, and the place that of the word.
    """

    id: int
    score: float
    text: str
    words: list[str]
    lit: list[int]
    file: str
    line: int  # from 1
    start: int  # its first character of the line, from 0
    end: int  # the one after its last


@plain_dataclass(frozen=True)
class SearchReply:
    """The passages, the nearest first."""

    found: list[FoundPassage]


@plain_dataclass(frozen=True)
class ErrorReply:
    """Why there is no answer, in one sentence."""

    error: str


EXAMPLES: dict[str, dict[str, Any]] = {
    "/embed": {"texts": [["I", "ate", "an", "apple"], "Raw text. Two sentences."], "layers": "top"},
    "/encode": {"texts": ["I ate an apple. It was good."], "layers": "mean", "pooling": "mean"},
    "/score": {"texts": ["The cat sat on the mat."]},
    "/next": {"text": "The cat sat on the", "k": 5},
    "/fill": {"text": "The ___ sat on the mat.", "k": 5},
    "/uses": {"word": "bank", "texts": ["A bank lent money.", "The bank of a river."]},
    "/similarity": {"first": "A bank lent money.", "second": "The bank of a river."},
    "/search": {"query": "a painter of landscapes", "k": 5},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "/embed": {
        "layers": [2],
        "sentences": [{"text": 0, "words": ["apple"], "vectors": [[[0.25, -0.5]]]}],
    },
    "/encode": {"vectors": [[0.25, -0.5]]},
    "/score": {
        "perplexity": {
            "forward": 20.5, "backward": 19.5, "average": 20.0, "both": 19.99, "words": 1,
            "unknown": 0, "predictions": 2,
        },
        "sentences": [
            {
                "text": 0, "words": ["cat"], "unknown": 0, "perplexity": 19.99,
                "forward": [-4.0, -2.0], "backward": [-3.5, -2.5],
            }
        ],
    },
    "/next": {"words": [{"word": "mat", "probability": 0.25}]},
    "/fill": {"gaps": [[{"word": "cat", "probability": 0.5}]]},
    "/uses": {
        "uses": [
            {"words": ["A", "bank"], "place": 1, "group": 0},
            {"words": ["River", "banks"], "place": 1, "group": 1},
        ],
        "groups": ["cluster 1", "cluster 2"],
        "layers": [{"points": [[-0.5, 0.0], [0.5, 0.0]], "variance": [1.0, 0.0]}],
    },
    "/similarity": {"first": ["money"], "second": ["river", "bank"], "layers": [[[0.25, 0.5]]]},
    "/mixes": {
        "mixes": [
            {
                "task": "ner", "folder": "my_ner", "place": "input", "layers": [0, 1, 2],
                "shares": [0.25, 0.5, 0.25],
            }
        ]
    },
    "/search": {
        "found": [
            {
                "id": 7, "score": 0.5, "text": "She paints.", "words": ["She", "paints", "."],
                "lit": [1], "file": "text.txt", "line": 3, "start": 0, "end": 11,
            }
        ]
    },
}  # fmt: skip
