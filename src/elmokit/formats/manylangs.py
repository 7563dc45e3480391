"""The model folders of ELMoForManyLangs."""

import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from pickle import UnpicklingError
from typing import Literal

import torch
from torch import Tensor

from elmokit.character_ids import LEXICON_UNKNOWN, Lexicons
from elmokit.errors import ConfigError, FormatError
from elmokit.formats.archives import DAMAGED, check_declared_size, load_torch_file
from elmokit.formats.model_format import register_format
from elmokit.formats.pretrained import DEFAULT_TOKENIZER, Pretrained
from elmokit.model.bilm import BiLM, LanguageModel
from elmokit.model_config import (
    PUBLISHED_FILTERS,
    BiLMConfig,
    CharacterConfig,
    LexiconConfig,
    read_record,
)
from elmokit.vocab import Vocabulary

_CONFIG, _CHARACTERS, _WORDS = "config.json", "char.dic", "word.dic"
_ENCODER, _TOKEN_EMBEDDER = "encoder.pkl", "token_embedder.pkl"

# Its `lstm` token embedder did not cut words; no word is longer than this.
_UNLIMITED = 2**20


@register_format(
    "ELMoForManyLangs",
    {
        "weights of the LSTMs": (_ENCODER,),
        "weights of the word encoder": (_TOKEN_EMBEDDER,),
        "configuration": (_CONFIG,),
    },
    (_CHARACTERS, _WORDS, "*.json", "*/*.json"),
)
def read_manylangs(folder: Path, tokenizer: str | None = None) -> Pretrained:
    """The model in a folder as ELMoForManyLangs wrote it; its classifier.pkl is not read."""
    path, architecture = _read_architecture(folder)
    embedder = architecture.token_embedder
    lexicons = Lexicons(
        _read_lexicon(folder / _CHARACTERS) if embedder.char_dim else None,
        _read_lexicon(folder / _WORDS) if embedder.word_dim else None,
    )
    try:
        config = architecture.config(lexicons)
    except ConfigError as error:
        raise FormatError(f"{path}: {error}") from None
    encoder = _StateDict(folder / _TOKEN_EMBEDDER)
    tensors = _word_encoder(encoder, config)
    encoder.check_all_taken()
    lstms = _StateDict(folder / _ENCODER)
    tensors |= lstm_parameters(lstms.take, config)
    lstms.check_all_taken()
    with torch.device("meta"):
        model = LanguageModel(BiLM(config))
    model.bilm.load_state_dict(tensors, assign=True)
    return Pretrained(model, None, tokenizer or DEFAULT_TOKENIZER, lexicons=lexicons)


@dataclass(frozen=True)
class _Training:
    """The settings of training in config.json, of which only one matters here."""

    config_path: str


@dataclass(frozen=True)
class _Encoder:
    """The LSTMs, by their names."""

    name: str
    projection_dim: int
    dim: int
    n_layers: int
    cell_clip: float | None
    proj_clip: float | None


@dataclass(frozen=True)
class _TokenEmbedder:
    """The word encoder, by their names; some are not needed without characters."""

    name: str
    word_dim: int
    char_dim: int
    max_characters_per_token: int = _UNLIMITED
    filters: tuple[tuple[int, int], ...] = ()
    n_highway: int = 0
    activation: Literal["relu", "tanh"] | None = None


@dataclass(frozen=True)
class _Architecture:
    """The configuration of a model, in the file that config.json names."""

    encoder: _Encoder
    token_embedder: _TokenEmbedder

    def config(self, lexicons: Lexicons) -> BiLMConfig:
        """Our configuration; ConfigError for what was never published."""
        encoder, embedder = self.encoder, self.token_embedder
        if encoder.name.lower() != "elmo":
            raise ConfigError(
                f"the encoder is called {encoder.name!r}, expected 'elmo': models with another one "
                "were never published, and cannot be run here"
            )
        if embedder.name.lower() not in ("cnn", "lstm"):
            raise ConfigError(
                f"the token_embedder is called {embedder.name!r}, expected 'cnn': is this the "
                "configuration of a model of ELMoForManyLangs?"
            )
        if embedder.name.lower() == "lstm" and embedder.char_dim:
            raise ConfigError(
                "the token_embedder is called 'lstm', expected 'cnn': models that read characters "
                "with LSTMs were never published, and ELMoForManyLangs itself could not run them"
            )
        if encoder.dim == encoder.projection_dim:
            raise ConfigError(
                f"the encoder's dim and projection_dim are both {encoder.dim}; models whose LSTMs "
                "have a projection to the same size were never published, and cannot be run here"
            )
        cuts_words = embedder.name.lower() == "cnn"
        max_characters = embedder.max_characters_per_token if cuts_words else _UNLIMITED
        characters = None
        if lexicons.characters is not None:
            characters = CharacterConfig(
                max_characters=max_characters,
                num_characters=len(lexicons.characters) + 1,
                embedding_size=embedder.char_dim,
                filters=embedder.filters,
                activation=embedder.activation,  # type: ignore[arg-type]  # which it checks
                highway_layers=embedder.n_highway,
            )
        return BiLMConfig(
            projection_size=encoder.projection_dim,
            cell_size=encoder.dim,
            num_layers=encoder.n_layers,
            characters=None,
            cell_clip=encoder.cell_clip or None,  # 0 is no clip
            projection_clip=encoder.proj_clip or None,
            forget_bias=0.0,  # it is a part of the stored bias
            lexicons=LexiconConfig(
                max_characters, characters, len(lexicons.words or ()), embedder.word_dim
            ),
        )


# The configuration of all published models, which came with the program and not with the models.
_PUBLISHED = _Architecture(
    _Encoder("elmo", 512, 4096, 2, 3.0, 3.0),
    _TokenEmbedder("cnn", 100, 50, 50, PUBLISHED_FILTERS, 2, "relu"),
)
_PUBLISHED_NAMES = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")


def _read_architecture(folder: Path) -> tuple[Path, _Architecture]:
    """The configuration of the model, and the file in which it stands.

    The path in config.json is often that of the authors' machine: only the file's name is used.
    """
    training = read_record(
        folder / _CONFIG, _Training, "the config.json of a model of ELMoForManyLangs"
    )
    name = PureWindowsPath(training.config_path).name
    candidates = *folder.glob("*.json"), *folder.glob("*/*.json")
    if paths := [path for path in candidates if path.name == name]:
        return paths[0], read_record(
            paths[0], _Architecture, "the configuration of a model of ELMoForManyLangs"
        )
    if name in _PUBLISHED_NAMES:
        return folder / _CONFIG, _PUBLISHED
    raise FormatError(
        f"{folder / _CONFIG}: config_path names {name!r}, the file with the sizes of the model, "
        f"which is not in {folder.name}; put it there"
    )


def _read_lexicon(path: Path) -> Vocabulary:
    """The entries of char.dic or word.dic: an entry, a tab and its id on each line."""
    if not path.is_file():
        raise FormatError(f"{path}: no such file; was the folder copied completely?")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path}: not UTF-8 ({error.reason}), expected UTF-8 text; convert the file first"
        ) from None
    entries: dict[int, str] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        fields = line.strip().split("\t")
        if len(fields) == 1:
            fields.insert(0, "\u3000")  # ELMoForManyLangs took any white space for this
        if len(fields) != 2 or not re.fullmatch("[0-9]{1,9}", fields[1]):
            raise FormatError(
                f"{path}, line {number}: {line[:80]!r}, expected an entry, a tab and its id"
            )
        if int(fields[1]) in entries:
            raise FormatError(
                f"{path}, line {number}: the id {fields[1]} stands on another line too, expected "
                "one entry for each; is the file damaged?"
            )
        entries[int(fields[1])] = fields[0]
    missing = next((number for number in range(len(entries)) if number not in entries), None)
    if missing is not None:
        raise FormatError(
            f"{path}: no line has the id {missing}, expected 0 to {len(entries) - 1}; is the file "
            "complete?"
        )
    return Vocabulary((entries[number] for number in range(len(entries))), unknown=LEXICON_UNKNOWN)


def _word_encoder(state: "_StateDict", config: BiLMConfig) -> dict[str, Tensor]:
    lexicons = config.lexicons
    assert lexicons is not None
    ours = {}

    def embedding(layer: str, rows: int, dim: int) -> Tensor:  # with a row of zeros for no word
        theirs = state.take(f"{layer}.embedding.weight", rows, dim)
        return torch.cat([theirs.new_zeros(1, dim), theirs])

    if lexicons.num_words:
        shape = lexicons.num_words, lexicons.word_embedding_size
        ours["words.embedding.weight"] = embedding("word_emb_layer", *shape)
    if (characters := lexicons.characters) is not None:
        size = characters.embedding_size
        shape = lexicons.num_characters, size
        ours["characters.embedding.weight"] = embedding("char_emb_layer", *shape)
        cnn = cnn_parameters(state.take, characters, "convolutions.", "highways")
        ours |= {f"characters.{name}": tensor for name, tensor in cnn.items()}
    dim = config.projection_size
    ours["projection.weight"] = state.take("projection.weight", dim, lexicons.num_features)
    ours["projection.bias"] = state.take("projection.bias", dim)
    return {f"encoder.{name}": tensor for name, tensor in ours.items()}


def cnn_parameters(
    take: Callable[..., Tensor], characters: CharacterConfig, filters: str, highways: str
) -> dict[str, Tensor]:
    """Our parameters of a character CNN and its highway layers, as AllenNLP's modules have them.

    `take` gives a tensor, by AllenNLP's name and with the shape that it must have; `filters` and
    `highways` are how these names begin.
    """
    ours = {}
    size, num_filters = characters.embedding_size, characters.num_filters
    for number, (width, count) in enumerate(characters.filters):
        name, own = f"{filters}{number}", f"filters.{number}"
        kernel = take(f"{name}.weight", count, size, width)
        ours[f"{own}.weight"] = kernel.transpose(1, 2).flatten(1).contiguous()
        ours[f"{own}.bias"] = take(f"{name}.bias", count)
    for number in range(characters.highway_layers):
        name, own = f"{highways}._layers.{number}", f"highways.{number}"
        for suffix, *rest in (("weight", num_filters), ("bias",)):
            # AllenNLP's gate passes the vector itself, ours the transformed one.
            transform, gate = take(f"{name}.{suffix}", 2 * num_filters, *rest).chunk(2)
            ours[f"{own}.transform.{suffix}"] = transform.clone()
            ours[f"{own}.gate.{suffix}"] = -gate
    return ours


def lstm_parameters(take: Callable[..., Tensor], config: BiLMConfig) -> dict[str, Tensor]:
    """Our parameters of LSTMs as AllenNLP's modules have them; `take` as for `cnn_parameters`."""
    dim, cell_size = config.projection_size, config.cell_size
    ours = {}
    for number, direction in enumerate(config.directions):
        for layer in range(config.num_layers):
            name, own = f"{direction}_layer_{layer}", f"lstms.{number}.layers.{layer}"
            for suffix, theirs, *rest in (
                ("input_weight", "input_linearity.weight", dim),
                ("recurrent_weight", "state_linearity.weight", dim),
                ("bias", "state_linearity.bias"),
            ):
                # Its gates are input, forget, candidate, output; ours end in the candidate.
                gates = take(f"{name}.{theirs}", 4 * cell_size, *rest).chunk(4)
                ours[f"{own}.{suffix}"] = torch.cat([gates[n] for n in (0, 1, 3, 2)])
            # Its bias of the forget gate includes what is added to it.
            ours[f"{own}.bias"][cell_size : 2 * cell_size] -= config.forget_bias
            ours[f"{own}.projection"] = take(f"{name}.state_projection.weight", dim, cell_size)
    return ours


class _StateDict:
    """The tensors of a file that torch.save wrote; each is to be taken, once, with its shape."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _explaining_pickle_errors(path):
            size = path.stat().st_size
            if zipfile.is_zipfile(path):  # torch.save compresses nothing
                with zipfile.ZipFile(path) as archive:
                    declared = sum(info.file_size for info in archive.infolist())
                check_declared_size(path, declared, size, "bytes of weights")
            self._tensors = _float_tensors(load_torch_file(path), path)
            # A tensor may repeat a few numbers as often as it likes.
            declared = sum(t.numel() * t.element_size() for t in self._tensors.values())
            check_declared_size(path, declared, size, "bytes of weights")

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of that name, in float32."""
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise FormatError(
                f"{self._path}: no tensor called {name}, which the configuration asks for; is it "
                "the file of this model?"
            )
        if tensor.shape != shape:
            raise FormatError(
                f"{self._path}: {name} has the shape {tuple(tensor.shape)}, expected {shape}; is "
                "it the file of this model?"
            )
        return tensor.float().contiguous()

    def check_all_taken(self) -> None:
        """Raise FormatError if the file has a tensor that the configuration does not ask for."""
        if self._tensors:
            raise FormatError(
                f"{self._path}: has a tensor called {next(iter(self._tensors))}, which the "
                "configuration does not ask for; is it the file of this model?"
            )


def _float_tensors(loaded: object, path: Path) -> dict[str, Tensor]:
    """The state dict that was loaded, as far as it is one."""
    if not isinstance(loaded, dict):
        raise FormatError(f"{path}: holds {type(loaded).__name__}, expected tensors by their names")
    tensors = {}
    for name, tensor in loaded.items():
        plain = isinstance(tensor, Tensor) and tensor.layout is torch.strided
        if not plain or not tensor.is_floating_point() or tensor.is_meta:
            raise FormatError(f"{path}: {name} is no tensor of floating-point numbers")
        tensors[str(name)] = tensor.detach()
    return tensors


@contextmanager
def _explaining_pickle_errors(path: Path) -> Iterator[None]:
    """Turn what torch raises for a damaged file, or one that would run code, into a FormatError."""
    try:
        yield
    except FormatError:
        raise
    except UnpicklingError as error:
        if found := re.search(r"GLOBAL (\S+)", str(error)):
            raise FormatError(
                f"{path}: refers to {found[1]}, expected tensors only; it is malicious or damaged, "
                "and nothing of it was run"
            ) from None
        raise FormatError(f"{path}: is no file of torch.save, or a damaged one") from None
    except DAMAGED as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FormatError(
            f"{path}: cannot be read as a file of torch.save ({reason}); was the file cut short?"
        ) from None
