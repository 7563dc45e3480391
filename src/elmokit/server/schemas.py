"""Bodies of requests and responses, as they are checked and as the OpenAPI schema shows them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

import elmokit
from elmokit.pooling import HEADS, POOLINGS
from elmokit.search import MODES, Mode

if TYPE_CHECKING:
    from elmokit.embedder import Embedder
    from elmokit.search.index import Index

# Media types.
JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/x-npz"

Text = str | list[str]
Texts = Annotated[list[Text], Field(description="Raw texts, or lists of words.")]
Number = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=1, le=1000, description="How many words.")]
Layers = Annotated[
    Literal["all", "top", "mean", "sum", "concat"]
    | Number
    | Annotated[list[Number], Field(min_length=1)],
    Field(description="Which layers; 'mean', 'sum' and 'concat' combine all of them into one."),
]


def _switch(description: str) -> Any:
    return Field(False, strict=True, description=description)


def _list_poolings(schema: dict[str, Any]) -> None:
    """Those that are registered when the schema is made."""
    choices = (f"`{name}`: {pooling.description}" for name, pooling in POOLINGS.items())
    schema["enum"] = [*POOLINGS, None]
    schema["description"] = (
        f"How the words of a text become one vector. {'; '.join(choices)}. Without `pooling` and "
        "`layers`, it is the first of these heads that comes with the model: "
        f"{', '.join(HEADS)}; otherwise the mean."
    )


class Record(BaseModel):
    """A response, or a part of one."""

    model_config = ConfigDict(frozen=True)


class Request(Record):
    """The body of a request; a misspelled field is an error."""

    model_config = ConfigDict(extra="forbid")


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


class EmbedRequest(Request):
    """Texts to embed word by word."""

    model_config = _example(
        texts=[["I", "ate", "an", "apple"], "Raw text. Two sentences."], layers="top"
    )
    texts: Texts
    layers: Layers = "all"
    directions: Literal["both", "forward", "backward"] = "both"


class EncodeRequest(Request):
    """Texts to encode as one vector each."""

    model_config = _example(texts=["I ate an apple. It was good."])
    texts: Texts
    layers: Layers | None = None
    pooling: str | None = Field(None, json_schema_extra=_list_poolings)
    normalize_embeddings: bool = _switch("Scale each vector to length 1.")


class ScoreRequest(Request):
    """Texts to score word by word."""

    model_config = _example(texts=["The cat sat on the mat."])
    texts: Texts


class NextRequest(Request):
    """A text whose next or previous words are predicted."""

    model_config = _example(text="The cat sat on the", k=5)
    text: Text
    k: Count = 10
    previous: bool = _switch("Words before the text instead of after it.")
    special_tokens: bool = _switch("Include <UNK> and the begin or end of sentence.")


class FillRequest(Request):
    """A text with gaps, each written as ___."""

    model_config = _example(text="The ___ sat on the mat.", k=5)
    text: Text
    k: Count = 10


class ContextsRequest(Request):
    """A word, and texts in which it occurs."""

    model_config = _example(word="bank", texts=["A bank lent money.", "The bank of a river."])
    word: str = Field(description="Words that begin with it count too: bank, banks, banking.")
    texts: Texts
    labels: list[str] | None = Field(
        None,
        description="One per text: occurrences are grouped by label instead of by cluster.",
    )


class SimilarityRequest(Request):
    """Two texts whose words are compared with each other."""

    model_config = _example(first="A bank lent money.", second="The bank of a river.")
    first: Text
    second: Text


class SearchRequest(Request):
    """A text to search for; or a word of it, to find similar occurrences of that word."""

    model_config = _example(query="a painter of landscapes", k=5, mode="hybrid")
    query: str
    k: int = Field(10, strict=True, ge=1, le=100, description="How many passages.")
    mode: Mode | None = Field(
        None,
        description=f"{'; '.join(f'`{name}`: {about}' for name, about in MODES.items())}. By "
        "default hybrid, unless the index has no lexical part.",
    )
    files: list[str] = Field(
        [], max_length=100, description="Names or globs of the files to search; empty for all."
    )
    word: str | None = Field(
        None,
        description="A word of the query: find occurrences similar to it, in an index of words.",
    )
    any_word: bool = _switch("With `word`: find occurrences of other words too.")


class PredictRequest(Request):
    """Texts for a trained head, written as its task's input."""

    model_config = _example(texts=["Ada Lovelace lived in London."])
    texts: list[str]


class EmbeddedSentence(Record):
    """A sentence with the vectors of its words, and the index of its text in the request."""

    text_index: int
    words: list[str]
    vectors: list[list[list[float]]]  # (layers, words, dim)


class EmbedResponse(Record):
    """The sentences of all texts, in order; and the layers that were chosen or combined."""

    model_config = _example(
        layers=[2], sentences=[{"text_index": 0, "words": ["apple"], "vectors": [[[0.25, -0.5]]]}]
    )
    layers: list[int]
    sentences: list[EmbeddedSentence]


class EncodeResponse(Record):
    """One vector per text; one per text and layer where several layers were requested."""

    model_config = _example(vectors=[[0.25, -0.5]])
    vectors: list[list[float]] | list[list[list[float]]]  # (texts, dim) or (texts, layers, dim)


class ScoredSentence(Record):
    """A sentence with the log-probability of each word, and of the end of the sentence."""

    text_index: int
    words: list[str]
    unknown: int
    perplexity: float | None
    forward: list[float] | None
    backward: list[float] | None


class TextPerplexity(Record):
    """The perplexity of all texts; null for a direction the model lacks, or if infinite."""

    forward: float | None
    backward: float | None
    average: float | None
    geometric_mean: float | None
    words: int
    unknown: int
    predictions: int


class ScoreResponse(Record):
    """The sentences of all texts, in order; the perplexity is null if there are none."""

    model_config = _example(
        perplexity={
            "forward": 20.5, "backward": 19.5, "average": 20.0, "geometric_mean": 19.99, "words": 1,
            "unknown": 0, "predictions": 2,
        },
        sentences=[
            {
                "text_index": 0, "words": ["cat"], "unknown": 0, "perplexity": 19.99,
                "forward": [-4.0, -2.0], "backward": [-3.5, -2.5],
            }
        ],
    )  # fmt: skip
    perplexity: TextPerplexity | None
    sentences: list[ScoredSentence]


class PredictedWord(Record):
    """A word and its probability."""

    word: str
    probability: float


class NextResponse(Record):
    """The most probable words, the most probable first."""

    model_config = _example(predictions=[{"word": "mat", "probability": 0.25}])
    predictions: list[PredictedWord]


class FillResponse(Record):
    """For each gap the words that fit best, the best first."""

    model_config = _example(gaps=[[{"word": "cat", "probability": 0.5}]])
    gaps: list[list[PredictedWord]]


class WordInContext(Record):
    """A sentence, the position of the word in it, and the index of its group."""

    words: list[str]
    position: int
    group: int


class PlaneOfContexts(Record):
    """Each occurrence as a point of a layer's first two principal components."""

    points: list[tuple[float, float]]
    explained_variance: tuple[float, float]


class ContextsResponse(Record):
    """The occurrences of a word, the names of their groups, and one plane per layer."""

    model_config = _example(
        contexts=[
            {"words": ["A", "bank"], "position": 1, "group": 0},
            {"words": ["River", "banks"], "position": 1, "group": 1},
        ],
        groups=["cluster 1", "cluster 2"],
        layers=[{"points": [[-0.5, 0.0], [0.5, 0.0]], "explained_variance": [1.0, 0.0]}],
    )
    contexts: list[WordInContext]
    groups: list[str]
    layers: list[PlaneOfContexts]


class SimilarityResponse(Record):
    """The words of two texts, and the cosine of each pair in each layer."""

    model_config = _example(
        first=["money"], second=["river", "bank"], layers=[[[0.25, 0.5]], [[0.125, 0.5]]]
    )
    first: list[str]
    second: list[str]
    layers: list[list[list[float]]]  # (layers, words of the first, words of the second)


class LearnedLayerWeights(Record):
    """The weight of each layer in a trained task's scalar mix; they add up to 1.

    `position` is where the vectors enter the task's model: "input" or "output".
    """

    task: str
    name: str
    position: str
    layers: list[int]
    weights: list[float]


class LayerWeightsResponse(Record):
    """The layer weights of all trained tasks that the service was given."""

    model_config = _example(
        layer_weights=[
            {
                "task": "ner", "name": "my_ner", "position": "input", "layers": [0, 1, 2],
                "weights": [0.25, 0.5, 0.25],
            }
        ]
    )  # fmt: skip
    layer_weights: list[LearnedLayerWeights]


class SearchResult(Record):
    """A passage, the positions of its highlighted words, and its position in its file.

    The score is what the mode ranks by, the other numbers are its parts (null where it has no use
    for them). Of the highlighted words, those at `near` are near a word of the query in meaning,
    and the others are words of the query. In an index of words a result is the sentence of an
    occurrence, with that word highlighted.
    """

    id: int
    score: float
    cosine: float | None
    bm25: float | None
    word_match: float | None
    text: str
    words: list[str]
    highlighted: list[int]
    near: list[int]
    file: str
    line: int  # from 1
    start: int  # of its first character in the line, from 0
    end: int  # of the character after its last


class SearchResponse(Record):
    """The passages, the best first, and the mode they were searched in."""

    model_config = _example(
        mode="hybrid",
        results=[
            {
                "id": 7, "score": 0.5, "cosine": 0.25, "bm25": 0.5, "word_match": 0.5,
                "text": "She paints.", "words": ["She", "paints", "."], "highlighted": [1],
                "near": [], "file": "text.txt", "line": 3, "start": 0, "end": 11,
            }
        ],
    )  # fmt: skip
    mode: Mode
    results: list[SearchResult]


class TextPrediction(Record):
    """The words of a text, and what a trained head predicts of them, in its task's form."""

    sentences: list[list[str]]
    prediction: Any


class PredictResponse(Record):
    """The predictions of a trained head, one per text."""

    model_config = _example(
        task="ner",
        predictions=[{"sentences": [["Ada", "slept"]], "prediction": ["B-PER", "O"]}],
    )
    task: str
    predictions: list[TextPrediction]


class InfoResponse(Record):
    """The model and what else the service has."""

    model_config = _example(
        version="0.2.0", model="english", source="the package", fingerprint="6bfb0b3c", layers=3,
        dim=448, parameters=27000000, tokenizer="moses", precision="float32", kernel="numba",
        softmax_words=50000, tasks=["ner"], index="sentences",
        search_modes=["hybrid", "semantic", "lexical"],
    )  # fmt: skip
    version: str
    model: str
    source: str
    fingerprint: str
    layers: int  # the context-free one included
    dim: int
    parameters: int
    tokenizer: str
    precision: str
    kernel: str  # what runs the LSTMs: numba, compiled layers, or torch
    softmax_words: int | None  # null for a model without a softmax
    tasks: list[str]  # names for /predict/{task}
    index: str | None  # the unit of the search index: paragraphs, sentences or words
    search_modes: list[Mode]  # those that the index has, by default first

    @classmethod
    def of(cls, embedder: "Embedder", tasks: list[str], index: "Index | None") -> "InfoResponse":
        """What there is to say of a model and of what is served with it."""
        pretrained, source = embedder.pretrained, embedder.source
        softmax = pretrained.model.softmax
        return cls(
            version=elmokit.__version__,
            model="english" if source is None else Path(source).name,
            source="the package" if source is None else str(source),
            fingerprint=pretrained.fingerprint(),
            layers=embedder.num_layers,
            dim=embedder.dim,
            parameters=sum(parameter.numel() for parameter in pretrained.model.parameters()),
            tokenizer=pretrained.tokenizer,
            precision=embedder.precision,
            kernel=embedder.kernel,
            softmax_words=None if softmax is None else softmax.num_words,
            tasks=tasks,
            index=None if index is None else index.config.unit,
            search_modes=[] if index is None else [*index.modes],
        )


class ErrorResponse(Record):
    """What is wrong, in one sentence."""

    error: str
