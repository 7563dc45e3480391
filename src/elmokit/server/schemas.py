"""Bodies of requests and responses, as they are checked and as the OpenAPI schema shows them."""

from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Strict
from pydantic.dataclasses import dataclass

# Media types.
JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/x-npz"

Text = str | list[str]
Texts = Annotated[list[Text], Field(description="Raw texts, or lists of words.")]
Number = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=1, le=1000, description="How many words.")]
Switch = Annotated[bool, Strict()]

Layers = Annotated[
    Literal["all", "top", "mean", "concat"] | Number | Annotated[list[Number], Field(min_length=1)],
    Field(description="Which layers; 'mean' and 'concat' combine all of them into one."),
]

_CLOSED = ConfigDict(extra="forbid")  # a misspelled field is an error


def _list_poolings(schema: dict[str, Any]) -> None:
    from elmokit.pooling import POOLINGS  # noqa: PLC0415  (numpy, which the client has)

    schema["enum"] = [*POOLINGS]


@dataclass(frozen=True, config=_CLOSED)
class EmbedRequest:
    """Texts to embed word by word."""

    texts: Texts
    layers: Layers = "all"
    directions: Literal["both", "forward", "backward"] = "both"


@dataclass(frozen=True, config=_CLOSED)
class EncodeRequest:
    """Texts to encode as one vector each."""

    texts: Texts
    layers: Layers = "mean"
    pooling: Annotated[str, Field(json_schema_extra=_list_poolings)] = "mean"
    normalize_embeddings: Annotated[Switch, Field(description="Scale each vector to length 1.")] = (
        False
    )


@dataclass(frozen=True, config=_CLOSED)
class ScoreRequest:
    """Texts to score word by word."""

    texts: Texts


@dataclass(frozen=True, config=_CLOSED)
class NextRequest:
    """A text whose next or previous words are predicted."""

    text: Text
    k: Count = 10
    previous: Annotated[Switch, Field(description="Words before the text instead of after it.")] = (
        False
    )
    special_tokens: Annotated[
        Switch, Field(description="Include <UNK> and the begin or end of sentence.")
    ] = False


@dataclass(frozen=True, config=_CLOSED)
class FillRequest:
    """A text with gaps, each written as ___."""

    text: Text
    k: Count = 10


@dataclass(frozen=True, config=_CLOSED)
class ContextsRequest:
    """A word, and texts in which it occurs."""

    word: Annotated[
        str, Field(description="Words that begin with it count too: bank, banks, banking.")
    ]
    texts: Texts
    labels: Annotated[
        list[str] | None,
        Field(description="One per text: occurrences are grouped by label instead of by cluster."),
    ] = None


@dataclass(frozen=True, config=_CLOSED)
class SimilarityRequest:
    """Two texts whose words are compared with each other."""

    first: Text
    second: Text


@dataclass(frozen=True, config=_CLOSED)
class SearchRequest:
    """A text to search for; or a word of it, to find similar occurrences of that word."""

    query: str
    k: Annotated[int, Strict(), Field(ge=1, le=100, description="How many passages.")] = 10
    word: Annotated[
        str | None,
        Field(
            description="A word of the query: find occurrences similar to it, in an index of words."
        ),
    ] = None
    any_word: Annotated[
        Switch, Field(description="With `word`: find occurrences of other words too.")
    ] = False


@dataclass(frozen=True, config=_CLOSED)
class PredictRequest:
    """Texts for a trained head, written as its task's input."""

    texts: list[str]


@plain_dataclass(frozen=True)
class EmbeddedSentence:
    """A sentence with the vectors of its words, and the index of its text in the request."""

    text_index: int
    words: list[str]
    vectors: list[list[list[float]]]  # (layers, words, dim)


@plain_dataclass(frozen=True)
class EmbedResponse:
    """The sentences of all texts, in order; and the layers that were chosen or combined."""

    layers: list[int]
    sentences: list[EmbeddedSentence]


@plain_dataclass(frozen=True)
class EncodeResponse:
    """One vector per text; one per text and layer where several layers were requested."""

    vectors: list[list[float]] | list[list[list[float]]]  # (texts, dim) or (texts, layers, dim)


@plain_dataclass(frozen=True)
class ScoredSentence:
    """A sentence with the log-probability of each word, and of the end of the sentence."""

    text_index: int
    words: list[str]
    unknown: int
    perplexity: float | None
    forward: list[float] | None
    backward: list[float] | None


@plain_dataclass(frozen=True)
class TextPerplexity:
    """The perplexity of all texts; null for a direction the model lacks, or if infinite."""

    forward: float | None
    backward: float | None
    average: float | None
    geometric_mean: float | None
    words: int
    unknown: int
    predictions: int


@plain_dataclass(frozen=True)
class ScoreResponse:
    """The sentences of all texts, in order; the perplexity is null if there are none."""

    perplexity: TextPerplexity | None
    sentences: list[ScoredSentence]


@plain_dataclass(frozen=True)
class PredictedWord:
    """A word and its probability."""

    word: str
    probability: float


@plain_dataclass(frozen=True)
class NextResponse:
    """The most probable words, the most probable first."""

    predictions: list[PredictedWord]


@plain_dataclass(frozen=True)
class FillResponse:
    """For each gap the words that fit best, the best first."""

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
class ContextsResponse:
    """The occurrences of a word, the names of their groups, and one plane per layer."""

    contexts: list[WordInContext]
    groups: list[str]
    layers: list[PlaneOfContexts]


@plain_dataclass(frozen=True)
class SimilarityResponse:
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
class LayerWeightsResponse:
    """The layer weights of all trained tasks that the service was given."""

    layer_weights: list[LearnedLayerWeights]


@plain_dataclass(frozen=True)
class SearchResult:
    """A passage, the positions of its highlighted words, and its position in its file.

    In an index of words it is the sentence of an occurrence, with that word highlighted.
    """

    id: int
    score: float
    text: str
    words: list[str]
    highlighted: list[int]
    file: str
    line: int  # from 1
    start: int  # of its first character in the line, from 0
    end: int  # of the character after its last


@plain_dataclass(frozen=True)
class SearchResponse:
    """The passages, the most similar first."""

    results: list[SearchResult]


@plain_dataclass(frozen=True)
class PredictResponse:
    """The predictions of a trained head, one per text."""

    task: str
    predictions: list[Any]


@plain_dataclass(frozen=True)
class InfoResponse:
    """The model and what else the service has."""

    version: str
    model: str
    source: str
    fingerprint: str
    layers: int  # the context-free one included
    dim: int
    parameters: int
    tokenizer: str
    precision: str
    softmax_words: int | None  # null for a model without a softmax
    tasks: list[str]  # names for /predict/{task}
    index: str | None  # the unit of the search index: passages, sentences or words


@plain_dataclass(frozen=True)
class ErrorResponse:
    """What is wrong, in one sentence."""

    error: str


REQUEST_EXAMPLES: dict[str, dict[str, Any]] = {
    "/embed": {"texts": [["I", "ate", "an", "apple"], "Raw text. Two sentences."], "layers": "top"},
    "/encode": {"texts": ["I ate an apple. It was good."], "layers": "mean", "pooling": "mean"},
    "/score": {"texts": ["The cat sat on the mat."]},
    "/next": {"text": "The cat sat on the", "k": 5},
    "/fill": {"text": "The ___ sat on the mat.", "k": 5},
    "/contexts": {"word": "bank", "texts": ["A bank lent money.", "The bank of a river."]},
    "/similarity": {"first": "A bank lent money.", "second": "The bank of a river."},
    "/search": {"query": "a painter of landscapes", "k": 5},
    "/predict/{task}": {"texts": ["Ada Lovelace lived in London."]},
}
RESPONSE_EXAMPLES: dict[str, dict[str, Any]] = {
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
    "/predict/{task}": {"task": "ner", "predictions": [["B-PER", "I-PER", "O", "O", "B-LOC", "O"]]},
    "/info": {
        "version": "0.2.0", "model": "english", "source": "the package",
        "fingerprint": "6bfb0b3c", "layers": 3, "dim": 448, "parameters": 27000000,
        "tokenizer": "moses", "precision": "float32", "softmax_words": 50000, "tasks": ["ner"],
        "index": "sentences",
    },
}  # fmt: skip
