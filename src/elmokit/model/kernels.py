"""LSTM layers run by a compiled function: products, gates, clips and projection of all steps.

Torch's operations take some microseconds each, and a small LSTM has a dozen of them in a step. The
compiled layer reads its weights once in a step for all rows, from panels in the order in which they
are needed. A row has the same bits alone and in any batch: float32 and float16 numbers are summed
in one order, and int8 weights are multiplied by rows rounded to int16, each with a scale of its
own, whose sums are exact.
"""

import ctypes
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from threading import Lock
from typing import Literal

import torch
from torch import Tensor

from elmokit.compiled_code import MachineFunction, is_installed, load_function, vector_lanes
from elmokit.errors import InputError
from elmokit.model.packed_linear import Precision

logger = logging.getLogger(__name__)

KernelName = Literal["auto", "torch", "numba"]
Kernel = Literal["torch", "numba"]

PANEL_VECTORS = 4  # vectors of outputs in a panel of weights
MAX_ROWS = 6  # of which a panel's sums are kept in registers at a time

# The part of the gates that depends on the input is computed for so many numbers at once.
_WINDOW_NUMBERS = 2**19

# From this many multiplications a thread, two threads are faster than one.
_MIN_WORK_PER_THREAD = 2**22

_ARGUMENT_TYPES = [
    *(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64),  # steps, batch sizes, tokens of a window
    *(ctypes.c_int64,) * 3,  # dim, cell size, whether there is a projection
    *(ctypes.c_void_p,) * 9,  # weights and scales of three matrices, bias, zeros, peepholes
    *(ctypes.c_float, ctypes.c_float),  # clips
    *(ctypes.c_void_p,) * 4,  # inputs, hidden and cell states, outputs
    *(ctypes.c_void_p,) * 5,  # memory for gates, unprojected states, rounded rows, scales, sums
]


def choose_kernel(name: KernelName, precision: Precision, parameter: Tensor) -> Kernel:
    """The kernel for a model with such parameters: with "auto", Numba's where it can be used.

    Raises InputError if Numba's is asked for, but cannot be used.
    """
    if name == "torch":
        return "torch"
    try:
        _check_kernel(precision, parameter)
    except InputError:
        if name == "numba":
            raise
        return "torch"
    return "numba"


def _check_kernel(precision: Precision, parameter: Tensor) -> None:
    """Load the compiled layer, or raise an InputError that says why it cannot be used."""
    if parameter.device.type != "cpu" or parameter.dtype != torch.float32:
        raise InputError(
            "kernel is 'numba', which computes on the CPU in float32, but the model is "
            f"{str(parameter.dtype).removeprefix('torch.')} on {parameter.device}; use 'auto'"
        )
    if not is_installed():
        raise InputError("kernel is 'numba', which needs Numba: pip install 'elmokit[fast]'")
    if not vector_lanes():
        raise InputError(
            "kernel is 'numba', which needs an x86 CPU with AVX2, FMA and F16C; use 'auto'"
        )
    try:
        _layer_function(precision)
    except Exception as error:  # of Numba or LLVM, such as a version that no longer has a name
        logger.warning("the compiled kernel cannot be used here: %s", error)
        raise InputError(f"kernel is 'numba', which fails here ({error}); use 'torch'") from error


@dataclass(frozen=True)
class LayerParameters:
    """The parameters of a layer; the bias includes the constant of the forget gate."""

    input_weight: Tensor  # (4 * cell_size, dim)
    recurrent_weight: Tensor  # (4 * cell_size, dim)
    bias: Tensor  # (4 * cell_size,)
    projection: Tensor | None  # (dim, cell_size)
    peepholes: Tensor | None  # (3, cell_size)


class KernelStack:
    """The layers of one direction, packed in a precision for the compiled function.

    `clips` are those of cell states and of hidden states. With `skip_connections`, a layer's input
    is added to its output, except in the first layer.
    """

    batch_invariant = True

    def __init__(
        self,
        layers: Sequence[LayerParameters],
        clips: tuple[float | None, float | None],
        precision: Precision,
        *,
        skip_connections: bool,
    ) -> None:
        self._run_layer = _layer_function(precision)
        self._rounds_rows = precision == "int8"
        self._panel_size = PANEL_VECTORS * vector_lanes()
        self._skip_connections = skip_connections
        self._limits = [math.inf if clip is None else clip for clip in clips]
        self._dim = layers[0].recurrent_weight.shape[1]
        self._cell_size = len(layers[0].bias) // 4
        packed = [_pack_layer(layer, precision) for layer in layers]
        self._tensors = packed  # which own the memory at these addresses
        self._weights = [[tensor.data_ptr() for tensor in tensors] for tensors in packed]
        self._sizes = self._dim, self._cell_size, int(layers[0].projection is not None)

    def run(
        self,
        inputs: Tensor,
        batch_sizes: Sequence[int],
        hidden: Tensor,
        cell: Tensor,
        num_layers: int,
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """What `LSTMStack.forward` gives."""
        inputs = inputs.contiguous()
        hidden = hidden.clone(memory_format=torch.contiguous_format)
        cell = cell.clone(memory_format=torch.contiguous_format)
        outputs = [*torch.empty(num_layers, *inputs.shape)]
        if not batch_sizes:
            return outputs, hidden, cell
        window, scratch, scratch_addresses = self._scratch(len(inputs), batch_sizes[0])
        steps = len(batch_sizes), (ctypes.c_int64 * len(batch_sizes))(*batch_sizes), window
        for number, output in enumerate(outputs):
            data = inputs, hidden[number], cell[number], output
            addresses = [tensor.data_ptr() for tensor in data]
            self._run_layer(
                *steps, *self._sizes, *self._weights[number], *self._limits, *addresses,
                *scratch_addresses,
            )  # fmt: skip
            if self._skip_connections and number > 0:
                output.add_(inputs)
            inputs = output
        del scratch
        return outputs, hidden, cell

    def max_threads(self, work: float, steps: int) -> int:
        """How many threads are faster than one, at so many multiplications in each step."""
        return int(work * steps // _MIN_WORK_PER_THREAD)

    def _scratch(self, tokens: int, rows: int) -> tuple[int, Tensor, list[int]]:
        """How many tokens a window has; memory for the function; and where each part begins."""
        dim, cell_size = self._dim, self._cell_size
        window = min(tokens, max(rows, _WINDOW_NUMBERS // (4 * cell_size)))
        rounded = max(window * (dim + 1), rows * (cell_size + 1)) if self._rounds_rows else 0
        panel_size = self._panel_size
        parts = [
            window * 4 * cell_size, rows * cell_size, rounded // 2 + 1, window,
            2 * MAX_ROWS * panel_size,
        ]  # fmt: skip
        starts = [0, *accumulate(-(-part // panel_size) * panel_size for part in parts)]
        memory = torch.empty(starts[-1])
        return window, memory, [memory.data_ptr() + 4 * start for start in starts[:-1]]


def _pack_layer(layer: LayerParameters, precision: Precision) -> list[Tensor]:
    """The tensors that the function takes: three matrices with scales, bias, zeros, peepholes."""
    rows, dim = layer.recurrent_weight.shape
    zeros = torch.zeros(dim)
    peepholes = torch.zeros(3, rows // 4) if layer.peepholes is None else layer.peepholes
    matrices = layer.input_weight, layer.recurrent_weight, layer.projection
    tensors = [
        part
        for matrix in matrices
        for part in ((zeros, zeros) if matrix is None else _pack(matrix.detach(), precision))
    ]
    return [*tensors, layer.bias.detach().clone(), zeros, peepholes.detach().clone()]


def _pack(weight: Tensor, precision: Precision) -> tuple[Tensor, Tensor]:
    """A weight (out, in) as panels, (panels, in, outputs of a panel), and a scale per output.

    The last panel is filled up with zeros. With int8, the inputs of an output lie two by two.
    """
    outputs, inputs = weight.shape
    size = PANEL_VECTORS * vector_lanes()
    num_panels = -(-outputs // size)
    scales = torch.ones(num_panels * size)
    pair = 1
    if precision == "half":
        weight = weight.half()
    elif precision == "int8":
        pair = 2
        scales[:outputs] = weight.abs().amax(1).clamp(min=1e-12) / 127
        weight = (weight / scales[:outputs, None]).round_().to(torch.int8)
    if outputs % size or inputs % pair:
        padding = 0, inputs % pair, 0, num_panels * size - outputs
        weight = torch.nn.functional.pad(weight, padding)
    panels = weight.view(num_panels, size, -1, pair).transpose(1, 2).contiguous()
    return panels, scales


_lock = Lock()


def _layer_function(precision: Precision) -> MachineFunction:
    """The compiled layer, made or loaded once in a process."""
    with _lock:
        return _load_layer_function(precision)


@cache
def _load_layer_function(precision: Precision) -> MachineFunction:
    def compile_function() -> object:
        from elmokit.model import kernel_code  # noqa: PLC0415  importing Numba takes long

        return kernel_code.compile_layer(precision, vector_lanes())

    return load_function(
        f"lstm-{precision}",
        _ARGUMENT_TYPES,
        compile_function,
        sources=["elmokit.model.kernels", "elmokit.model.kernel_code"],
    )
