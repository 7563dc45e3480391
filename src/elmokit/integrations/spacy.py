"""ELMo in spaCy: the component `elmo`, and the architecture `elmokit.Tok2Vec.v1` to train with.

Both are entry points in pyproject.toml, so that spaCy finds them without an import.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.embedder import LoadOptions
from elmokit.errors import ConfigError, FormatError, InputError
from elmokit.inference_session import Layers, LayerSelection
from elmokit.integrations.opened_models import OpenedModel, Words, in_worker_process, open_once
from elmokit.model.packed_linear import Precision
from elmokit.model.scalar_mix import ScalarMix
from elmokit.pooling import Vectors, unit_vectors
from elmokit.tokenizers import respell

try:
    from spacy.language import Language
    from spacy.lexeme import Lexeme
    from spacy.tokens import Doc, Span, Token
    from spacy.util import minibatch
    from thinc.api import Dropout, Maxout, Model, Shim, chain, with_array
except ModuleNotFoundError:
    raise InputError("ELMo in spaCy needs spaCy: pip install 'elmokit[spacy]'") from None

_MODEL_FILE = "model.json"


def make_elmo(
    nlp: Language,
    name: str,
    model: str | None = None,
    layers: str | int | list[int] = "mean",
    keep_layers: bool = False,
    precision: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    offline: bool = False,
) -> "ElmoComponent":
    """The component `elmo`: `nlp.add_pipe("elmo", config={"layers": "top"})`.

    `model` names what `elmokit.load` loads, and `layers` are those of `embed`; several stand side
    by side. With `keep_layers`, `doc._.elmo` holds all layers, (layers, tokens, dim). `precision`,
    `device`, `threads` and `offline` are those of `LoadOptions`.
    """
    options = _load_options(model, precision, device, threads, offline)
    if keep_layers and not Doc.has_extension("elmo"):
        Doc.set_extension("elmo", default=None)
    return ElmoComponent(name, options, layers=layers, keep_layers=keep_layers)  # type: ignore[arg-type]


Language.factory(
    "elmo",
    func=make_elmo,
    assigns=["doc.tensor"],
    default_config={
        "model": None,
        "layers": "mean",
        "keep_layers": False,
        "precision": "float32",
        "device": "cpu",
        "threads": None,
        "offline": False,
    },
)


class ElmoComponent:
    """Sets `doc.tensor`, (tokens, dim), and lets tokens, spans and docs be compared by it.

    A doc with sentence boundaries is read sentence by sentence, any other as one sentence. White
    space gets zeros. What was saved with one model refuses another.
    """

    def __init__(
        self, name: str, options: LoadOptions, *, layers: Layers, keep_layers: bool
    ) -> None:
        self.name = name
        self.options = options
        self.layers = layers
        self.keep_layers = keep_layers
        open_once(options).dim(layers)  # a wrong model or wrong layers are found now

    def __call__(self, doc: Doc) -> Doc:
        self._set_tensors([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """The docs, with their tensors; `batch_size` of them are read together."""
        for docs in minibatch(stream, size=batch_size):
            self._set_tensors(docs)
            yield from docs

    def to_bytes(self, *, exclude: Sequence[str] = ()) -> bytes:
        """The fingerprint of the model, as JSON."""
        return _fingerprint_record(self.options)

    def from_bytes(self, data: bytes, *, exclude: Sequence[str] = ()) -> "ElmoComponent":
        """InputError unless the component was saved with the same model."""
        _check_record(data, self.options, f"the component {self.name!r}")
        return self

    def to_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> None:
        """Write the fingerprint of the model to a file in a new folder."""
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / _MODEL_FILE).write_bytes(self.to_bytes())

    def from_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> "ElmoComponent":
        """InputError unless the component was saved with the same model."""
        return self.from_bytes((Path(path) / _MODEL_FILE).read_bytes())

    def _set_tensors(self, docs: Sequence[Doc]) -> None:
        opened = open_once(self.options)
        selection = LayerSelection.of(opened.embedder.bilm.config, self.layers)
        arrays = embed_docs(docs, opened, layers="all" if self.keep_layers else self.layers)
        for doc, array in zip(docs, arrays, strict=True):
            chosen = array
            if self.keep_layers:
                doc._.elmo = array
                chosen = selection.combine(array[[*selection.layers]])
            doc.tensor = np.concatenate([*chosen], 1)  # (layers, tokens, dim) -> (tokens, …)
            if not in_worker_process():  # from where hooks cannot be sent
                add_hooks(doc)


def embed_docs(
    docs: Sequence[Doc], opened: OpenedModel, *, layers: Layers = "all", cache_bytes: int = 0
) -> Iterator[Vectors]:  # of (layers, tokens, dim)
    """The layers of each doc's tokens, 0 for white space."""
    config, tokenizer = opened.embedder.bilm.config, opened.embedder.pretrained.tokenizer
    selection = LayerSelection.of(config, layers)
    sentences = [_sentences(doc, tokenizer) for doc in docs]
    stream = opened.embed(
        (words for parts in sentences for _, words in parts),
        layers=layers,
        cache_bytes=cache_bytes,
    )
    for doc, parts in zip(docs, sentences, strict=True):
        array = np.zeros((selection.num_layers, len(doc), selection.dim(config)), np.float32)
        for rows, _ in parts:
            array[:, rows] = next(stream)
        yield array
    next(stream, None)  # to its end, where truncated words are reported


def _sentences(doc: Doc, tokenizer: str) -> list[tuple[list[int], Words]]:
    """For each sentence, where its words stand in the doc, and their spelling for the model."""
    spans = doc.sents if doc.has_annotation("SENT_START") else [doc[:]]
    sentences = ([token for token in span if not token.is_space] for span in spans)
    return [
        ([token.i for token in tokens], respell(tuple(token.text for token in tokens), tokenizer))
        for tokens in sentences
        if tokens
    ]


def add_hooks(doc: Doc) -> Doc:
    """Let the doc, its tokens and its spans be compared by their vectors in `doc.tensor`.

    The component `elmo` does so. spaCy cannot send hooks between processes or save them: add them
    again to docs that come from `nlp.pipe(..., n_process=2)` or from a file.
    """
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks.update(_HOOKS)
    return doc


def _vector(part: Doc | Span | Token) -> Vectors:  # -> (dim,)
    """The vector of a token; the mean of those of a span or a doc."""
    tensor: Vectors = part.tensor if isinstance(part, Doc) else part.doc.tensor
    if isinstance(part, Token):
        vector: Vectors = tensor[part.i]
        return vector
    rows = tensor[part.start : part.end] if isinstance(part, Span) else tensor
    mean: Vectors = rows.mean(0) if len(rows) else np.zeros(tensor.shape[1], np.float32)
    return mean


def _has_vector(part: Doc | Span | Token) -> bool:
    return bool(_vector(part).any())


def _similarity(part: Doc | Span | Token, other: Doc | Span | Token | Lexeme) -> float:
    """The cosine of two vectors, also where both are spelled the same; 0 without a vector."""
    if isinstance(other, Lexeme):
        raise InputError(
            f"{other.text!r} is a lexeme, which stands in no sentence and has no vector of ELMo; "
            "compare tokens, spans or docs"
        )
    own, others = _vector(part), other.vector
    if own.shape != others.shape:
        raise InputError(
            f"vectors of {own.size} and of {others.size} dimensions cannot be compared; read both "
            "texts with the same pipeline"
        )
    one, two = unit_vectors(np.stack([own, others]))
    return float(one @ two)


# Norms are computed from the vectors: a hook "vector_norm" of spans gives vectors (spaCy 3.8).
_HOOKS: dict[str, Callable[..., Any]] = {
    "vector": _vector,
    "has_vector": _has_vector,
    "similarity": _similarity,
}


def make_tok2vec(
    model: str | None = None,
    width: int | None = None,
    precision: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    offline: bool = False,
    cache_bytes: int = 2**30,
) -> Model:
    """The architecture `elmokit.Tok2Vec.v1`: docs to the vectors of their tokens, (tokens, dim).

    A trainable mix of the layers of a frozen biLM, with spaCy's dropout. Where `width` is not the
    size of the model's vectors, a trained maxout layer makes vectors of that size. In training,
    the layers of sentences stay in memory, up to `cache_bytes`, so that the biLM reads each once.
    """
    frozen = _FrozenBiLM(
        _load_options(model, precision, device, threads, offline), cache_bytes=cache_bytes
    )
    dim = open_once(frozen.options).embedder.dim
    if width is not None and width < 1:
        raise ConfigError(f"elmokit.Tok2Vec.v1: width is {width}, expected 1 or more, or null")
    mix = Model(
        _NODE,
        _forward,
        init=_initialize,
        params={"weights": None, "scale": None},
        dims={"nO": dim},
        shims=[frozen],
    )
    layers = [mix, Dropout()]
    if width not in (None, dim):
        layers.append(with_array(Maxout(width, dim, nP=3, normalize=True)))
    tok2vec = chain(*layers)
    tok2vec.set_dim("nO", width or dim)
    return tok2vec


def scalar_mix(nlp: Language, component: str = "tok2vec") -> ScalarMix:
    """The mix that a pipeline has learnt: `model.embed(sentences, layers=scalar_mix(nlp))`."""
    for node in nlp.get_pipe(component).model.walk():
        if node.name == _NODE:
            weights, scale = node.get_param("weights"), node.get_param("scale")
            return ScalarMix(
                len(weights), weights=weights.tolist(), scale=float(scale[0]), trainable=False
            )
    raise InputError(f"the component {component!r} has no elmokit.Tok2Vec.v1")


_NODE = "elmo_mix"


class _FrozenBiLM(Shim):  # type: ignore[misc]
    """What thinc is to know of a biLM: how to save it, which is by its fingerprint."""

    def __init__(self, options: LoadOptions, *, cache_bytes: int) -> None:
        super().__init__(None)
        self.options = options
        self.cache_bytes = cache_bytes
        self.is_trained_with = False  # before, nothing needs to be kept in memory

    def layers(self, docs: Sequence[Doc], *, is_train: bool) -> Iterator[Vectors]:
        """All layers of each doc."""
        self.is_trained_with |= is_train
        cache_bytes = self.cache_bytes if self.is_trained_with else 0
        return embed_docs(docs, open_once(self.options), cache_bytes=cache_bytes)

    def finish_update(self, optimizer: Any) -> None:
        """A frozen model has nothing to update."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """The biLM stays on its own device."""

    def to_bytes(self) -> bytes:
        return _fingerprint_record(self.options)

    def from_bytes(self, data: bytes) -> "_FrozenBiLM":
        _check_record(data, self.options, "this pipeline")
        return self


def _initialize(model: Model, X: object = None, Y: object = None) -> None:  # noqa: N803
    """An even mix; the scale has one dimension, as thinc's optimizers expect."""
    num_layers = open_once(model.shims[0].options).embedder.num_layers
    model.set_param("weights", model.ops.alloc1f(num_layers))
    model.set_param("scale", model.ops.alloc1f(1) + 1)


def _forward(
    model: Model, docs: Sequence[Doc], is_train: bool
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The mix of each doc's layers, and the function that takes the gradient of it."""
    weights, scale = model.get_param("weights"), model.get_param("scale")
    shares = model.ops.xp.exp(weights - weights.max())
    shares /= shares.sum()
    all_layers, mixed = [], []
    for array in model.shims[0].layers(docs, is_train=is_train):
        layers = model.ops.asarray(array)
        mixed.append(scale * model.ops.xp.tensordot(shares, layers, 1))  # (tokens, dim)
        if is_train:
            all_layers.append(layers)
    return mixed, partial(_backprop, model, all_layers, shares)


def _backprop(
    model: Model, all_layers: Sequence[Any], shares: Any, gradients: Sequence[Any]
) -> list[Any]:
    """Add the gradient of the mix; the text has none."""
    by_layer = sum(
        (layers * gradient).sum((1, 2))
        for layers, gradient in zip(all_layers, gradients, strict=True)
    )
    mean = shares @ by_layer
    model.inc_grad("scale", mean[None])
    model.inc_grad("weights", model.get_param("scale") * shares * (by_layer - mean))
    return []


def _load_options(
    model: str | None, precision: str, device: str, threads: int | None, offline: bool
) -> LoadOptions:
    """LoadOptions checks that the precision is one."""
    chosen: Precision = precision  # type: ignore[assignment]
    return LoadOptions(model, precision=chosen, device=device, threads=threads, offline=offline)


def _fingerprint_record(options: LoadOptions) -> bytes:
    return json.dumps({"fingerprint": open_once(options).fingerprint}).encode()


def _check_record(record: bytes, options: LoadOptions, name: str) -> None:
    """InputError unless the record is of the same model; FormatError if it is damaged."""
    try:
        expected = json.loads(record)["fingerprint"]
    except (ValueError, KeyError, TypeError):
        raise FormatError(
            f"{name}: the record of its model is {record[:40]!r}, expected a fingerprint as JSON; "
            "was a file cut short?"
        ) from None
    open_once(options).check_fingerprint(expected, name)
