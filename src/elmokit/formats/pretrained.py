"""A pretrained model together with its vocabulary, tokenizer and card."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from elmokit.character_ids import (
    CharacterIndexer,
    LexiconIndexer,
    Lexicons,
    TokenIndexer,
    WordIndexer,
)
from elmokit.errors import FormatError
from elmokit.model.bilm import LanguageModel
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model_config import BiLMConfig
from elmokit.tokenizers import check_tokenizer
from elmokit.vocab import Vocabulary

# The published English models were trained on text that Moses had tokenized.
DEFAULT_TOKENIZER = "moses"

# Names in files and in fingerprints date from version 0.1; these tables translate them.
_STORED_BILM_FIELDS = {
    "projection_size": "dim",
    "cell_size": "cell_dim",
    "num_layers": "layers",
    "characters": "characters",
    "vocabulary_size": "table_words",
    "directions": "directions",
    "skip_connections": "skip",
    "cell_clip": "cell_clip",
    "projection_clip": "output_clip",
    "forget_bias": "forget_bias",
}
_STORED_CHARACTER_FIELDS = {
    "max_characters": "width",
    "num_characters": "alphabet_size",
    "embedding_size": "character_dim",
    "filters": "filters",
    "activation": "activation",
    "highway_layers": "highways",
}


@dataclass(frozen=True)
class StoredMix:
    """A mix of layers as stored in files: its weights before the softmax, and its scale."""

    weights: tuple[float, ...]
    scale: float

    @classmethod
    def of(cls, mix: ScalarMix) -> "StoredMix":
        return cls(tuple(mix.weights.tolist()), mix.scale.item())

    def mix(self, *, trainable: bool = False) -> ScalarMix:
        return ScalarMix(
            len(self.weights), weights=self.weights, scale=self.scale, trainable=trainable
        )


@dataclass(frozen=True)
class Pretrained:
    """A model, the vocabulary of its softmax or word embedding, its tokenizer and model card.

    `mix` is the one that a TF-Hub module came with: `model.embed(sentences, layers=mix)`.
    `lexicons` are those of a model of ELMoForManyLangs.

    Example:
        model.pretrained.tokenizer  # "moses"
        model.pretrained.fingerprint()
    """

    model: LanguageModel
    vocabulary: Vocabulary | None = None
    tokenizer: str = DEFAULT_TOKENIZER
    card: str = ""
    mix: ScalarMix | None = None
    lexicons: Lexicons | None = None

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenizer)
        self._check_lexicons()
        layers = self.model.bilm.config.num_layers + 1
        if self.mix is not None and len(self.mix.weights) != layers:
            raise FormatError(
                f"the mix has {len(self.mix.weights)} weights, but the model {layers} layers; "
                "expected one weight for each layer"
            )
        embedding_words, softmax = self.model.bilm.config.vocabulary_size, self.model.softmax
        if embedding_words is not None and self.vocabulary is None:
            raise FormatError(
                "a word-level model needs its vocabulary: put vocab.txt beside the weights"
            )
        softmax_words = None if softmax is None else softmax.num_words
        for part, rows in (("word embedding", embedding_words), ("softmax", softmax_words)):
            if self.vocabulary is not None and rows not in (None, len(self.vocabulary)):
                raise FormatError(
                    f"the vocabulary has {len(self.vocabulary)} words, but the {part} {rows} rows; "
                    "is it the vocabulary of this model?"
                )

    def _check_lexicons(self) -> None:
        config = self.model.bilm.config.lexicons
        num_characters, num_words = (
            (0, 0) if config is None else (config.num_characters, config.num_words)
        )
        lexicons = self.lexicons or Lexicons(None, None)
        for name, lexicon, rows in (
            ("characters", lexicons.characters, num_characters),
            ("words", lexicons.words, num_words),
        ):
            entries = 0 if lexicon is None else len(lexicon)
            if entries != rows:
                raise FormatError(
                    f"the lexicon of {name} has {entries} entries, but their embedding {rows} "
                    "rows; is it the lexicon of this model?"
                )

    @property
    def indexer(self) -> TokenIndexer:
        """Turns words into this model's ids."""
        config = self.model.bilm.config
        if config.characters is not None:
            return CharacterIndexer(config.characters.max_characters)
        if config.lexicons is not None:
            assert self.lexicons is not None  # checked above
            return LexiconIndexer(self.lexicons, config.lexicons.max_characters)
        assert self.vocabulary is not None  # checked above
        return WordIndexer(self.vocabulary)

    def fingerprint(self) -> str:
        """A hash of the biLM's configuration and weights; it is the same in every format."""
        bilm = self.model.bilm
        digest = hashlib.sha256(repr(stored_config(bilm.config)).encode())
        if bilm.config.vocabulary_size is not None and self.vocabulary is not None:
            digest.update("\n".join(self.vocabulary).encode())
        if self.lexicons is not None:
            for lexicon in (self.lexicons.characters, self.lexicons.words):
                digest.update("\n".join(lexicon or ()).encode())
        weights = {stored_name(name): tensor for name, tensor in bilm.state_dict().items()}
        for name, tensor in sorted(weights.items()):
            digest.update(name.encode())
            digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().data)
        return digest.hexdigest()


def check_finite(parameters: Iterable[tuple[str, torch.Tensor]], name: str) -> None:
    """Raise FormatError, which calls the file `name`, for the first NaN or infinity."""
    for parameter, tensor in parameters:
        # One pass, at the speed of memory; a sum of finite numbers may overflow.
        if tensor.detach().sum().isfinite() or (finite := tensor.detach().isfinite()).all():
            continue
        place = (~finite).nonzero()[0].tolist()
        raise FormatError(
            f"{name}: {parameter}{place} is {tensor[tuple(place)].item()}, expected finite "
            "numbers; is the file damaged, or did its training diverge? elmokit.load(..., "
            "allow_nonfinite=True) and `elmo embed --allow-nonfinite` load it all the same"
        )


def stored_config(config: BiLMConfig) -> dict[str, Any]:
    """A biLM's configuration as stored in files."""
    values = asdict(config)
    stored = {name: values[field] for field, name in _STORED_BILM_FIELDS.items()}
    if stored["characters"] is not None:
        stored["characters"] = {
            name: stored["characters"][field] for field, name in _STORED_CHARACTER_FIELDS.items()
        }
    if config.lexicons is not None:  # no model of 0.1 had any
        stored["lexicons"] = values["lexicons"]
    if config.aligned_layers:  # nor these
        stored["aligned_layers"] = config.aligned_layers
    if config.peepholes:
        stored["peepholes"] = True
    return stored


def config_fields(stored: Any) -> Any:
    """The inverse of `stored_config`, with the names of BiLMConfig's fields; unknown names stay."""
    if not isinstance(stored, dict):
        return stored
    bilm = {name: field for field, name in _STORED_BILM_FIELDS.items()}
    character = {name: field for field, name in _STORED_CHARACTER_FIELDS.items()}
    fields = {bilm.get(name, name): value for name, value in stored.items()}
    if isinstance(fields.get("characters"), dict):
        fields["characters"] = {
            character.get(name, name): value for name, value in fields["characters"].items()
        }
    return fields


def stored_name(parameter: str) -> str:
    """The name of a parameter in files."""
    name = re.sub(r"(^|\.)lstms\.", r"\1readers.", parameter)
    return re.sub(r"(highways\.\d+)\.transform\.", r"\1.rework.", name)


def parameter_name(stored: str) -> str:
    """The parameter that files store under this name."""
    name = re.sub(r"(^|\.)readers\.", r"\1lstms.", stored)
    return re.sub(r"(highways\.\d+)\.rework\.", r"\1.transform.", name)
