"""lm_1b: the language model of Jozefowicz et al. (2016), from its TensorFlow checkpoint.

It reads forward only: a character CNN, and LSTMs with peephole connections. The names and shapes of
its variables are those that elibryan/lm1b and diagnnose restore; its graph file is not needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.errors import ConfigError, FormatError
from elmokit.formats.bilm_tf import Stored, StoredArray, build_model
from elmokit.formats.model_format import register_format
from elmokit.formats.pretrained import DEFAULT_TOKENIZER, Pretrained
from elmokit.formats.tf_v1_checkpoint import read_slices
from elmokit.model_config import BiLMConfig, CharacterConfig
from elmokit.vocab import Vocabulary, read_vocabulary

Array = npt.NDArray[Any]

_MAX_CHARACTERS = 50
_NUM_CHARACTERS = 256
# Begin and end of sentence, begin and end of word, padding: bytes that are in no word.
_NUM_SPECIAL = 5
_GATE_BIAS = -2.0  # added to the gates of the highway layers, besides the stored bias
_MAX_SHARDS = 100  # lm_1b has 8
_UNUSED = "<unused-{}>"


@register_format(
    "lm_1b",
    {
        "LSTMs": ("ckpt-lstm",),
        "character CNN": ("ckpt-char-embedding",),
        "vocabulary": ("vocab*.txt",),
    },
    ("ckpt-softmax*",),
)
def read_lm_1b(folder: Path, tokenizer: str | None = None) -> Pretrained:
    """The model in a folder with the published files; without ckpt-softmax*, it has no softmax."""
    vocabularies = sorted(folder.glob("vocab*.txt"))
    if len(vocabularies) > 1:
        names = ", ".join(path.name for path in vocabularies)
        raise FormatError(f"{folder}: more than one vocabulary: {names}; leave one of them")
    vocabulary = read_vocabulary(vocabularies[0])
    variables = _Variables(folder, _read_files(folder))
    arrays = {
        **_encoder_arrays(variables, _special_bytes(vocabulary)),
        **_lstm_arrays(variables),
    }
    has_softmax = any(name.startswith("softmax/") for name in variables.stored)
    if has_softmax:
        arrays |= {
            "softmax/W": variables.join("softmax/W", interleaved=True),
            "softmax/b": variables.get("softmax/b", 1),
        }
    model = build_model(arrays, _config(arrays, folder), folder)
    if model.softmax is not None:
        vocabulary = _with_unused_words(vocabulary, model.softmax.num_words, vocabularies[0])
    return Pretrained(model, vocabulary if has_softmax else None, tokenizer or DEFAULT_TOKENIZER)


def _read_files(folder: Path) -> dict[str, StoredArray]:
    """The variables of all files of the checkpoint."""
    stored: dict[str, StoredArray] = {}
    paths = [folder / "ckpt-char-embedding", folder / "ckpt-lstm"]
    for path in [*paths, *sorted(folder.glob("ckpt-softmax*"))]:
        for name, array in read_slices(path).items():
            if name in stored:
                raise FormatError(f"{path}: {name} is in another file of the folder, too")
            stored[name] = array
    return stored


def _special_bytes(vocabulary: Vocabulary) -> list[int]:
    """The bytes that mark boundaries: the first that are in no word (13 are in no UTF-8 text)."""
    used = {*b"".join(word.encode() for word in vocabulary)}
    return [byte for byte in range(_NUM_CHARACTERS) if byte not in used][:_NUM_SPECIAL]


def _with_unused_words(vocabulary: Vocabulary, rows: int, path: Path) -> Vocabulary:
    """The vocabulary with names for the last rows of the softmax, which stand for no word.

    There are 793,471 words and 800,000 rows; the rows are a part of the distribution.
    """
    if not len(vocabulary) <= rows < 2 * len(vocabulary):
        raise FormatError(
            f"{path}: has {len(vocabulary):,} words, but the softmax {rows:,} rows; is it the "
            "vocabulary of this model?"
        )
    unused = [_UNUSED.format(number) for number in range(len(vocabulary), rows)]
    return Vocabulary([*vocabulary, *unused])


def _encoder_arrays(variables: "_Variables", special: list[int]) -> dict[str, StoredArray]:
    """The character CNN, by the names of bilm-tf's datasets."""
    scope = "char_embedding"

    def characters(rows: Array) -> Array:
        """The rows of all bytes, then those of the boundaries, which are no bytes in bilm-tf."""
        return rows[[*range(_NUM_CHARACTERS), *special]]

    embedding = variables.get(f"{scope}/W", 2)
    if embedding.shape[0] != _NUM_CHARACTERS:
        raise FormatError(
            f"{variables.folder}: {scope}/W has {embedding.shape[0]} rows, expected "
            f"{_NUM_CHARACTERS}, one for each byte"
        )
    rows = _NUM_CHARACTERS + _NUM_SPECIAL
    arrays: dict[str, StoredArray] = {
        "char_embed": _Converted((rows, embedding.shape[1]), (embedding,), characters)
    }
    for number in variables.numbers(f"{scope}/cnn_"):
        kernel = variables.get(f"{scope}/cnn_{number}/kernel", 4)
        width, dim, channels, filters = kernel.shape
        arrays[f"CNN/W_cnn_{number}"] = _Converted(
            (channels, width, dim, filters), (kernel,), lambda array: array.transpose(2, 0, 1, 3)
        )
        arrays[f"CNN/b_cnn_{number}"] = variables.bias(f"{scope}/cnn_{number}/b", 4)
    for number in variables.numbers(f"{scope}/dense_"):
        layer, name = f"{scope}/dense_{number}", f"CNN_high_{number}"
        arrays[f"{name}/W_carry"] = variables.join(f"{layer}/gate/W")
        arrays[f"{name}/b_carry"] = variables.bias(f"{layer}/gate/b", 2, _GATE_BIAS)
        arrays[f"{name}/W_transform"] = variables.join(f"{layer}/tr/W")
        arrays[f"{name}/b_transform"] = variables.bias(f"{layer}/tr/b", 2)
    arrays["CNN_proj/W_proj"] = variables.join(f"{scope}/proj/W")
    arrays["CNN_proj/b_proj"] = variables.bias(f"{scope}/proj/b", 2)
    return arrays


def _lstm_arrays(variables: "_Variables") -> dict[str, StoredArray]:
    """The LSTMs, by the names of bilm-tf's datasets; peepholes are elmokit's own."""
    arrays: dict[str, StoredArray] = {}
    for layer in variables.numbers("lstm/lstm_"):
        scope, cell = f"lstm/lstm_{layer}", f"RNN_0/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        arrays[f"{cell}/W_0"] = variables.join(f"{scope}/W")
        arrays[f"{cell}/B"] = variables.get(f"{scope}/B", 1)
        arrays[f"{cell}/W_P_0"] = variables.join(f"{scope}/W_P")
        gates = variables.alike([f"{scope}/W_{gate}_diag" for gate in "IFO"], 1)
        arrays[f"{cell}/peepholes"] = _Converted(
            (len(gates), *gates[0].shape), gates, lambda *rows: np.stack(rows)
        )
    return arrays


def _config(arrays: Stored, folder: Path) -> BiLMConfig:
    """The configuration, whose sizes are those of the arrays."""
    cell = "RNN_0/RNN/MultiRNNCell/Cell{}/LSTMCell/W_P_0"
    filters, highways, layers = (
        [name for name in arrays if name.startswith(prefix) and name.endswith(suffix)]
        for prefix, suffix in (("CNN/W_", ""), ("CNN_high_", "W_carry"), ("RNN_0/", "W_P_0"))
    )
    if not filters or not layers:
        raise FormatError(
            f"{folder}: the checkpoint has no filters or no LSTMs, expected variables "
            "char_embedding/cnn_0/... and lstm/lstm_0/...; are these the files of lm_1b?"
        )
    cell_size, dim = arrays[cell.format(0)].shape
    try:
        return BiLMConfig(
            projection_size=dim,
            cell_size=cell_size,
            num_layers=len(layers),
            characters=CharacterConfig(
                max_characters=_MAX_CHARACTERS,
                embedding_size=arrays["char_embed"].shape[1],
                filters=tuple((arrays[name].shape[1], arrays[name].shape[3]) for name in filters),
                activation="relu",
                highway_layers=len(highways),
            ),
            directions=("forward",),
            skip_connections=False,
            cell_clip=None,
            projection_clip=None,
            peepholes=True,
        )
    except ConfigError as error:
        raise FormatError(f"{folder}: {error}") from None


@dataclass(frozen=True)
class _Variables:
    """The variables of the checkpoint by name."""

    folder: Path
    stored: Stored

    def get(self, name: str, rank: int) -> StoredArray:
        """The variable with so many axes."""
        array = self.stored.get(name)
        if array is None:
            raise FormatError(
                f"{self.folder}: no variable {name}, which lm_1b has; is a file of the checkpoint "
                "missing?"
            )
        if len(array.shape) != rank:
            raise FormatError(
                f"{self.folder}: {name} has the shape {array.shape}, expected {rank} sizes; is "
                "this lm_1b?"
            )
        return array

    def bias(self, name: str, rank: int, added: float = 0.0) -> StoredArray:
        """A bias as a vector, plus a number; in lm_1b it has axes of one number before it."""
        stored = self.get(name, rank)
        if any(size != 1 for size in stored.shape[:-1]):
            raise FormatError(
                f"{self.folder}: {name} has the shape {stored.shape}, expected 1 for all sizes but "
                "the last; is this lm_1b?"
            )
        return _Converted(
            (stored.shape[-1],), (stored,), lambda array: array.reshape(-1) + np.float32(added)
        )

    def numbers(self, scope: str) -> Iterator[int]:
        """0, 1, ... as long as there is a variable of a scope with the number."""
        for number in count():
            if not any(name.startswith(f"{scope}{number}/") for name in self.stored):
                return
            yield number

    def alike(self, names: Sequence[str], rank: int) -> tuple[StoredArray, ...]:
        """The variables, which have one shape."""
        arrays = tuple(self.get(name, rank) for name in names)
        if len({array.shape for array in arrays}) > 1:
            raise FormatError(
                f"{self.folder}: {', '.join(names)} have the shapes "
                f"{[array.shape for array in arrays]}, expected one shape; is this lm_1b?"
            )
        return arrays

    def join(self, name: str, *, interleaved: bool = False) -> StoredArray:
        """The matrix of name_0, name_1, ...: one after the other, or a row of each in turn."""
        names = [f"{name}_{number}" for number in range(_MAX_SHARDS)]
        known = [*takewhile(self.stored.__contains__, names)] or names[:1]
        shards = self.alike(known, 2)
        return _Joined(shards, interleaved)


@dataclass(frozen=True)
class _Joined:
    """A matrix of which each shard has as many rows."""

    shards: tuple[StoredArray, ...]
    interleaved: bool

    @property
    def shape(self) -> tuple[int, ...]:
        rows, columns = self.shards[0].shape
        return rows * len(self.shards), columns

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.shards[0].dtype

    def __getitem__(self, _: tuple[()], /) -> Array:
        joined = np.empty(self.shape, self.dtype)
        rows = self.shards[0].shape[0]
        for number, shard in enumerate(self.shards):  # one at a time: the softmax has 3.3 GB
            start = number * rows
            part = (
                slice(number, None, len(self.shards))
                if self.interleaved
                else slice(start, start + rows)
            )
            joined[part] = shard[()]
        return joined


@dataclass(frozen=True)
class _Converted:
    """An array that is computed of stored ones when it is read."""

    shape: tuple[int, ...]
    sources: tuple[StoredArray, ...]
    convert: Callable[..., Array]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.sources[0].dtype

    def __getitem__(self, _: tuple[()], /) -> Array:
        return self.convert(*(source[()] for source in self.sources))
