"""The HDF5 weights of bilm-tf and AllenNLP."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import torch

from elmokit.config import BiLMConfig, CharacterConfig
from elmokit.errors import ConfigError, FormatError, InputError
from elmokit.formats.bilm_tf_options import Options, read_options, write_options
from elmokit.formats.pretrained import Pretrained
from elmokit.model.bilm import BiLM, LanguageModel
from elmokit.model.softmax import AdaptiveSoftmax, Softmax
from elmokit.vocab import read_vocabulary

Array = npt.NDArray[np.float32]

# A compressed file may declare more than its own size, but weights hardly compress.
_LARGEST_EXPANSION = 20


def read_bilm_tf(options: Path, weights: Path, *, tokenizer: str | None = None) -> Pretrained:
    """The model of an options and a weights file, with the vocab.txt beside if it has words."""
    described = read_options(options)
    with _explaining(weights), h5py.File(weights, "r") as file:
        stored = _stored(file)
        _refuse_other_hdf5(stored, file, weights)
        config = _config(described, stored, options, weights)
        words = _softmax_words(stored, weights)
        wanted = [*_datasets(config, softmax_words=words)]
        found = {dataset.name: _find(stored, dataset, weights) for dataset in wanted}
        _refuse_more_than_wanted(stored, found, weights)
        _refuse_more_than_the_file(stored, found, weights)
        tensors = {}
        for dataset in wanted:
            array = np.asarray(stored[found[dataset.name]][()], np.float32)
            for name, ours in zip(dataset.parameters, dataset.ours(array), strict=True):
                tensors[name] = torch.from_numpy(ours).contiguous()  # torch turns with all cores
    with torch.device("meta"):
        softmax = None if words is None else Softmax(words, config.projection_size)
        model = LanguageModel(BiLM(config), softmax)
    model.load_state_dict(tensors, assign=True)
    beside = weights.parent / "vocab.txt"
    has_words = words is not None or config.vocabulary_size is not None
    vocabulary = read_vocabulary(beside) if has_words and beside.is_file() else None
    return Pretrained(
        model, vocabulary, tokenizer or described.elmokit.split, described.elmokit.card
    )


def write_bilm_tf(pretrained: Pretrained, options: Path, weights: Path) -> None:
    """An options file and a weights file; the softmax goes in as softmax/W and softmax/b."""
    model = pretrained.model
    config = model.bilm.config
    if config.directions == ("backward",):
        raise FormatError("bilm-tf's files hold no model that only reads backward")
    if config.forget_bias != 1.0:
        raise FormatError(
            f"bilm-tf adds 1.0 to every forget gate, but this model adds {config.forget_bias}"
        )
    tensors = model.state_dict()
    if isinstance(model.softmax, AdaptiveSoftmax):
        raise InputError(
            "an adaptive softmax has no place in bilm-tf's files; they hold a full or sampled one"
        )
    words = None if model.softmax is None else model.softmax.num_words
    with h5py.File(weights, "w") as file:
        for dataset in _datasets(config, softmax_words=words):
            ours = [tensors[name].float().cpu().numpy() for name in dataset.parameters]
            file[dataset.name] = dataset.theirs(*ours)
    write_options(pretrained, options)


def _config(
    options: Options, stored: dict[str, h5py.Dataset], path: Path, weights: Path
) -> BiLMConfig:
    """The shape that the options describe; the words of a word-level model stand in the weights."""
    table_words = None
    if options.char_cnn is None:
        if "embedding" not in stored or not stored["embedding"].shape:
            raise FormatError(
                f"{weights}: no table called embedding, which a word-level model "
                f"(no char_cnn in {path.name}) must have; is {path.name} of another model?"
            )
        table_words = len(stored["embedding"])
    try:
        # Names that TensorFlow gave to a reader are those of a model with one.
        one_reader = any(name.startswith("rnn/") for name in stored)
        return options.config(table_words, bidirectional=options.bidirectional and not one_reader)
    except ConfigError as error:
        raise FormatError(f"{path}: {error}") from None


@dataclass(frozen=True)
class _Dataset:
    """A dataset of bilm-tf, the parameters of ours that it holds, and the way between them."""

    name: str
    shape: tuple[int, ...]
    parameters: tuple[str, ...]
    ours: Callable[[Array], tuple[Array, ...]] = lambda array: (array,)
    theirs: Callable[..., Array] = lambda array: array


def _datasets(config: BiLMConfig, *, softmax_words: int | None) -> Iterator[_Dataset]:
    """Every dataset that a model of this shape has."""
    if config.characters is not None:
        yield from _encoder_datasets(config.characters, config.projection_size)
    else:
        assert config.vocabulary_size is not None
        yield _table("embedding", config.vocabulary_size, config.projection_size)
    for place in range(len(config.directions)):
        for layer in range(config.num_layers):
            yield from _reader_datasets(config, place, layer)
    if softmax_words is not None:
        yield _Dataset("softmax/W", (softmax_words, config.projection_size), ("softmax.weight",))
        yield _Dataset("softmax/b", (softmax_words,), ("softmax.bias",))


def _encoder_datasets(characters: CharacterConfig, dim: int) -> Iterator[_Dataset]:
    features = characters.num_filters
    # The file has no row for padding words.
    yield _table("char_embed", characters.num_characters - 1, characters.embedding_size)
    for place, (seen, made) in enumerate(characters.filters):
        shape = 1, seen, characters.embedding_size, made
        yield _Dataset(
            f"CNN/W_cnn_{place}",
            shape,
            (f"bilm.encoder.filters.{place}.weight",),
            lambda array: (array.reshape(-1, array.shape[-1]).T,),
            lambda array, shape=shape: array.T.reshape(shape),
        )
        yield _Dataset(f"CNN/b_cnn_{place}", (made,), (f"bilm.encoder.filters.{place}.bias",))
    for place in range(characters.highway_layers):
        # What bilm-tf calls carry is the gate of the reworked vector.
        for theirs, ours in (("carry", "gate"), ("transform", "rework")):
            name, parameter = f"CNN_high_{place}", f"bilm.encoder.highways.{place}.{ours}"
            yield _transposed(f"{name}/W_{theirs}", (features, features), f"{parameter}.weight")
            yield _Dataset(f"{name}/b_{theirs}", (features,), (f"{parameter}.bias",))
    if features != dim:
        parameter = "bilm.encoder.projection"
        yield _transposed("CNN_proj/W_proj", (features, dim), f"{parameter}.weight")
        yield _Dataset("CNN_proj/b_proj", (dim,), (f"{parameter}.bias",))


def _reader_datasets(config: BiLMConfig, place: int, layer: int) -> Iterator[_Dataset]:
    dim, cell_dim = config.projection_size, config.cell_size
    name = f"RNN_{place}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    parameter = f"bilm.lstms.{place}.layers.{layer}"
    yield _Dataset(
        f"{name}/W_0",
        (2 * dim, 4 * cell_dim),
        (f"{parameter}.input_weight", f"{parameter}.recurrent_weight"),
        lambda array: (_our_gates(array[:dim]).T, _our_gates(array[dim:]).T),
        lambda seen, said: np.concatenate([_their_gates(seen).T, _their_gates(said).T]),
    )
    yield _Dataset(
        f"{name}/B",
        (4 * cell_dim,),
        (f"{parameter}.bias",),
        lambda array: (_our_gates(array),),
        _their_gates,
    )
    if dim != cell_dim:
        yield _transposed(f"{name}/W_P_0", (cell_dim, dim), f"{parameter}.projection")


def _table(name: str, rows: int, dim: int) -> _Dataset:
    """A table without a row for padding, which ours has first, all zero."""
    return _Dataset(
        name,
        (rows, dim),
        ("bilm.encoder.embedding.weight",),
        lambda array: (np.concatenate([np.zeros((1, dim), np.float32), array]),),
        lambda array: array[1:],
    )


def _transposed(name: str, shape: tuple[int, ...], parameter: str) -> _Dataset:
    return _Dataset(name, shape, (parameter,), lambda array: (array.T,), lambda array: array.T)


def _our_gates(array: Array) -> Array:  # (..., 4 * cell_dim) -> (..., 4 * cell_dim)
    """TensorFlow has its gates as input, candidate, forget, output; we have the candidate last."""
    input_, candidate, forget, output = np.split(array, 4, axis=-1)
    return np.concatenate([input_, forget, output, candidate], axis=-1)


def _their_gates(array: Array) -> Array:
    gates = array.reshape(4, -1, *array.shape[1:])
    return gates[[0, 3, 1, 2]].reshape(array.shape)


def _softmax_words(stored: dict[str, h5py.Dataset], path: Path) -> int | None:
    shapes = [stored[n].shape if n in stored else None for n in ("softmax/W", "softmax/b")]
    if shapes == [None, None]:
        return None
    table, bias = shapes
    if table is None or bias is None or len(table) != 2 or bias != table[:1]:
        raise FormatError(
            f"{path}: softmax/W and softmax/b have the shapes {table} and {bias}, "
            "expected (words, dim) and (words,)"
        )
    return int(table[0])


def _stored(file: h5py.File) -> dict[str, h5py.Dataset]:
    """The datasets of a file by name; links to elsewhere are not followed."""
    stored: dict[str, h5py.Dataset] = {}

    def visit(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset) and not item.external and not item.is_virtual:
            stored[name] = item

    file.visititems(visit)
    return stored


def _refuse_other_hdf5(stored: dict[str, h5py.Dataset], file: h5py.File, path: Path) -> None:
    """An error that says what an HDF5 file is, where it is not a model's weights."""
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
        raise FormatError(f"{path}: this is a Keras model, not a bilm-tf weights file")
    found = ", ".join(sorted(names)[:5]) or "nothing"
    raise FormatError(
        f"{path}: no dataset called char_embed and no RNN_0 (found {found}), "
        "expected the weights file of a bilm-tf model"
    )


def _find(stored: dict[str, h5py.Dataset], dataset: _Dataset, path: Path) -> str:
    """The name under which a dataset stands in the file, its shape and type checked."""
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


def _refuse_more_than_wanted(
    stored: dict[str, h5py.Dataset], found: dict[str, str], path: Path
) -> None:
    """A part of a model that the options do not mention would be left out without a word."""
    parts = ("char_embed", "CNN", "RNN_", "rnn", "softmax")
    for name in sorted(set(stored) - set(found.values())):
        if name.startswith(parts):
            raise FormatError(
                f"{path}: {name} is there, but the options do not ask for it; "
                "do the two files belong together?"
            )


def _refuse_more_than_the_file(
    stored: dict[str, h5py.Dataset], found: dict[str, str], path: Path
) -> None:
    """Sizes that a small file only claims to have are not allocated."""
    declared = sum(stored[name].nbytes for name in found.values())
    if declared > _LARGEST_EXPANSION * path.stat().st_size:
        raise FormatError(
            f"{path}: declares {declared:,} bytes of weights, but the whole file has only "
            f"{path.stat().st_size:,}; it is broken, or not what it seems"
        )


def _spellings(name: str) -> Iterator[str]:
    """The names under which bilm-tf's dump_weights left a dataset.

    With one layer it wrote no MultiRNNCell/Cell0; of a model with one direction it left
    TensorFlow's own names of the reader.
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
def _explaining(path: Path) -> Iterator[None]:
    """What h5py raises for a broken file, said in a sentence."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, UnicodeError) as error:
        raise FormatError(
            f"{path}: cannot be read as HDF5 ({error}); was the file cut short?"
        ) from None
