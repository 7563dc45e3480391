"""Linear layers packed for inference, in float32, float16 or int8, and their initial weights."""

import warnings
from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elmokit.errors import InputError

Precision = Literal["float32", "half", "int8"]

# oneDNN lays weights out for this many rows: of 1, 16 and 64, the fastest at 2 to 64 rows.
_LAYOUT_ROWS = 16

# This many float32 weights (4 MB) stay in the caches of two cores from step to step.
MAX_CACHED_WEIGHTS = 2**20

# Batch sizes at which a layout must give a row the same bits, wherever in the batch it is.
_BATCH_SIZES_TRIED = (1, 2, 3, 5, 8, 12, 16, 17, 24, 33, 48, 64, 100, 512)

# From this many multiplications a step, two LSTMs in two threads are faster than one after the
# other; below, both wait for Python's lock. Measured with 1 to 64 rows; products in int8 and half
# take less time, so they have to be larger.
_MIN_WORK_PER_THREAD: dict[Precision, int] = {
    "float32": 2**19,
    "half": 5 * 2**19,
    "int8": 6 * 2**20,
}


class LinearOp(ABC):
    """A product with a fixed weight, plus a bias: (rows, in) -> (rows, out)."""

    batch_invariant = False  # whether a row has the same bits whatever rows are beside it
    min_work_per_thread = _MIN_WORK_PER_THREAD["float32"]  # multiplications in a step

    @abstractmethod
    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product; `out`, to write it to, is given in training only."""

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """Write `sums` plus the product to `out`."""
        torch.add(sums, self(rows), out=out)


def pack_linear(weight: Tensor, bias: Tensor | None, precision: Precision) -> LinearOp:
    """A linear layer with a weight (out, in), packed for inference in a precision.

    On other devices than the CPU, and where torch has no oneDNN, nothing is packed.
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return PlainLinear(weight, bias)
    if precision != "float32":
        if not {"fbgemm", "x86"}.intersection(torch.backends.quantized.supported_engines):
            raise InputError(
                f"precision is {precision!r}, but this torch was built without FBGEMM; use "
                "'float32'"
            )
        return QuantizedLinear(weight, bias, precision)
    if weight.numel() <= MAX_CACHED_WEIGHTS:
        transposed = TransposedLinear(weight, bias)
        if transposed.is_batch_invariant():
            return transposed
    if torch.backends.mkldnn.is_available():
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


class PlainLinear(LinearOp):
    """Torch's own product: for training, and for other devices.

    `dtype` is the shorter type of torch's autocast, which itself does not apply to products that
    write to a given tensor; the result has the type of the rows.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype | None = None
    ) -> None:
        self._weight, self._bias = weight.to(dtype or weight.dtype).t(), bias

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        short_rows = rows.to(self._weight.dtype)
        if self._bias is not None:
            return add_matmul(self._bias, short_rows, self._weight, out)
        assert out is None
        return (short_rows @ self._weight).to(rows.dtype)

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        add_matmul(sums, rows.to(self._weight.dtype), self._weight, out)


def matmul_dtype(rows: Tensor) -> torch.dtype:
    """The type in which rows are multiplied: that of autocast, if it is on, or their own."""
    device = rows.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else rows.dtype


def add_matmul(sums: Tensor, left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
    """`sums`, which may have a longer type, plus the product; written to `out`, if given."""
    if left.dtype == sums.dtype:
        return torch.addmm(sums, left, right, out=out)
    return torch.add(sums, left @ right, out=out)


class TransposedLinear(LinearOp):
    """Float32 weights stored as (in, out): for small weights, faster than oneDNN's layout.

    A single row would be multiplied by another kernel, so it is doubled. Whether a row then has the
    same bits in a batch of any size depends on the CPU: `is_batch_invariant` tries it.
    """

    batch_invariant = True

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight.detach().t().contiguous()
        self._bias = None if bias is None else bias.detach()

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        assert out is None
        if len(rows) == 1:
            return self(rows.expand(2, -1))[:1]
        if self._bias is None:
            return torch.mm(rows, self._weight)
        return torch.addmm(self._bias, rows, self._weight)

    def is_batch_invariant(self) -> bool:
        """Whether a row has the same bits in every batch tried, wherever it is in the batch."""
        generator = torch.Generator().manual_seed(0)
        num_rows = max(_BATCH_SIZES_TRIED) + len(_BATCH_SIZES_TRIED)
        rows = torch.randn(num_rows, len(self._weight), generator=generator)
        product = self(rows)
        return all(
            torch.equal(self(rows[start : start + size]), product[start : start + size])
            for number, size in enumerate(_BATCH_SIZES_TRIED)
            for start in {0, number}
        )


class PackedLinear(LinearOp):
    """Float32 weights in oneDNN's layout.

    A row then has the same bits in a batch of any size but one: so a single row is doubled, which
    takes no longer, as the time goes into reading the weights.
    """

    batch_invariant = True

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _LAYOUT_ROWS)
        self._bias = None if bias is None else bias.detach()

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        assert out is None
        batch = rows.expand(2, -1) if len(rows) == 1 else rows
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            batch, self._weight, self._bias, "none", [], ""
        )
        return product[: len(rows)]


class QuantizedLinear(LinearOp):
    """Weights in float16, or in int8 with a scale for each output; FBGEMM multiplies them.

    Sums are float32. With int8, inputs are rounded to 7 bits, all rows by one scale: 8 bits would
    overflow on CPUs without VNNI.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, precision: Literal["half", "int8"]
    ) -> None:
        quantized = torch.ops.quantized
        self.min_work_per_thread = _MIN_WORK_PER_THREAD[precision]
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        self._arguments: tuple[Any, ...]
        if precision == "half":
            self._multiply = quantized.linear_dynamic_fp16
            self._arguments = (quantized.linear_prepack_fp16(weight, bias),)
            return
        scales = weight.abs().amax(1).clamp(min=1e-12).double() / 127
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch calls it deprecated, but has no replacement
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._multiply = quantized.linear_dynamic
        self._arguments = (quantized.linear_prepack(rounded, bias), True)  # reduce_range

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        assert out is None
        product: Tensor = self._multiply(rows, *self._arguments)
        return product


def init_normal(weight: Tensor, fan_in: int) -> None:
    """Fill a weight with numbers of mean 0 and variance 1 / fan_in, as bilm-tf did."""
    # A model that is about to be loaded is on the meta device: torch would import its compiler,
    # which takes more than a second, only to find that there is nothing to fill.
    if not weight.is_meta:
        nn.init.normal_(weight, std=fan_in**-0.5)
