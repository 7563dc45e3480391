"""Linear layers packed for inference, in float32, float16 or int8."""

import warnings
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.errors import InputError

Precision = Literal["float32", "half", "int8"]

# oneDNN lays weights out for so many rows: the best at 2 to 64 rows of those tried (1, 16, 64).
_ROWS_LAID_OUT_FOR = 16

# Float32 weights up to this many (4 MB) stay in the caches of two cores from step to step.
MAX_CACHED_WEIGHTS = 2**20

# Numbers of rows at which a layout must give a row the same bits, whichever of them it is.
_ROWS_TRIED = (1, 2, 3, 5, 8, 12, 16, 17, 24, 33, 48, 64, 100, 512)


# Multiplications in a step from which two recurrences in two threads are faster than one after
# the other: in smaller ones both wait for Python's lock. Measured from 1 to 64 rows; int8 and half
# products are shorter, so that they have to be larger.
_WORK_FOR_A_THREAD: dict[Precision, int] = {"float32": 2**19, "half": 5 * 2**19, "int8": 6 * 2**20}


class Product(Protocol):
    """A product with a fixed matrix: (rows, in) -> (rows, out)."""

    min_work_per_thread: int  # multiplications in a step
    rows_independent: bool  # a row's product has the same bits whatever rows stand beside it

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product; in `out`, where that is given."""

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """The product and `sums`, added up in `out`."""


def pack_linear(weight: Tensor, bias: Tensor | None, precision: Precision) -> Product:
    """The product with a weight (out, in) for use in the precision asked for, packed once.

    Packing is the CPU's way; elsewhere, and where torch has no oneDNN, the plain product serves.
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return PlainLinear(weight, bias)
    if precision != "float32":
        if not {"fbgemm", "x86"}.intersection(torch.backends.quantized.supported_engines):
            raise InputError(
                f"precision is {precision!r}, but this torch has no FBGEMM; use 'float32'"
            )
        return QuantizedLinear(weight, bias, precision)
    if weight.numel() <= MAX_CACHED_WEIGHTS:
        turned = TransposedLinear(weight, bias)
        if turned.is_batch_invariant():
            return turned
    if torch.backends.mkldnn.is_available():
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


class PlainLinear:
    """The product as torch does it: for learning, for other devices."""

    min_work_per_thread = _WORK_FOR_A_THREAD["float32"]
    rows_independent = False

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product; in `out`, where that is given."""
        if out is None:
            return F.linear(rows, self._weight, self._bias)
        if self._bias is None:
            return torch.mm(rows, self._weight.t(), out=out)
        return torch.addmm(self._bias, rows, self._weight.t(), out=out)

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """The product and `sums`, added up in `out`."""
        add_matmul(sums, rows, self._weight.t(), out)


class AutocastLinear:
    """The product in a shorter type, for learning under torch's autocast; what leaves is float32.

    Autocast itself does not reach products that write into a given tensor.
    """

    min_work_per_thread = _WORK_FOR_A_THREAD["float32"]
    rows_independent = False

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._bias, self._dtype = weight.to(dtype).t(), bias, dtype

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product; in `out`, where that is given."""
        product = rows.to(self._dtype) @ self._weight
        if self._bias is None:
            return product.float() if out is None else out.copy_(product)
        return torch.add(product, self._bias, out=out)

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """The product and `sums`, added up in `out`."""
        add_matmul(sums, rows.to(self._dtype), self._weight, out)


def matmul_dtype(rows: Tensor) -> torch.dtype:
    """The type in which rows are multiplied: autocast's, where it is on, or their own."""
    kind = rows.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype


def add_matmul(sums: Tensor, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """`sums` and the product, added up in `out`, which may have a longer type than the product."""
    if left.dtype == out.dtype:
        return torch.addmm(sums, left, right, out=out)
    return torch.add(sums, left @ right, out=out)


class TransposedLinear:
    """Few float32 weights, stored as (in, out): with few rows, faster than oneDNN's layout.

    A lone row would be multiplied by another kernel, so it is multiplied twice. Whether a row then
    has the same bits beside any number of others depends on the CPU: `is_batch_invariant` tries it.
    """

    min_work_per_thread = _WORK_FOR_A_THREAD["float32"]
    rows_independent = True

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight.detach().t().contiguous()
        self._bias = None if bias is None else bias.detach()

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product."""
        assert out is None  # packed products are for use, which keeps nothing
        if len(rows) == 1:
            return self(rows.expand(2, -1))[:1]
        if self._bias is None:
            return torch.mm(rows, self._weight)
        return torch.addmm(self._bias, rows, self._weight)

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """The product and `sums`, added up in `out`."""
        torch.add(sums, self(rows), out=out)

    def is_batch_invariant(self) -> bool:
        """Whether a row has the same bits at every number of rows tried, also in another place."""
        drawn = torch.Generator().manual_seed(0)
        most = max(_ROWS_TRIED) + len(_ROWS_TRIED)
        rows = torch.randn(most, len(self._weight), generator=drawn)
        whole = self(rows)
        return all(
            torch.equal(self(rows[start : start + count]), whole[start : start + count])
            for place, count in enumerate(_ROWS_TRIED)
            for start in {0, place}
        )


class PackedLinear:
    """Float32 weights, laid out once as oneDNN likes them.

    A row then has the same bits whatever stands beside it, if it is not alone: so a lone row is
    multiplied twice, which takes no longer, as the time goes into reading the weights.
    """

    min_work_per_thread = _WORK_FOR_A_THREAD["float32"]
    rows_independent = True

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS_LAID_OUT_FOR)
        self._bias = None if bias is None else bias.detach()

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product."""
        assert out is None  # packed products are for use, which keeps nothing
        fed = rows.expand(2, -1) if len(rows) == 1 else rows
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            fed, self._weight, self._bias, "none", [], ""
        )
        return product[: len(rows)]

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """The product and `sums`, added up in `out`."""
        torch.add(sums, self(rows), out=out)


class QuantizedLinear:
    """Weights as float16, or as int8 with a scale for each output, multiplied by FBGEMM.

    Sums are float32. With int8 the rows are rounded to 7 bits: 8 would saturate where the CPU has
    no VNNI.
    """

    rows_independent = False  # int8 rounds all rows by one scale

    def __init__(
        self, weight: Tensor, bias: Tensor | None, precision: Literal["half", "int8"]
    ) -> None:
        quantized = torch.ops.quantized
        self.min_work_per_thread = _WORK_FOR_A_THREAD[precision]
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        self._arguments: tuple[Any, ...]
        if precision == "half":
            self._multiply = quantized.linear_dynamic_fp16
            self._arguments = (quantized.linear_prepack_fp16(weight, bias),)
            return
        scales = weight.abs().amax(1).clamp(min=1e-12).double() / 127
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch calls it deprecated, and has nothing in its place
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._multiply = quantized.linear_dynamic
        self._arguments = (quantized.linear_prepack(rounded, bias), True)  # reduce_range

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product."""
        assert out is None  # packed products are for use, which keeps nothing
        product: Tensor = self._multiply(rows, *self._arguments)
        return product

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """The product and `sums`, added up in `out`."""
        torch.add(sums, self(rows), out=out)
