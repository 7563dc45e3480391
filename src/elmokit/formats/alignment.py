"""Matrices that turn the layers of one language's model to those of another's, from files.

Schuster et al. (2019) published them for seven languages: a layer's vectors are multiplied by the
transposed matrix. A .pth file of theirs has one NumPy array, pickled by torch.
"""

import os
import re
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
from elmokit.formats.archives import DAMAGED, load_torch_file
from elmokit.model_config import BiLMConfig

Align = str | Path | Mapping[int, str | Path | npt.ArrayLike | Tensor]
Matrix = npt.NDArray[Any]

_LAYER_OF_A_PTH = 1  # of the published matrices; those of other layers are files of their own
_MAX_MATRICES = 16  # of a file


def read_alignment(align: Align, config: BiLMConfig) -> dict[int, Tensor]:
    """The matrix of each layer that is to be aligned, float32."""
    dim, top = config.output_size, config.num_layers
    if isinstance(align, str | os.PathLike):
        matrices = _read(Path(align), dim)
    elif not isinstance(align, Mapping):
        raise InputError(
            f"align is of the type {type(align).__name__}, expected a file, or a dictionary of "
            "matrices by their layers, such as {1: matrix}"
        )
    else:
        matrices = {}
        for layer, source in align.items():
            if isinstance(source, str | Path):
                matrices[layer] = read_matrix(Path(source), dim)
            else:
                matrix = source.detach().cpu() if isinstance(source, Tensor) else source
                matrices[layer] = _checked(np.asarray(matrix), f"align[{layer!r}]", dim)
    # 1.0 and True equal 1, but are no numbers of layers.
    allowed = [layer for layer in matrices if type(layer) is int and 0 <= layer <= top]
    if not matrices or len(allowed) < len(matrices):
        raise InputError(
            f"align has matrices of the layers {[*matrices]}, but the model has 0 to {top}; give "
            "at least one of them, as an int"
        )
    return matrices


def read_matrix(path: Path, dim: int) -> Tensor:
    """The only matrix of a file, (dim, dim), float32."""
    matrices = _read(path, dim)
    if len(matrices) != 1:
        raise FormatError(f"{path}: has {len(matrices)} matrices, expected that of one layer")
    return next(iter(matrices.values()))


def _read(path: Path, dim: int) -> dict[int, Tensor]:
    """The matrices of a file by layer."""
    if not path.is_file():
        raise FormatError(f"{path}: no such file")
    max_bytes = _MAX_MATRICES * (8 * dim**2 + 2**12)  # float64; nothing larger is unpacked
    try:
        declared = path.stat().st_size
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                declared = sum(info.file_size for info in archive.infolist())
        if declared > max_bytes:
            raise FormatError(
                f"{path}: has {declared:,} bytes, expected at most {max_bytes:,} in matrices of "
                f"{dim} dimensions; is it for this model?"
            )
        arrays = _read_npz(path) if path.suffix == ".npz" else {_LAYER_OF_A_PTH: _read_pth(path)}
    except FormatError:
        raise
    except DAMAGED as error:
        if isinstance(error, UnpicklingError) and "Unsupported global" in str(error):
            raise FormatError(
                f"{path}: holds Python objects besides an array, which are not loaded because "
                "they may run programs; is the file what it claims to be?"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FormatError(
            f"{path}: cannot be read as an .npz or .pth file ({reason}); was it cut short?"
        ) from None
    return {layer: _checked(array, str(path), dim) for layer, array in arrays.items()}


def _checked(matrix: Matrix, name: str, dim: int) -> Tensor:
    if matrix.shape != (dim, dim) or matrix.dtype.kind != "f":
        raise FormatError(
            f"{name}: a matrix has the shape {matrix.shape} and the type {matrix.dtype}, expected "
            f"({dim}, {dim}) and floating-point numbers; is it for this model?"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = matrix.astype(np.float32)
    if not np.isfinite(numbers).all():
        raise FormatError(f"{name}: a matrix holds a number that is no finite float32")
    return torch.from_numpy(numbers)


def _read_npz(path: Path) -> dict[int, Matrix]:
    """The arrays of a file of np.savez, which are named by their layers."""
    matrices = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            name = member.removesuffix(".npy")
            if not re.fullmatch("0|[1-9][0-9]{0,8}", name):
                raise FormatError(
                    f"{path}: has an array called {name}, expected names that are layers, such as "
                    "in np.savez(path, **{'1': matrix})"
                )
            if int(name) in matrices:
                raise FormatError(f"{path}: has two arrays called {name}, expected one of a layer")
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
    with torch.serialization.safe_globals(stand_ins):
        loaded = load_torch_file(path)
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
