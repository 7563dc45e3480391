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
    special_tokens: Annotated[
        Switch, Field(description="Include <UNK> and the begin or end of sentence.")
    ] = False


@dataclass(frozen=True, config=_CLOSED)
class FillForm:
    """A text with gaps."""

    text: Text
    k: Count = 10


@dataclass(frozen=True, config=_CLOSED)
class ContextsForm:
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
    any_word: Annotated[Switch, Field(description="With a word: uses of other words too.")] = False


@plain_dataclass(frozen=True)
class EmbeddedSentence:
    """A sentence with the vectors of its words, and the index of its text in the request."""

    text_index: int
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

    text_index: int
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
    geometric_mean: float | None
    words: int
    unknown: int
    predictions: int


@plain_dataclass(frozen=True)
class ScoreReply:
    """The sentences of all texts, in their order; no perplexity where there are none."""

    perplexity: TextPerplexity | None
    sentences: list[ScoredSentence]


@plain_dataclass(frozen=True)
class PredictedWord:
    """A word that may stand somewhere, and its probability there."""

    word: str
    probability: float


@plain_dataclass(frozen=True)
class NextReply:
    """The most probable words, the most probable first."""

    predictions: list[PredictedWord]


@plain_dataclass(frozen=True)
class FillReply:
    """For each gap the words that fit best."""

    gaps: list[list[PredictedWord]]


@plain_dataclass(frozen=True)
class WordInContext:
    """A sentence, the position of the word in it, and the index of its group."""

    words: list[str]
    position: int
    group: int


@plain_dataclass(frozen=True)
class PlaneOfContexts:
    """Each occurrence as a point of a layer's first two principal components."""

    points: list[tuple[float, float]]
    explained_variance: tuple[float, float]


@plain_dataclass(frozen=True)
class ContextsReply:
    """The occurrences of a word, the names of their groups, and one plane per layer."""

    contexts: list[WordInContext]
    groups: list[str]
    layers: list[PlaneOfContexts]


@plain_dataclass(frozen=True)
class SimilarityReply:
    """The words of two texts, and the cosine of each pair in each layer."""

    first: list[str]
    second: list[str]
    layers: list[list[list[float]]]  # (layers, words of the first, words of the second)


@plain_dataclass(frozen=True)
class LearnedLayerWeights:
    """The weight of each layer in a trained task's scalar mix; they add up to 1.

    `position` is where the vectors enter the task's model: "input" or "output".
    """

    task: str
    name: str
    position: str
    layers: list[int]
    weights: list[float]


@plain_dataclass(frozen=True)
class LayerWeightsReply:
    """The layer weights of all trained tasks that the service was given."""

    layer_weights: list[LearnedLayerWeights]


@plain_dataclass(frozen=True)
class SearchResult:
    """A passage, its words, the places of those near the query, and where it stands in its file.

    In an index of words it is the sentence of a use, and the place that of the word.
    """

    id: int
    score: float
    text: str
    words: list[str]
    highlighted: list[int]
    file: str
    line: int  # from 1
    start: int  # its first character of the line, from 0
    end: int  # the one after its last


@plain_dataclass(frozen=True)
class SearchReply:
    """The passages, the nearest first."""

    results: list[SearchResult]


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
    "/contexts": {"word": "bank", "texts": ["A bank lent money.", "The bank of a river."]},
    "/similarity": {"first": "A bank lent money.", "second": "The bank of a river."},
    "/search": {"query": "a painter of landscapes", "k": 5},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "/embed": {
        "layers": [2],
        "sentences": [{"text_index": 0, "words": ["apple"], "vectors": [[[0.25, -0.5]]]}],
    },
    "/encode": {"vectors": [[0.25, -0.5]]},
    "/score": {
        "perplexity": {
            "forward": 20.5, "backward": 19.5, "average": 20.0, "geometric_mean": 19.99, "words": 1,
            "unknown": 0, "predictions": 2,
        },
        "sentences": [
            {
                "text_index": 0, "words": ["cat"], "unknown": 0, "perplexity": 19.99,
                "forward": [-4.0, -2.0], "backward": [-3.5, -2.5],
            }
        ],
    },
    "/next": {"predictions": [{"word": "mat", "probability": 0.25}]},
    "/fill": {"gaps": [[{"word": "cat", "probability": 0.5}]]},
    "/contexts": {
        "contexts": [
            {"words": ["A", "bank"], "position": 1, "group": 0},
            {"words": ["River", "banks"], "position": 1, "group": 1},
        ],
        "groups": ["cluster 1", "cluster 2"],
        "layers": [{"points": [[-0.5, 0.0], [0.5, 0.0]], "explained_variance": [1.0, 0.0]}],
    },
    "/similarity": {"first": ["money"], "second": ["river", "bank"], "layers": [[[0.25, 0.5]]]},
    "/layer_weights": {
        "layer_weights": [
            {
                "task": "ner", "name": "my_ner", "position": "input", "layers": [0, 1, 2],
                "weights": [0.25, 0.5, 0.25],
            }
        ]
    },
    "/search": {
        "results": [
            {
                "id": 7, "score": 0.5, "text": "She paints.", "words": ["She", "paints", "."],
                "highlighted": [1], "file": "text.txt", "line": 3, "start": 0, "end": 11,
            }
        ]
    },
}  # fmt: skip
