"""The options.json and HDF5 weights of bilm-tf and AllenNLP."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
import numpy.typing as npt
import torch

from elmokit.errors import ConfigError, FormatError
from elmokit.formats.archives import check_declared_size
from elmokit.formats.model_format import register_format
from elmokit.formats.options_json import Options, read_options, write_options
from elmokit.formats.pretrained import Pretrained, check_finite
from elmokit.model.bilm import BiLM, LanguageModel
from elmokit.model.softmax import AdaptiveSoftmax, Softmax
from elmokit.model_config import BiLMConfig, CharacterConfig
from elmokit.vocab import read_vocabulary

Array = npt.NDArray[np.float32]

# A compressed file may declare more bytes than it has, but weights hardly compress.
_MAX_EXPANSION = 20


_OPTIONS, _WEIGHTS = ("*options*.json",), ("*.hdf5", "*.h5")


@register_format("bilm-tf", {"options file": _OPTIONS, "weights file": _WEIGHTS}, ("vocab.txt",))
def read_bilm_tf_folder(folder: Path, tokenizer: str | None = None) -> Pretrained:
    """The model in a folder with one options and one weights file."""
    options = _single_file(folder, "options file", _OPTIONS)
    return read_bilm_tf(options, _single_file(folder, "weights file", _WEIGHTS), tokenizer)


def _single_file(folder: Path, kind: str, patterns: tuple[str, ...]) -> Path:
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern))
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise FormatError(
            f"{folder}: more than one {kind}: {names}; give options and weights by name"
        )
    return paths[0]


def read_bilm_tf(options: Path, weights: Path, tokenizer: str | None = None) -> Pretrained:
    """The model in an options and a weights file, with the vocab.txt beside it if needed."""
    description = read_options(options)
    with _explaining_hdf5_errors(weights), h5py.File(weights, "r") as file:
        stored = _find_datasets(file)
        _check_kind(stored, file, weights)
        # Before memory is allocated for sizes that a small file only declares.
        max_bytes = _MAX_EXPANSION * weights.stat().st_size
        model = read_model(stored, description, options, weights, max_bytes=max_bytes)
    vocabulary, mix = weights.parent / "vocab.txt", description.elmokit.mix
    return Pretrained(
        model,
        read_vocabulary(vocabulary) if has_vocabulary(model) and vocabulary.is_file() else None,
        tokenizer or description.elmokit.split,
        description.elmokit.card,
        None if mix is None else mix.mix(),
    )


class StoredArray(Protocol):
    """An array in a file, such as a dataset of h5py; `array[()]` reads it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, key: tuple[()], /) -> npt.NDArray[Any]: ...


Stored = Mapping[str, StoredArray]


def read_model(
    stored: Stored,
    description: Options,
    options: Path,
    weights: Path,
    *,
    max_bytes: float = math.inf,
) -> LanguageModel:
    """The model whose arrays have the names of bilm-tf's datasets, at most so many bytes in all."""
    config = _config(description, stored, options, weights)
    return build_model(stored, config, weights, max_bytes=max_bytes)


def build_model(
    stored: Stored, config: BiLMConfig, weights: Path, *, max_bytes: float = math.inf
) -> LanguageModel:
    """The model with a configuration, and with a softmax if there are arrays of one."""
    words = _softmax_words(stored, weights)
    datasets = [*_datasets(config, softmax_words=words)]
    names = {dataset.name: _find(stored, dataset, weights) for dataset in datasets}
    _check_extra_datasets(stored, names, weights)
    tensors = _read_tensors(stored, names, datasets, weights, max_bytes)
    with torch.device("meta"):
        softmax = None if words is None else Softmax(words, config.projection_size)
        model = LanguageModel(BiLM(config), softmax)
    model.load_state_dict(tensors, assign=True)
    return model


def has_vocabulary(model: LanguageModel) -> bool:
    """Whether a model has vectors of words, in a softmax or as its input."""
    return model.softmax is not None or model.bilm.config.vocabulary_size is not None


def read_lstms(weights: Path, config: BiLMConfig) -> dict[str, torch.Tensor]:
    """The weights of a biLM's LSTMs, by the names of its parameters, of a weights file alone."""
    with _explaining_hdf5_errors(weights), h5py.File(weights, "r") as file:
        stored = _find_datasets(file)
        datasets = [
            dataset
            for direction in range(len(config.directions))
            for layer in range(config.num_layers)
            for dataset in _lstm_datasets(config, direction, layer)
        ]
        names = {dataset.name: _find(stored, dataset, weights) for dataset in datasets}
        max_bytes = _MAX_EXPANSION * weights.stat().st_size
        tensors = _read_tensors(stored, names, datasets, weights, max_bytes)
    check_finite(tensors.items(), str(weights))
    return {name.removeprefix("bilm."): tensor for name, tensor in tensors.items()}


def write_bilm_tf(pretrained: Pretrained, options: Path, weights: Path) -> None:
    """Write an options and a weights file; the softmax becomes softmax/W and softmax/b."""
    model = pretrained.model
    config = model.bilm.config
    without_alignment = "a published one from the folder that elmo download prints"
    unsupported = {
        "a model of ELMoForManyLangs, which has lexicons": config.lexicons is not None,
        "a model with the backward direction only": config.directions == ("backward",),
        f"an alignment (load it without align, {without_alignment})": bool(config.aligned_layers),
        "LSTMs with peephole connections": config.peepholes,
        f"a model that adds {config.forget_bias} to forget gates": config.forget_bias != 1.0,
        "an adaptive softmax": isinstance(model.softmax, AdaptiveSoftmax),
    }
    if reason := next((what for what, is_so in unsupported.items() if is_so), None):
        raise FormatError(f"bilm-tf's files cannot hold {reason}; save it in the 'elmokit' format")
    tensors = model.state_dict()
    words = None if model.softmax is None else model.softmax.num_words
    with h5py.File(weights, "w") as file:
        for dataset in _datasets(config, softmax_words=words):
            ours = [tensors[name].float().cpu().numpy() for name in dataset.parameters]
            file[dataset.name] = dataset.to_theirs(*ours)
    write_options(pretrained, options)


def _config(options: Options, stored: Stored, path: Path, weights: Path) -> BiLMConfig:
    """The configuration, with the vocabulary size of a word-level model from the weights."""
    vocabulary_size = None
    if options.char_cnn is None:
        if "embedding" not in stored or not stored["embedding"].shape:
            raise FormatError(
                f"{weights}: no dataset called embedding, which a word-level model "
                f"(no char_cnn in {path.name}) must have; is {path.name} of another model?"
            )
        vocabulary_size = stored["embedding"].shape[0]
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
    if config.peepholes:  # bilm-tf has none, lm_1b has
        yield _Dataset(f"{name}/peepholes", (3, cell_size), (f"{parameter}.peepholes",))


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


def _softmax_words(stored: Stored, path: Path) -> int | None:
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

    def visit(name: str | bytes, item: h5py.HLObject) -> None:
        if isinstance(name, bytes):  # not UTF-8
            name = name.decode(errors="backslashreplace")
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
        content = "this file holds embeddings (one dataset a sentence), not a model"
    elif names == {"embedding"}:
        content = "this file holds word vectors only (bilm-tf's dump_token_embeddings), not a model"
    elif "model_weights" in names or "layer_names" in file.attrs:
        content = "this is a Keras model"
    else:
        listed = ", ".join(sorted(names)[:5]) or "nothing"
        content = f"no dataset called char_embed and no RNN_0 (found {listed})"
    raise FormatError(f"{path}: {content}, expected the weights file of a bilm-tf model")


def _find(stored: Stored, dataset: _Dataset, path: Path) -> str:
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
            f"expected {dataset.shape}; do the files belong together?"
        )
    if stored[name].dtype.kind != "f":
        raise FormatError(
            f"{path}: {dataset.name} has the type {stored[name].dtype}, expected float32"
        )
    return name


def _check_extra_datasets(stored: Stored, names: dict[str, str], path: Path) -> None:
    """Raise FormatError for a part of a model that the options do not mention."""
    parts = ("char_embed", "CNN", "RNN_", "rnn", "softmax")
    for name in sorted(set(stored) - set(names.values())):
        if name.startswith(parts):
            raise FormatError(
                f"{path}: {name} is there, but the options do not mention it; "
                "do the two files belong together?"
            )


def _read_tensors(
    stored: Stored,
    names: Mapping[str, str],
    datasets: Sequence[_Dataset],
    weights: Path,
    max_bytes: float,
) -> dict[str, torch.Tensor]:
    """The parameters in the arrays with these names, of at most so many bytes."""
    declared = sum(
        math.prod(stored[name].shape) * stored[name].dtype.itemsize for name in names.values()
    )
    check_declared_size(weights, declared, max_bytes, "bytes of weights")
    tensors = {}
    for dataset in datasets:
        array = np.asarray(stored[names[dataset.name]][()], np.float32)
        for name, ours in zip(dataset.parameters, dataset.to_ours(array), strict=True):
            tensors[name] = torch.from_numpy(ours).contiguous()  # torch transposes with all cores
    return tensors


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
