"""Models in TensorFlow checkpoints: training runs of bilm-tf, and modules of TF-Hub."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError
from elmokit.formats.bilm_tf import Stored, StoredArray, has_vocabulary, read_model
from elmokit.formats.model_format import register_format
from elmokit.formats.options_json import (
    CharacterOptions,
    EmbeddingOptions,
    LstmOptions,
    Options,
    read_options,
)
from elmokit.formats.pretrained import Pretrained, StoredMix
from elmokit.formats.tf_v1_checkpoint import read_slices
from elmokit.formats.tf_v2_checkpoint import read_bundle
from elmokit.model.scalar_mix import ScalarMix
from elmokit.vocab import read_vocabulary

# A checkpoint lies in the folder itself, or where DeepPavlov or a SavedModel have it.
_FOLDERS = ("", "saves/", "saves/epochs/*/", "variables/")
_OPTIONS, _VOCABULARY = "*options*.json", "vocab*.txt"
_LATEST = "checkpoint"  # TensorFlow's file that names the latest of several


@register_format(
    "tf-checkpoint",
    {"index of a checkpoint": tuple(f"{folder}*.index" for folder in _FOLDERS)},
    (
        _OPTIONS,
        _VOCABULARY,
        *(f"{folder}{file}" for folder in _FOLDERS for file in ("*.data-*-of-*", _LATEST)),
    ),
)
def read_checkpoint_folder(folder: Path, tokenizer: str | None = None) -> Pretrained:
    """The model of the latest checkpoint in a folder: bilm-tf's save_dir, or a TF-Hub module."""
    options = sorted(folder.glob(_OPTIONS))
    if len(options) > 1:
        names = ", ".join(path.name for path in options)
        raise FormatError(f"{folder}: more than one options file: {names}; give files by name")
    index = _latest_index(folder)
    return read_checkpoint(index, options[0] if options else None, tokenizer)


def read_checkpoint(
    index: Path, options: Path | None = None, tokenizer: str | None = None
) -> Pretrained:
    """The model of a checkpoint, given its index, with the vocabulary beside the options or it.

    A checkpoint in TensorFlow's first format is one file without an index.

    Without an options file, the one beside the index is read. A TF-Hub module needs none: its
    sizes are those of its arrays, and all else is as in the published modules.
    """
    variables: Stored = read_bundle(index) if index.suffix == ".index" else read_slices(index)
    arrays, mix_scalars = _rename(variables)
    if "lstm/lstm_0/B" in variables or "char_embedding/W" in variables or "softmax/b" in variables:
        raise FormatError(f"{index}: this is one file of lm_1b; give the folder with all of them")
    if not any(name.startswith(("RNN_0/", "rnn/")) for name in arrays):
        raise FormatError(
            f"{index}: no LSTMs of a biLM, expected a checkpoint of bilm-tf (variables lm/…) or a "
            "module of TF-Hub (bilm/…)"
        )
    if options is None:
        options = next(iter(sorted(index.parent.glob(_OPTIONS))), None)
    if options is not None:
        description = read_options(options)
    elif mix_scalars:
        description = _published_options(arrays, index)
    else:
        raise FormatError(
            f"{index}: no options.json beside it, expected the one that bilm-tf wrote into the "
            "run's folder; put it there, or give both files"
        )
    model = read_model(arrays, description, options or index, index)
    vocabulary = _find_vocabulary((options or index).parent, index.parent)
    return Pretrained(
        model,
        read_vocabulary(vocabulary) if vocabulary and has_vocabulary(model) else None,
        tokenizer or description.elmokit.split,
        description.elmokit.card,
        _mix(mix_scalars, index),
    )


def _find_vocabulary(*folders: Path) -> Path | None:
    """The vocabulary in the first folder that has one: vocab.txt, or the only vocab*.txt."""
    for folder in folders:
        paths = sorted(folder.glob(_VOCABULARY))
        if len(paths) == 1 or folder / "vocab.txt" in paths:
            return paths[0] if len(paths) == 1 else folder / "vocab.txt"
    return None


def _latest_index(folder: Path) -> Path:
    indices = sorted(path for part in _FOLDERS for path in folder.glob(f"{part}*.index"))
    if len(indices) == 1:
        return indices[0]
    for path in (path for part in _FOLDERS for path in folder.glob(f"{part}{_LATEST}")):
        latest = re.search(
            r'^model_checkpoint_path: *"(?:.*[/\\])?([^"\n]+)"',
            path.read_text("utf-8", "replace"),
            re.MULTILINE,
        )
        if latest and path.with_name(f"{latest[1]}.index") in indices:
            return path.with_name(f"{latest[1]}.index")
    names = ", ".join(path.relative_to(folder).as_posix() for path in indices)
    raise FormatError(
        f"{folder}: more than one checkpoint, and no file `{_LATEST}` that names the latest: "
        f"{names}; give the .index file of one"
    )


# The variables of an LSTM cell: bilm-tf's with one direction or layer have shorter names, and the
# names of cells changed with TensorFlow 1.0 and 1.2. The last form is that of bilm-tf's HDF5 files.
_LSTM = re.compile(
    r"(RNN_[01]/)?(?:rnn|RNN)/(?:(?:multi_rnn_cell/cell_|MultiRNNCell/Cell)(\d+)/)?"
    r"(?:rnn/)?(?:lstm_cell|LSTMCell)/(.+)"
)
_LSTM_PARTS = {
    "kernel": "W_0", "weights": "W_0", "W_0": "W_0",
    "bias": "B", "biases": "B", "B": "B",
    "projection/kernel": "W_P_0", "projection/weights": "W_P_0", "W_P_0": "W_P_0",
}  # fmt: skip
_UNMAPPED_PARTS = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
_OPTIMIZER = re.compile(r".*/(Adagrad|Adam|Adam_1)")


def _rename(variables: Stored) -> tuple[dict[str, StoredArray], dict[str, StoredArray]]:
    """A biLM's arrays by the names of bilm-tf's HDF5 files, and the scalars of a module's mix."""
    arrays: dict[str, StoredArray] = {}
    mix: dict[str, StoredArray] = {}
    for variable, array in variables.items():
        scope, _, name = variable.removeprefix("module/").partition("/")
        if scope == "aggregation":  # weights and scaling; DeepPavlov: …_ELMo_W and …_ELMo_gamma
            mix["scale" if name.endswith(("scaling", "gamma")) else "weights"] = array
        elif scope in ("lm", "bilm") and not _OPTIMIZER.fullmatch(name):
            arrays[_hdf5_name(name)] = array
    if "softmax/b" in arrays and "softmax/W" not in arrays and "embedding" in arrays:
        arrays["softmax/W"] = arrays["embedding"]  # share_embedding_softmax
    if "char_embed" in arrays and arrays["char_embed"].shape[:1] == (262,):
        arrays["char_embed"] = _WithoutPadding(arrays["char_embed"])
    return arrays, mix


def _hdf5_name(variable: str) -> str:
    match = _LSTM.fullmatch(variable)
    if match is None or match[3] not in _LSTM_PARTS:
        return variable
    cell, part = f"MultiRNNCell/Cell{match[2] or 0}/LSTMCell", _LSTM_PARTS[match[3]]
    if match[1] is None:  # one direction, where dump_weights left TensorFlow's names
        return f"rnn/{cell}/{_UNMAPPED_PARTS[part]}"
    return f"{match[1]}RNN/{cell}/{part}"


@dataclass(frozen=True)
class _WithoutPadding:
    """The character embedding of a module, without the row for padding that it begins with."""

    array: StoredArray

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.array.shape[0] - 1, *self.array.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, key: tuple[()], /) -> npt.NDArray[Any]:
        rows: npt.NDArray[Any] = self.array[()][1:]
        return rows


def _published_options(arrays: Stored, index: Path) -> Options:
    """The options of a TF-Hub module: google/elmo's, but for the sizes, which its arrays show."""
    filters: list[tuple[int, ...]] = []
    while (name := f"CNN/W_cnn_{len(filters)}") in arrays:
        filters.append(_shape(arrays, name, 4, index)[1::2])  # (1, width, dim, number)
    highways = sum(re.fullmatch(r"CNN_high_\d+/b_carry", name) is not None for name in arrays)
    cells = "RNN_0/RNN/MultiRNNCell/Cell{}/LSTMCell/W_0"
    inputs, gates = _shape(arrays, cells.format(0), 2, index)
    num_layers = sum(cells.format(layer) in arrays for layer in range(100))
    return Options(
        lstm=LstmOptions(
            dim=gates // 4,
            projection_dim=inputs // 2,
            n_layers=num_layers,
            cell_clip=3.0,
            proj_clip=3.0,
            use_skip_connections=True,
        ),
        char_cnn=CharacterOptions(
            activation="relu",
            filters=tuple((width, number) for width, number in filters),
            embedding=EmbeddingOptions(_shape(arrays, "char_embed", 2, index)[1]),
            n_highway=highways,
        ),
    )


def _shape(arrays: Stored, name: str, rank: int, index: Path) -> tuple[int, ...]:
    shape = arrays[name].shape if name in arrays else ()
    if len(shape) != rank:
        raise FormatError(
            f"{index}: {name} of the biLM has the shape {shape}, expected {rank} sizes; is this a "
            "module of TF-Hub?"
        )
    return shape


def _mix(scalars: Stored, index: Path) -> ScalarMix | None:
    """The mix of a module; TensorFlow added 1/layers to all weights, which changes nothing."""
    if not scalars:
        return None
    if {*scalars} != {"weights", "scale"} or scalars["scale"].shape not in ((), (1,)):
        shapes = {name: array.shape for name, array in scalars.items()}
        raise FormatError(f"{index}: the mix has the shapes {shapes}, expected weights and a scale")
    weights, scale = (np.asarray(scalars[name][()], np.float32) for name in ("weights", "scale"))
    return StoredMix(tuple(weights.ravel().tolist()), scale.item()).mix()
