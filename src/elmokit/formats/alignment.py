"""Matrices that turn the layers of one language's model to those of another's, from files.

Schuster et al. (2019) published them for seven languages: a layer's vectors are multiplied by the
transposed matrix. A .pth file of theirs has one NumPy array, pickled by torch.
"""

import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.errors import FormatError, InputError
from elmokit.model_config import BiLMConfig

Align = str | Path | Mapping[int, str | Path | npt.ArrayLike | Tensor]
Matrix = npt.NDArray[Any]

_LAYER_OF_A_PTH = 1  # of the published matrices; those of other layers are files of their own

# What torch, NumPy and zipfile raise for a damaged file.
_DAMAGED = (
    AttributeError, EOFError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError,
    UnpicklingError, struct.error, zipfile.BadZipFile,
)  # fmt: skip


def read_alignment(align: Align, config: BiLMConfig) -> dict[int, Tensor]:
    """The matrix of each layer that is to be aligned, float32."""
    if isinstance(align, Mapping):
        matrices = {layer: _one_matrix(given, config) for layer, given in align.items()}
    else:
        path = Path(align)
        matrices = {layer: (str(path), matrix) for layer, matrix in _read(path, config).items()}
    if not matrices:
        raise InputError(f"{align}: no matrix, expected one for a layer, 0 to {config.num_layers}")
    dim = config.output_size
    for layer, (name, matrix) in matrices.items():
        if isinstance(layer, bool) or layer not in range(config.num_layers + 1):
            raise InputError(
                f"{name}: is for layer {layer!r}, but the model has 0 to {config.num_layers}"
            )
        if matrix.shape != (dim, dim) or matrix.dtype.kind != "f":
            raise InputError(
                f"{name}: the matrix of layer {layer} has the shape {matrix.shape} and the type "
                f"{matrix.dtype}, expected ({dim}, {dim}) and floating-point numbers; is it for "
                "this model?"
            )
        if not np.isfinite(matrix).all():
            raise InputError(f"{name}: the matrix of layer {layer} holds a NaN or an infinity")
    return {
        layer: torch.from_numpy(matrix.astype(np.float32))
        for layer, (_, matrix) in matrices.items()
    }


def _one_matrix(
    given: str | Path | npt.ArrayLike | Tensor, config: BiLMConfig
) -> tuple[str, Matrix]:
    """A matrix and what error messages call it."""
    if isinstance(given, Tensor):
        return "align", given.detach().float().cpu().numpy()
    if not isinstance(given, str | Path):
        return "align", np.asarray(given)
    matrices = _read(Path(given), config)
    if len(matrices) != 1:
        raise InputError(f"{given}: has {len(matrices)} matrices, expected that of one layer")
    return str(given), next(iter(matrices.values()))


def _read(path: Path, config: BiLMConfig) -> dict[int, Matrix]:
    """The matrices of a file by layer."""
    if not path.is_file():
        raise FormatError(f"{path}: no such file")
    # Room for float64 matrices of all layers; nothing larger is unpacked.
    max_bytes = (config.num_layers + 1) * (8 * config.output_size**2 + 2**12)
    try:
        declared = path.stat().st_size
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                declared = sum(info.file_size for info in archive.infolist())
        if declared > max_bytes:
            raise FormatError(
                f"{path}: has {declared:,} bytes, expected at most {max_bytes:,} in the matrices "
                f"of {config.output_size} dimensions; is it for this model?"
            )
        return _read_npz(path) if path.suffix == ".npz" else {_LAYER_OF_A_PTH: _read_pth(path)}
    except FormatError:
        raise
    except _DAMAGED as error:
        if isinstance(error, UnpicklingError) and "Unsupported global" in str(error):
            raise FormatError(
                f"{path}: holds Python objects besides an array, which are not loaded because "
                "they may run programs; is the file what it claims to be?"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FormatError(
            f"{path}: cannot be read as an .npz or .pth file ({reason}); was it cut short?"
        ) from None


def _read_npz(path: Path) -> dict[int, Matrix]:
    """The arrays of a file of np.savez, which are named by their layers."""
    matrices = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            name = member.removesuffix(".npy")
            if not (name.isascii() and name.isdigit()):
                raise FormatError(
                    f"{path}: has an array called {name}, expected names that are layers, such as "
                    "in np.savez(path, **{'1': matrix})"
                )
            with archive.open(member) as file:
                if np.lib.format.read_magic(file) != (1, 0):
                    raise ValueError("an array of an unknown version")
                shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
                # np.load would allocate what the header declares.
                numbers = np.frombuffer(file.read(), dtype)
            matrices[int(name)] = numbers.reshape(shape, order="F" if is_fortran else "C")
    return matrices


def _read_pth(path: Path) -> Matrix:
    """The tensor or array of a file of torch.save; of NumPy's code nothing runs."""
    stand_ins: list[Any] = [
        (_PickledArray, "numpy.ndarray"),
        (_PickledArray, "numpy.core.multiarray._reconstruct"),
        (_PickledArray, "numpy._core.multiarray._reconstruct"),
        (_PickledType, "numpy.dtype"),
    ]
    with torch.serialization.safe_globals(stand_ins), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of a damaged file
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(loaded, Tensor):
        return loaded.detach().numpy()
    if isinstance(loaded, _PickledArray):
        return loaded.array()
    raise FormatError(f"{path}: holds {type(loaded).__name__}, expected one array or tensor")


class _PickledArray:
    """The parts of a pickled NumPy array, in the place of the array and of what builds it."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def array(self) -> Matrix:
        """The array, if these are the parts of one."""
        _, shape, kind, is_fortran, numbers = self.state
        flat: Matrix = np.frombuffer(numbers, f"{kind.byte_order}{kind.name}")
        array: Matrix = flat.reshape(shape, order="F" if is_fortran else "C")
        return array


class _PickledType:
    """The parts of a pickled NumPy type."""

    def __init__(self, name: str, *_: object) -> None:
        self.name, self.byte_order = name, "="

    def __setstate__(self, state: Any) -> None:
        self.byte_order = state[1]
