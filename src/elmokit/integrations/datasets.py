"""ELMo's text vectors as a column of a Hugging Face dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmokit.embedder import LoadOptions, Text
from elmokit.errors import InputError
from elmokit.inference_session import Layers
from elmokit.integrations.opened_models import OpenedModel, open_once
from elmokit.model.packed_linear import Precision
from elmokit.model.scalar_mix import ScalarMix
from elmokit.pooling import Vectors
from elmokit.whitening import Whitening


@dataclass(frozen=True)
class TextEncoder:
    """Adds a column with the vectors of the texts in another, for `Dataset.map`.

    It holds its settings and the model's fingerprint. So `map` finds its results again in its
    cache as long as they are the same, and each of its processes loads the model once, to compute
    in one thread. `layers`, `pooling`, `whitening` and `normalize_embeddings` are those of
    `Embedder.encode`; `model`, `precision` and `offline` those of `LoadOptions`.

        dataset = dataset.map(TextEncoder("text"), batched=True, num_proc=2)
        dataset["elmo"]  # one vector for each text
    """

    column: str = "text"
    to: str = "elmo"
    model: str | Path | None = None
    layers: Layers | None = None
    pooling: str | None = None
    whitening: Whitening | None = None
    normalize_embeddings: bool = False
    precision: Precision = "float32"
    offline: bool = False
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.layers, ScalarMix):
            raise InputError(
                "layers is a ScalarMix, expected a name, a number or a list of numbers, by which "
                "datasets can find its cached results again"
            )
        opened = self._open()
        name = opened.pooling(self.layers, self.pooling).name
        object.__setattr__(self, "fingerprint", opened.fingerprint_with(name))

    def __call__(self, batch: Mapping[str, Sequence[Text]]) -> dict[str, Vectors]:
        """The new column of a batch."""
        # Without `batched`, `map` passes a LazyRow, whose list of words would look like texts.
        if type(batch).__name__ == "LazyRow" or isinstance(batch.get(self.column), str):
            raise InputError("TextEncoder was given one row; call map(encoder, batched=True)")
        if self.column not in batch:
            raise InputError(
                f"there is no column {self.column!r}, expected one of {', '.join(batch)}; name it "
                "in TextEncoder(column)"
            )
        opened = self._open()
        name = opened.pooling(self.layers, self.pooling).name
        opened.check_fingerprint(self.fingerprint, "this TextEncoder", pooling=name)
        return {
            self.to: opened.embedder.encode(
                batch[self.column],
                layers=self.layers,
                pooling=self.pooling,
                whitening=self.whitening,
                normalize_embeddings=self.normalize_embeddings,
                show_progress_bar=False,
            )
        }

    def _open(self) -> OpenedModel:
        return open_once(LoadOptions(self.model, precision=self.precision, offline=self.offline))
