"""ELMo as a step of a scikit-learn pipeline."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from elmokit.embedder import LoadOptions, Text
from elmokit.errors import InputError
from elmokit.inference_session import Layers
from elmokit.integrations.opened_models import OpenedModel, open_once
from elmokit.model.packed_linear import Precision
from elmokit.pooling import Vectors
from elmokit.whitening import Whitening, WhiteningMethod

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError:
    raise InputError("ElmoVectorizer needs scikit-learn: pip install 'elmokit[sklearn]'") from None


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts to their ELMo vectors, (texts, dim): one for each, as `Embedder.encode` gives them.

    X is a list or a column of texts, raw or lists of words. `model` names what `elmokit.load`
    loads; the vectorizer itself stays small, and each process loads the model once. `layers` and
    `pooling` are those of `encode`, where several layers stand side by side. `tokenizer`,
    `precision`, `device`, `threads` and `offline` are those of `LoadOptions`; in a worker of
    joblib, one thread computes unless `threads` says otherwise.

    Without `whitening` there is nothing to fit, and transform works at once. `whitening` names a
    method of `Whitening`, which is fitted to the vectors of X. What was fitted with one model
    refuses another.

    Up to `cache_bytes` in each process and for each model, the vectors of all layers and poolings
    of a text stay in memory, so that a grid search over them runs the model once. 0 keeps none.

    Example:
        classifier = make_pipeline(ElmoVectorizer(layers="concat"), LogisticRegression())
        classifier.fit(["A fine film.", "A dull film."], ["pos", "neg"])
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        layers: Layers | None = None,
        pooling: str | None = "mean",
        whitening: WhiteningMethod | None = None,
        tokenizer: str | None = None,
        precision: Precision = "float32",
        device: str | torch.device = "cpu",
        threads: int | None = None,
        offline: bool = False,
        cache_bytes: int = 2**28,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.whitening = whitening
        self.tokenizer = tokenizer
        self.precision = precision
        self.device = device
        self.threads = threads
        self.offline = offline
        self.cache_bytes = cache_bytes

    def fit(self, X: Iterable[Text], y: object = None) -> "ElmoVectorizer":  # noqa: N803
        """Fit the whitening, if there is one, and remember which model it is."""
        _check_column(X)
        self._fit(None if self.whitening is None else self._encode(X))
        return self

    def fit_transform(self, X: Iterable[Text], y: object = None) -> Vectors:  # noqa: N803
        """What `fit` and then `transform` give; texts are encoded once."""
        vectors = self._encode(X)
        self._fit(vectors)
        return self._whiten(vectors)

    def transform(self, X: Iterable[Text]) -> Vectors:  # noqa: N803
        """The vectors of texts, (texts, dim)."""
        if self.whitening is not None:
            check_is_fitted(self, "whitening_")
        if hasattr(self, "fingerprint_"):
            opened = self._open()
            name = opened.pooling(self.layers, self.pooling).name
            opened.check_fingerprint(self.fingerprint_, "this ElmoVectorizer", pooling=name)
        return self._whiten(self._encode(X))

    def _fit(self, vectors: Vectors | None) -> None:
        opened = self._open()
        name = opened.pooling(self.layers, self.pooling).name
        self.fingerprint_ = opened.fingerprint_with(name)
        if self.whitening is not None:
            assert vectors is not None
            self.whitening_ = Whitening.fit(vectors, method=self.whitening)

    def _encode(self, texts: Iterable[Text]) -> Vectors:
        _check_column(texts)
        return self._open().encode(
            texts, layers=self.layers, pooling=self.pooling, cache_bytes=self.cache_bytes
        )

    def _whiten(self, vectors: Vectors) -> Vectors:
        if self.whitening is None:
            return vectors
        whitened = self.whitening_.transform(vectors)
        whitened[~vectors.any(1)] = 0  # texts without words, as in `Embedder.encode`
        return whitened

    def _open(self) -> OpenedModel:
        return open_once(
            LoadOptions(
                self.model,
                tokenizer=self.tokenizer,
                device=self.device,
                precision=self.precision,
                threads=self.threads,
                offline=self.offline,
            )
        )

    @property
    def _n_features_out(self) -> int:
        """How many names `get_feature_names_out` gives."""
        return self._open().dim(self.layers, self.pooling)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        tags.no_validation = True
        tags.requires_fit = self.whitening is not None
        return tags


def _check_column(texts: object) -> None:
    if isinstance(texts, str):
        raise InputError("X is one string, expected a list of texts: [text]")
    shape = getattr(texts, "shape", ())
    if len(shape) > 1:
        raise InputError(
            f"X is a {type(texts).__name__} of shape {tuple(shape)}, expected one column of texts; "
            "in a ColumnTransformer, name the column 'text', not ['text']"
        )
