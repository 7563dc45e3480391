"""A pretrained model together with its vocabulary, tokenizer and card."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from elmokit.character_ids import (
    CharacterIndexer,
    LexiconIndexer,
    Lexicons,
    TokenIndexer,
    WordIndexer,
)
from elmokit.errors import FormatError, InputError
from elmokit.model.bilm import LanguageModel
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model.sentence_head import SentenceHead
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
class FittedHead:
    """A sentence head, and the fingerprint of the model that it was fitted to."""

    module: SentenceHead
    model: str
    _fitting_versions: list[object] = field(default_factory=list, repr=False, compare=False)

    def fits(self, pretrained: "Pretrained") -> bool:
        """Whether the model's weights are those that it was fitted to."""
        version = pretrained.model.bilm.version()
        if version not in self._fitting_versions and self.model == pretrained.fingerprint():
            self._fitting_versions[:] = [version]  # hashing all weights takes a moment
        return version in self._fitting_versions

    def fingerprint(self) -> str:
        """A hash of its configuration and weights."""
        digest = hashlib.sha256(repr(asdict(self.module.config)).encode())
        for name, tensor in sorted(self.module.state_dict().items()):
            digest.update(name.encode())
            digest.update(_float_bytes(tensor))
        return digest.hexdigest()


@dataclass(frozen=True)
class Pretrained:
    """A model, the vocabulary of its softmax or word embedding, its tokenizer and model card.

    `mix` is the one that a TF-Hub module came with: `model.embed(sentences, layers=mix)`.
    `lexicons` are those of a model of ELMoForManyLangs. `heads` are the sentence heads by their
    names in `elmokit.pooling.HEADS`.

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
    heads: Mapping[str, FittedHead] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenizer)
        self._check_lexicons()
        self._check_heads()
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

    def _check_heads(self) -> None:
        bilm = self.model.bilm.config
        for name, head in self.heads.items():
            config, layers = head.module.config, head.module.config.context_layers
            if self.vocabulary is None:
                raise FormatError(
                    f"the head {name!r} needs the model's vocabulary, which is missing"
                )
            known = len(self.vocabulary.lower_case_ids)
            for part, found, most in (
                ("context-free vectors", config.context_free_size, bilm.projection_size),
                ("vectors of context layers", config.context_size, len(layers) * bilm.output_size),
            ):
                if found != most:
                    raise FormatError(
                        f"the head {name!r} reads {part} of {found} dimensions, but the model's "
                        f"have {most}; is it the head of this model?"
                    )
            if not {*layers} <= {*range(bilm.num_layers + 1)} or config.table_words > known:
                raise FormatError(
                    f"the head {name!r} reads the layers {layers} and a table of "
                    f"{config.table_words:,} words, but the model has the layers 0 to "
                    f"{bilm.num_layers} and {known:,} words; is it the head of this model?"
                )

    def head(self, name: str) -> SentenceHead:
        """The sentence head of that name; InputError if there is none that fits the weights."""
        if name not in self.heads:
            raise InputError(
                f"pooling {name!r} needs a head that was fitted to the model, and this model comes "
                f"with {', '.join(self.heads) or 'none'}; choose another pooling"
            )
        head = self.heads[name]
        if not head.fits(self):
            raise InputError(
                f"pooling {name!r} was fitted to a model with the fingerprint {head.model[:12]}, "
                f"and this one has {self.fingerprint()[:12]}; fit it anew, or choose another "
                "pooling"
            )
        return head.module

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

    def fingerprint(self, pooling: str | None = None, *, half: bool = False) -> str:
        """A hash of the biLM's configuration and weights; it is the same in every format.

        With a `pooling` that is a head's, the head counts, too. With `half`, it is that of the
        model with its weights rounded to float16.
        """
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
            digest.update(_float_bytes(tensor.half() if half else tensor))
        if pooling is not None and pooling in self.heads:
            digest.update(self.heads[pooling].fingerprint().encode())
        return digest.hexdigest()


def _float_bytes(tensor: torch.Tensor) -> memoryview:
    return tensor.detach().to("cpu", torch.float32).contiguous().numpy().data


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
