"""elmokit's own model folder: config.json, model.safetensors, vocabulary.txt, README.md.

README.md is the model card: Markdown, with metadata for the Hugging Face Hub in front of it, as
YAML. A model of ELMoForManyLangs has its lexicons in characters.txt and words.txt. Each sentence
head has a file NAME.head.safetensors.
"""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save, save_file
from torch import Tensor

from elmokit.atomic import write_atomically
from elmokit.catalogue import PublishedModel, language_names
from elmokit.character_ids import LEXICON_UNKNOWN, Lexicons
from elmokit.errors import FormatError
from elmokit.formats.model_format import register_format
from elmokit.formats.pretrained import (
    FittedHead,
    Pretrained,
    StoredMix,
    check_finite,
    config_fields,
    parameter_name,
    stored_config,
    stored_name,
)
from elmokit.model.bilm import BiLM, LanguageModel, State
from elmokit.model.sentence_head import SentenceHead, SentenceHeadConfig
from elmokit.model.softmax import AdaptiveSoftmax, Softmax
from elmokit.model_config import HEAD_NAMES, BiLMConfig, LexiconConfig, parse_record
from elmokit.tokenizers import check_tokenizer
from elmokit.vocab import read_vocabulary, write_vocabulary

CONFIG, WEIGHTS, VOCABULARY, CARD = (
    "config.json", "model.safetensors", "vocabulary.txt", "README.md"
)  # fmt: skip
_CHARACTERS, _WORDS = "characters.txt", "words.txt"
_HEAD = ".head.safetensors"  # after the name of a sentence head
OPTIONAL_FILES = VOCABULARY, _CHARACTERS, _WORDS, *(f"{name}{_HEAD}" for name in HEAD_NAMES)

logger = logging.getLogger(__name__)

_METADATA = re.compile(r"\s*---[ \t]*\r?\n(.*?\n)??---[ \t]*(\r?\n|$)[\r\n]*", re.DOTALL)

# The identifiers of common licences on the Hub; for any other it has "other" and a name.
_LICENCES = {
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause",
    "bsl-1.0", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0",
    "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0",
    "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "eupl-1.2", "gfdl", "gpl-2.0",
    "gpl-3.0", "isc", "lgpl-2.1", "lgpl-3.0", "mit", "mpl-2.0", "odbl", "ofl-1.1", "unknown",
    "unlicense",
}  # fmt: skip


@dataclass(frozen=True)
class _Description:
    """The contents of config.json."""

    format: Literal["elmokit"]
    version: Literal[1]
    split: str
    softmax_words: int | None
    bilm: BiLMConfig
    softmax_cutoffs: tuple[int, ...] | None = None  # of an adaptive softmax
    mix: StoredMix | None = None

    def __post_init__(self) -> None:
        if self.softmax_words is not None and not 1 <= self.softmax_words <= 2**30:
            raise FormatError(f"softmax_words is {self.softmax_words}, expected 1 to {2**30:,}")
        cutoffs = [0, *(self.softmax_cutoffs or ()), self.softmax_words or 2**30]
        is_rising = all(first < second for first, second in pairwise(cutoffs))
        if self.softmax_cutoffs == () or not is_rising:
            raise FormatError(
                f"softmax_cutoffs is {self.softmax_cutoffs}, expected rising numbers below "
                f"softmax_words ({self.softmax_words})"
            )
        check_tokenizer(self.split)

    def softmax(self) -> Softmax | AdaptiveSoftmax | None:
        """The softmax, not yet filled."""
        if self.softmax_words is None:
            return None
        if self.softmax_cutoffs is None:
            return Softmax(self.softmax_words, self.bilm.projection_size)
        return AdaptiveSoftmax(self.softmax_words, self.bilm.projection_size, self.softmax_cutoffs)


@register_format(
    "elmokit",
    {"configuration": (CONFIG,), "weights": (WEIGHTS,)},
    (*OPTIONAL_FILES, CARD, "*.json"),
)
def read_native(folder: Path, tokenizer: str | None = None) -> Pretrained:
    """The model in a folder that `write_native` wrote."""
    description = _read_description(folder / CONFIG)
    with torch.device("meta"):
        model = LanguageModel(BiLM(description.bilm), description.softmax())
    weights = folder / WEIGHTS
    shapes = {stored_name(name): tensor.shape for name, tensor in model.state_dict().items()}
    tensors = {
        parameter_name(name): tensor.float()
        for name, tensor in read_tensors(weights, shapes).items()
    }
    model.load_state_dict(tensors, assign=True)
    vocabulary, card = folder / VOCABULARY, folder / CARD
    return Pretrained(
        model,
        read_vocabulary(vocabulary) if vocabulary.exists() else None,
        tokenizer or description.split,
        card.read_text(encoding="utf-8", errors="replace") if card.exists() else "",
        None if description.mix is None else description.mix.mix(),
        _read_lexicons(folder, description.bilm.lexicons),
        {
            name: read_head(folder / f"{name}{_HEAD}")
            for name in HEAD_NAMES
            if (folder / f"{name}{_HEAD}").exists()
        },
    )


def write_native(pretrained: Pretrained, folder: Path, *, half: bool = False) -> None:
    """Write a model to an existing folder, in float32 or float16."""
    model = pretrained.model
    description = _Description(
        "elmokit",
        1,
        pretrained.tokenizer,
        None if model.softmax is None else model.softmax.num_words,
        model.bilm.config,
        model.softmax.cutoffs if isinstance(model.softmax, AdaptiveSoftmax) else None,
        None if pretrained.mix is None else StoredMix.of(pretrained.mix),
    )
    stored = {**asdict(description), "bilm": stored_config(description.bilm)}
    (folder / CONFIG).write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    tensors = {
        stored_name(name): tensor.detach()
        .to("cpu", torch.float16 if half else torch.float32)
        .contiguous()
        for name, tensor in model.state_dict().items()
    }
    try:
        save_file(tensors, folder / WEIGHTS)
    except SafetensorError as error:  # such as a full disk
        raise OSError(str(error)) from None
    # safetensors writes files that only their owner can read.
    (folder / WEIGHTS).chmod((folder / CONFIG).stat().st_mode)
    if pretrained.vocabulary is not None:
        write_vocabulary(pretrained.vocabulary, folder / VOCABULARY)
    if pretrained.lexicons is not None:
        for name, lexicon in (
            (_CHARACTERS, pretrained.lexicons.characters),
            (_WORDS, pretrained.lexicons.words),
        ):
            if lexicon is not None:
                write_vocabulary(lexicon, folder / name)
    for name, head in pretrained.heads.items():
        if head.fits(pretrained):
            saved = replace(head, model=pretrained.fingerprint(half=half))
            write_head(saved, folder / f"{name}{_HEAD}")
        else:
            logger.warning("the head %r is left out: the model's weights have changed", name)
    card = with_metadata(pretrained.card or _default_card(pretrained))
    (folder / CARD).write_text(card, encoding="utf-8")


def read_head(path: Path) -> FittedHead:
    """The sentence head in a file that `write_head` wrote."""
    expected = "a sentence head that elmokit wrote"
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise FormatError(f"{path}: {error}, expected {expected}; was it cut short?") from None
    description = parse_record(metadata.get("head", "{}"), _HeadDescription, str(path), expected)
    with torch.device("meta"):
        module = SentenceHead(description.config)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    tensors = read_tensors(path, shapes, bytes_named="codes")
    # Copies lie at even addresses, where products have the same bits as before they were saved.
    tensors = {
        name: t.clone() if name == "codes" else t.to(torch.float32, copy=True)
        for name, t in tensors.items()
    }
    check_finite(tensors.items(), str(path))
    module.load_state_dict(tensors, assign=True)
    return FittedHead(module.eval().requires_grad_(False), description.model)


def write_head(head: FittedHead, path: Path) -> None:
    """Write a sentence head to a file, in float16 where that loses nothing."""
    description = _HeadDescription("elmokit-head", 1, head.model, head.module.config)
    tensors = {}
    for name, tensor in head.module.state_dict().items():
        half = tensor.half()
        exact = tensor.is_floating_point() and torch.equal(half.to(tensor), tensor)
        tensors[name] = half if exact else tensor
    write_atomically(path, pack_tensors(tensors, {"head": json.dumps(asdict(description))}))


@dataclass(frozen=True)
class _HeadDescription:
    """The metadata of a head's file."""

    format: Literal["elmokit-head"]
    version: Literal[1]
    model: str  # fingerprint
    config: SentenceHeadConfig


def _read_description(path: Path) -> _Description:
    expected = "the config.json of an elmokit model"
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        stored = None
    if isinstance(stored, dict) and "bilm" in stored:
        text = json.dumps({**stored, "bilm": config_fields(stored["bilm"])}).encode()
    return parse_record(text, _Description, str(path), expected)


def _read_lexicons(folder: Path, config: LexiconConfig | None) -> Lexicons | None:
    if config is None:
        return None
    lexicons = []
    for name, entries in ((_CHARACTERS, config.num_characters), (_WORDS, config.num_words)):
        if entries and not (folder / name).is_file():
            raise FormatError(f"{folder / name}: no such file; was the folder copied completely?")
        lexicons.append(
            read_vocabulary(folder / name, unknown=LEXICON_UNKNOWN) if entries else None
        )
    return Lexicons(*lexicons)


def _default_card(pretrained: Pretrained) -> str:
    config = pretrained.model.bilm.config
    parameters = sum(parameter.numel() for parameter in pretrained.model.parameters())
    return (
        "# An ELMo model\n\n"
        f"{config.num_layers + 1} layers of {config.output_size} dimensions, "
        f"{parameters:,} parameters, text tokenized by `{pretrained.tokenizer}`. "
        "Please add what text it was trained on, and under which licence it may be used; in the "
        "lines above, `language` and `license` are for the Hugging Face Hub.\n"
    )


def published_card(model: PublishedModel) -> str:
    """The card of a published model: what the catalogue knows about it."""
    facts = [
        ("Description", model.description),
        ("Languages", ", ".join(language_names(model))),
        ("Tokenization of its text", model.tokenization),
        ("Licence", model.licence),
        ("Page", model.page),
        *(("Reference", paper) for paper in model.citation),
        *(("Note", note) for note in model.notes),
    ]
    lines = "".join(f"- {name}: {value}\n" for name, value in facts if value)
    licence = "unknown" if "not" in model.licence.split() else model.licence
    card = f"# {model.name}\n\nA published ELMo model.\n\n{lines}"
    return with_metadata(card, languages=model.languages, licence=licence)


def with_metadata(card: str, *, languages: Sequence[str] = (), licence: str = "") -> str:
    """The card, with metadata in front of it; a card that has metadata stays as it is."""
    if _METADATA.match(card):
        return card
    facts = {
        **card_facts(languages, licence),
        "library_name": "elmokit",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "contextual-embeddings"],
    }
    # A value in JSON is one in YAML, and the code of Norwegian is no longer the word "no".
    lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in facts.items())
    return f"---\n{''.join(lines)}---\n\n{card}"


def card_facts(languages: str | Sequence[str], licence: str) -> dict[str, object]:
    """What the metadata say of a model's languages (ISO 639) and its licence; "" if unknown."""
    languages = [languages] if isinstance(languages, str) and languages else list(languages)
    facts: dict[str, object] = {"language": languages} if languages else {}
    if licence:
        identifier = re.sub("-(only|or-later)$", "", licence.lower().replace(" ", "-"))
        facts["license"] = identifier if identifier in _LICENCES else "other"
        if facts["license"] == "other":
            facts["license_name"] = licence
    return facts


def without_metadata(card: str) -> str:
    """The text of a card."""
    return _METADATA.sub("", card, count=1) if _METADATA.match(card) else card


def read_state(path: Path, config: BiLMConfig) -> State:
    """A state that `write_state` saved, for a model with this configuration."""
    shape = len(config.directions), config.num_layers
    tensors = read_tensors(
        path,
        {"output": (*shape, -1, config.projection_size), "memory": (*shape, -1, config.cell_size)},
    )
    return State(tensors["output"], tensors["memory"])


def write_state(state: State, path: Path) -> None:
    """Save a state of the LSTMs."""
    write_atomically(path, pack_tensors({"output": state.hidden, "memory": state.cell}))


def read_tensors(
    path: Path, shapes: dict[str, tuple[int, ...]], *, bytes_named: str = ""
) -> dict[str, Tensor]:
    """The tensors of a safetensors file; names and shapes are checked first, -1 is any size.

    All are floating-point numbers, but the one that is called `bytes_named`.
    """
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            stored_shapes = {name: tuple(tensor.get_shape()) for name, tensor in slices.items()}
            types = {name: tensor.get_dtype() for name, tensor in slices.items()}
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file; was the folder copied completely?") from None
    except SafetensorError as error:
        reason = " ".join(str(error).split())
        raise FormatError(
            f"{path}: cannot be read as safetensors ({reason}); was the file cut short?"
        ) from None
    for name, shape in shapes.items():
        if name not in stored_shapes:
            raise FormatError(f"{path}: no tensor called {name}; is it the file of this model?")
        fits = len(stored_shapes[name]) == len(shape) and all(
            expected in (-1, size)
            for size, expected in zip(stored_shapes[name], shape, strict=True)
        )
        expected_types = ("U8",) if name == bytes_named else ("F32", "F16", "F64", "BF16")
        if types[name] not in expected_types:
            raise FormatError(
                f"{path}: {name} has the type {types[name]}, expected "
                f"{' or '.join(expected_types[:2])}"
            )
        if not fits:
            raise FormatError(
                f"{path}: {name} has the shape {stored_shapes[name]}, expected {tuple(shape)}; "
                "is it the file of this model?"
            )
    if extra := sorted(set(stored_shapes) - set(shapes)):
        raise FormatError(
            f"{path}: has a tensor called {extra[0]}, which the model does not have; "
            "is it the file of this model?"
        )
    return load_file(path)


def pack_tensors(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The tensors as the bytes of a safetensors file."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(stored, metadata)
