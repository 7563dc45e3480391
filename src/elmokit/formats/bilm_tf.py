"""The options.json and HDF5 weights of bilm-tf and AllenNLP."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import numpy.typing as npt
import torch

from elmokit.config import BiLMConfig, CharacterConfig, Direction, read_record
from elmokit.errors import ConfigError, FormatError, InputError
from elmokit.formats.pretrained import DEFAULT_TOKENIZER, Pretrained
from elmokit.model.bilm import BiLM, LanguageModel
from elmokit.model.softmax import AdaptiveSoftmax, Softmax
from elmokit.vocab import CharacterIndexer, read_vocabulary

Array = npt.NDArray[np.float32]

# A compressed file may declare more bytes than it has, but weights hardly compress.
_MAX_EXPANSION = 20


def read_bilm_tf(options: Path, weights: Path, *, tokenizer: str | None = None) -> Pretrained:
    """The model in an options and a weights file, with the vocab.txt beside it if needed."""
    description = read_options(options)
    with _explaining_hdf5_errors(weights), h5py.File(weights, "r") as file:
        stored = _find_datasets(file)
        _check_kind(stored, file, weights)
        config = _config(description, stored, options, weights)
        words = _softmax_words(stored, weights)
        datasets = [*_datasets(config, softmax_words=words)]
        names = {dataset.name: _find(stored, dataset, weights) for dataset in datasets}
        _check_extra_datasets(stored, names, weights)
        _check_size(stored, names, weights)
        tensors = {}
        for dataset in datasets:
            array = np.asarray(stored[names[dataset.name]][()], np.float32)
            for name, ours in zip(dataset.parameters, dataset.to_ours(array), strict=True):
                tensors[name] = torch.from_numpy(
                    ours
                ).contiguous()  # torch transposes with all cores
    with torch.device("meta"):
        softmax = None if words is None else Softmax(words, config.projection_size)
        model = LanguageModel(BiLM(config), softmax)
    model.load_state_dict(tensors, assign=True)
    vocabulary_path = weights.parent / "vocab.txt"
    has_words = words is not None or config.vocabulary_size is not None
    vocabulary = (
        read_vocabulary(vocabulary_path) if has_words and vocabulary_path.is_file() else None
    )
    return Pretrained(
        model, vocabulary, tokenizer or description.elmokit.split, description.elmokit.card
    )


def write_bilm_tf(pretrained: Pretrained, options: Path, weights: Path) -> None:
    """Write an options and a weights file; the softmax becomes softmax/W and softmax/b."""
    model = pretrained.model
    config = model.bilm.config
    if config.directions == ("backward",):
        raise FormatError(
            "bilm-tf's files cannot hold a model with the backward direction only; save it in the "
            "'elmokit' format"
        )
    if config.forget_bias != 1.0:
        raise FormatError(
            f"bilm-tf adds 1.0 to all forget gates, but this model adds {config.forget_bias}; save "
            "it in the 'elmokit' format"
        )
    tensors = model.state_dict()
    if isinstance(model.softmax, AdaptiveSoftmax):
        raise InputError(
            "bilm-tf's files cannot hold an adaptive softmax, only a full or sampled one; save the "
            "model in the 'elmokit' format"
        )
    words = None if model.softmax is None else model.softmax.num_words
    with h5py.File(weights, "w") as file:
        for dataset in _datasets(config, softmax_words=words):
            ours = [tensors[name].float().cpu().numpy() for name in dataset.parameters]
            file[dataset.name] = dataset.to_theirs(*ours)
    write_options(pretrained, options)


@dataclass(frozen=True)
class LstmOptions:
    """The LSTMs, by bilm-tf's names."""

    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False


@dataclass(frozen=True)
class EmbeddingOptions:
    """The character embedding, by bilm-tf's names."""

    dim: int = 16


@dataclass(frozen=True)
class CharacterOptions:
    """The character CNN, by bilm-tf's names."""

    activation: Literal["relu", "tanh"]
    filters: tuple[tuple[int, int], ...]
    embedding: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    max_characters_per_token: int = 50
    n_characters: Literal[261, 262] = 262  # bilm-tf wants 261 to train and 262 to use
    n_highway: int | None = None


@dataclass(frozen=True)
class OwnOptions:
    """What elmokit adds to options.json; other programs ignore it."""

    split: str = DEFAULT_TOKENIZER
    card: str = ""


@dataclass(frozen=True)
class Options:
    """The configuration of a model in options.json; its settings of training are ignored."""

    lstm: LstmOptions
    char_cnn: CharacterOptions | None = None
    bidirectional: bool = True  # bilm-tf's default is False, but published files leave it out
    elmokit: OwnOptions = field(default_factory=OwnOptions)

    def config(self, vocabulary_size: int | None, *, bidirectional: bool) -> BiLMConfig:
        """The configuration; the vocabulary size of a word-level model is not in the options."""
        lstm, cnn = self.lstm, self.char_cnn
        directions: tuple[Direction, ...] = (
            ("forward", "backward") if bidirectional else ("forward",)
        )
        characters = None
        if cnn is not None:
            characters = CharacterConfig(
                max_characters=cnn.max_characters_per_token,
                num_characters=CharacterIndexer.NUM_CHARACTERS,
                embedding_size=cnn.embedding.dim,
                filters=cnn.filters,
                activation=cnn.activation,
                highway_layers=cnn.n_highway or 0,
            )
        return BiLMConfig(
            projection_size=lstm.projection_dim,
            cell_size=lstm.dim,
            num_layers=lstm.n_layers,
            characters=characters,
            vocabulary_size=vocabulary_size,
            directions=directions,
            skip_connections=lstm.use_skip_connections,
            cell_clip=lstm.cell_clip or None,  # AllenNLP: 0 is no clip
            projection_clip=lstm.proj_clip or None,
        )


def read_options(path: Path) -> Options:
    """The configuration in an options.json."""
    return read_record(path, Options, "the options.json of a bilm-tf model")


@dataclass(frozen=True)
class TrainingOptions(Options):
    """The settings of training in options.json; its counts of words are ignored."""

    bidirectional: bool = False
    dropout: float = 0.0
    all_clip_norm_val: float = 0.0
    n_epochs: int = 10
    batch_size: int = 128
    unroll_steps: int = 20
    n_negative_samples_batch: int = 8192
    learning_rate: float = 0.2
    sample_softmax: bool = True
    share_embedding_softmax: bool = False


def read_training_options(path: Path) -> dict[str, Any]:
    """The settings of a pretraining run in an options.json, by the names of PretrainingSettings."""
    options = read_record(path, TrainingOptions, "the options.json of a bilm-tf run")
    settings: dict[str, Any] = {
        "projection_size": options.lstm.projection_dim,
        "cell_size": options.lstm.dim,
        "num_layers": options.lstm.n_layers,
        "skip_connections": options.lstm.use_skip_connections,
        "cell_clip": options.lstm.cell_clip or 0.0,
        "projection_clip": options.lstm.proj_clip or 0.0,
        "directions": "both" if options.bidirectional else "forward",
        "dropout": options.dropout,
        "max_grad_norm": options.all_clip_norm_val,
        "epochs": options.n_epochs,
        "batch_size": options.batch_size,
        "sequence_length": options.unroll_steps,
        "num_sampled": options.n_negative_samples_batch,
        "learning_rate": options.learning_rate,
        "softmax": "sampled" if options.sample_softmax else "full",
        "tie_weights": options.share_embedding_softmax,
        "input": "words" if options.char_cnn is None else "characters",
    }
    if options.char_cnn is not None:
        settings |= {
            "max_characters": options.char_cnn.max_characters_per_token,
            "character_embedding_size": options.char_cnn.embedding.dim,
            "filters": options.char_cnn.filters,
            "activation": options.char_cnn.activation,
            "highway_layers": options.char_cnn.n_highway or 0,
        }
    return settings


def write_options(pretrained: Pretrained, path: Path) -> None:
    """Write the options.json of a model."""
    config = pretrained.model.bilm.config
    lstm: dict[str, Any] = {
        "dim": config.cell_size,
        "projection_dim": config.projection_size,
        "n_layers": config.num_layers,
        "use_skip_connections": config.skip_connections,
    }
    for key, clip in (("cell_clip", config.cell_clip), ("proj_clip", config.projection_clip)):
        if clip is not None:
            lstm[key] = clip
    options: dict[str, Any] = {
        "bidirectional": config.directions == ("forward", "backward"),
        "lstm": lstm,
        "elmokit": {"split": pretrained.tokenizer, "card": pretrained.card},
    }
    if config.characters is not None:
        options["char_cnn"] = {
            "activation": config.characters.activation,
            "embedding": {"dim": config.characters.embedding_size},
            "filters": config.characters.filters,
            "max_characters_per_token": config.characters.max_characters,
            "n_characters": CharacterIndexer.NUM_CHARACTERS,
            "n_highway": config.characters.highway_layers,
        }
    path.write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")


def _config(
    options: Options, stored: dict[str, h5py.Dataset], path: Path, weights: Path
) -> BiLMConfig:
    """The configuration, with the vocabulary size of a word-level model from the weights."""
    vocabulary_size = None
    if options.char_cnn is None:
        if "embedding" not in stored or not stored["embedding"].shape:
            raise FormatError(
                f"{weights}: no dataset called embedding, which a word-level model "
                f"(no char_cnn in {path.name}) must have; is {path.name} of another model?"
            )
        vocabulary_size = len(stored["embedding"])
    try:
        # TensorFlow's own names occur in models with one direction only.
        one_direction = any(name.startswith("rnn/") for name in stored)
        return options.config(
            vocabulary_size, bidirectional=options.bidirectional and not one_direction
        )
    except ConfigError as error:
        raise FormatError(f"{path}: {error}") from None


@dataclass(frozen=True)
class _Dataset:
    """A dataset of bilm-tf, our parameters in it, and the conversion in both directions."""

    name: str
    shape: tuple[int, ...]
    parameters: tuple[str, ...]
    to_ours: Callable[[Array], tuple[Array, ...]] = lambda array: (array,)
    to_theirs: Callable[..., Array] = lambda array: array


def _datasets(config: BiLMConfig, *, softmax_words: int | None) -> Iterator[_Dataset]:
    """Every dataset that a model of this shape has."""
    if config.characters is not None:
        yield from _encoder_datasets(config.characters, config.projection_size)
    else:
        assert config.vocabulary_size is not None
        yield _embedding_dataset("embedding", config.vocabulary_size, config.projection_size)
    for direction in range(len(config.directions)):
        for layer in range(config.num_layers):
            yield from _lstm_datasets(config, direction, layer)
    if softmax_words is not None:
        yield _Dataset("softmax/W", (softmax_words, config.projection_size), ("softmax.weight",))
        yield _Dataset("softmax/b", (softmax_words,), ("softmax.bias",))


def _encoder_datasets(characters: CharacterConfig, dim: int) -> Iterator[_Dataset]:
    num_filters = characters.num_filters
    # The file has no row for padding words.
    yield _embedding_dataset("char_embed", characters.num_characters - 1, characters.embedding_size)
    for number, (width, count) in enumerate(characters.filters):
        shape = 1, width, characters.embedding_size, count
        yield _Dataset(
            f"CNN/W_cnn_{number}",
            shape,
            (f"bilm.encoder.filters.{number}.weight",),
            lambda array: (array.reshape(-1, array.shape[-1]).T,),
            lambda array, shape=shape: array.T.reshape(shape),
        )
        yield _Dataset(f"CNN/b_cnn_{number}", (count,), (f"bilm.encoder.filters.{number}.bias",))
    for number in range(characters.highway_layers):
        # What bilm-tf calls carry is the gate of the transformed vector.
        for theirs, ours in (("carry", "gate"), ("transform", "transform")):
            name, parameter = f"CNN_high_{number}", f"bilm.encoder.highways.{number}.{ours}"
            yield _transposed(
                f"{name}/W_{theirs}", (num_filters, num_filters), f"{parameter}.weight"
            )
            yield _Dataset(f"{name}/b_{theirs}", (num_filters,), (f"{parameter}.bias",))
    if num_filters != dim:
        parameter = "bilm.encoder.projection"
        yield _transposed("CNN_proj/W_proj", (num_filters, dim), f"{parameter}.weight")
        yield _Dataset("CNN_proj/b_proj", (dim,), (f"{parameter}.bias",))


def _lstm_datasets(config: BiLMConfig, direction: int, layer: int) -> Iterator[_Dataset]:
    dim, cell_size = config.projection_size, config.cell_size
    name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    parameter = f"bilm.lstms.{direction}.layers.{layer}"
    yield _Dataset(
        f"{name}/W_0",
        (2 * dim, 4 * cell_size),
        (f"{parameter}.input_weight", f"{parameter}.recurrent_weight"),
        lambda array: (_our_gates(array[:dim]).T, _our_gates(array[dim:]).T),
        lambda inputs, recurrent: np.concatenate(
            [_their_gates(inputs).T, _their_gates(recurrent).T]
        ),
    )
    yield _Dataset(
        f"{name}/B",
        (4 * cell_size,),
        (f"{parameter}.bias",),
        lambda array: (_our_gates(array),),
        _their_gates,
    )
    if dim != cell_size:
        yield _transposed(f"{name}/W_P_0", (cell_size, dim), f"{parameter}.projection")


def _embedding_dataset(name: str, rows: int, dim: int) -> _Dataset:
    """An embedding without the row of zeros for padding, which ours begins with."""
    return _Dataset(
        name,
        (rows, dim),
        ("bilm.encoder.embedding.weight",),
        lambda array: (np.concatenate([np.zeros((1, dim), np.float32), array]),),
        lambda array: array[1:],
    )


def _transposed(name: str, shape: tuple[int, ...], parameter: str) -> _Dataset:
    return _Dataset(name, shape, (parameter,), lambda array: (array.T,), lambda array: array.T)


def _our_gates(array: Array) -> Array:  # (..., 4 * cell_size) -> (..., 4 * cell_size)
    """TensorFlow's gates are input, candidate, forget, output; ours end in the candidate."""
    input_, candidate, forget, output = np.split(array, 4, axis=-1)
    return np.concatenate([input_, forget, output, candidate], axis=-1)


def _their_gates(array: Array) -> Array:
    gates = array.reshape(4, -1, *array.shape[1:])
    return gates[[0, 3, 1, 2]].reshape(array.shape)


def _softmax_words(stored: dict[str, h5py.Dataset], path: Path) -> int | None:
    shapes = [stored[n].shape if n in stored else None for n in ("softmax/W", "softmax/b")]
    if shapes == [None, None]:
        return None
    weight, bias = shapes
    if weight is None or bias is None or len(weight) != 2 or bias != weight[:1]:
        raise FormatError(
            f"{path}: softmax/W and softmax/b have the shapes {weight} and {bias}, "
            "expected (words, dim) and (words,)"
        )
    return int(weight[0])


def _find_datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """The datasets of a file by name, without links to other files."""
    stored: dict[str, h5py.Dataset] = {}

    def visit(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset) and not item.external and not item.is_virtual:
            stored[name] = item

    file.visititems(visit)
    return stored


def _check_kind(stored: dict[str, h5py.Dataset], file: h5py.File, path: Path) -> None:
    """Raise FormatError, which says what the file is, unless it holds a model's weights."""
    names = {name.split("/")[0] for name in stored}
    if "char_embed" in names or "RNN_0" in names or "rnn" in names:
        return
    if "sentence_to_index" in names or (names and all(name.isdigit() for name in names)):
        raise FormatError(
            f"{path}: this file holds embeddings (one dataset a sentence), not a model; "
            "give the weights file of the model that made them"
        )
    if names == {"embedding"}:
        raise FormatError(
            f"{path}: this file holds word vectors only (bilm-tf's dump_token_embeddings), "
            "not a model; give the weights file of the model"
        )
    if "model_weights" in names or "layer_names" in file.attrs:
        raise FormatError(
            f"{path}: this is a Keras model, expected the weights file of a bilm-tf model"
        )
    listed = ", ".join(sorted(names)[:5]) or "nothing"
    raise FormatError(
        f"{path}: no dataset called char_embed and no RNN_0 (found {listed}), "
        "expected the weights file of a bilm-tf model"
    )


def _find(stored: dict[str, h5py.Dataset], dataset: _Dataset, path: Path) -> str:
    """The name of a dataset in the file; its shape and type are checked."""
    name = next((name for name in _spellings(dataset.name) if name in stored), None)
    if name is None:
        raise FormatError(
            f"{path}: no dataset called {dataset.name}, which the options ask for; "
            "do the two files belong together?"
        )
    if stored[name].shape != dataset.shape:
        raise FormatError(
            f"{path}: {dataset.name} has the shape {stored[name].shape}, "
            f"but the options ask for {dataset.shape}; do the two files belong together?"
        )
    if stored[name].dtype.kind != "f":
        raise FormatError(
            f"{path}: {dataset.name} has the type {stored[name].dtype}, expected float32"
        )
    return name


def _check_extra_datasets(
    stored: dict[str, h5py.Dataset], names: dict[str, str], path: Path
) -> None:
    """Raise FormatError for a part of a model that the options do not mention."""
    parts = ("char_embed", "CNN", "RNN_", "rnn", "softmax")
    for name in sorted(set(stored) - set(names.values())):
        if name.startswith(parts):
            raise FormatError(
                f"{path}: {name} is there, but the options do not mention it; "
                "do the two files belong together?"
            )


def _check_size(stored: dict[str, h5py.Dataset], names: dict[str, str], path: Path) -> None:
    """Raise FormatError before memory is allocated for sizes that a small file only declares."""
    declared = sum(stored[name].nbytes for name in names.values())
    if declared > _MAX_EXPANSION * path.stat().st_size:
        raise FormatError(
            f"{path}: declares {declared:,} bytes of weights, but the whole file has only "
            f"{path.stat().st_size:,}; it is damaged or malicious"
        )


def _spellings(name: str) -> Iterator[str]:
    """The names under which bilm-tf's dump_weights left a dataset.

    With one layer it wrote no MultiRNNCell/Cell0; of a model with one direction it left
    TensorFlow's own names of the LSTM.
    """
    tensorflow = {
        "RNN_0/RNN/": "rnn/", "/W_P_0": "/projection/kernel", "/W_0": "/kernel", "/B": "/bias"
    }  # fmt: skip
    for spelling in (name, name.replace("MultiRNNCell/Cell0/", "")):
        yield spelling
        unmapped = spelling
        for theirs, own in tensorflow.items():
            unmapped = unmapped.replace(theirs, own)
        yield unmapped


@contextmanager
def _explaining_hdf5_errors(path: Path) -> Iterator[None]:
    """Turn what h5py raises for a damaged file into a FormatError."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, UnicodeError) as error:
        raise FormatError(
            f"{path}: cannot be read as HDF5 ({error}); was the file cut short?"
        ) from None
