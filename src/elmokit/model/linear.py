"""Rows become their products with a weight matrix, in one of three precisions."""

import warnings
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Precision = Literal["float32", "half", "int8"]

# oneDNN lays weights out for so many rows: the best at 2 to 64 rows of those tried (1, 16, 64).
_ROWS_LAID_OUT_FOR = 16


class Product(Protocol):
    """A product with a fixed matrix: (rows, in) -> (rows, out)."""

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product; in `out`, where that is given."""

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """The product and `sums`, added up in `out`."""


def make_product(weight: Tensor, bias: Tensor | None, precision: Precision) -> Product:
    """The product with a weight (out, in) for use in the precision asked for, packed once.

    Packing is the CPU's way; elsewhere, and where torch has no oneDNN, the plain product serves.
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return PlainProduct(weight, bias)
    if precision != "float32":
        return RoundedProduct(weight, bias, precision)
    if torch.backends.mkldnn.is_available():
        return PackedProduct(weight, bias)
    return PlainProduct(weight, bias)


class PlainProduct:
    """The product as torch does it: for learning, for other devices."""

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
        torch.addmm(sums, rows, self._weight.t(), out=out)


class PackedProduct:
    """Float32 weights, laid out once as oneDNN likes them.

    A row then has the same bits whatever stands beside it, if it is not alone: so a lone row is
    multiplied twice, which takes no longer, as the time goes into reading the weights.
    """

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


class RoundedProduct:
    """Weights as float16, or as int8 with a scale for each output, multiplied by FBGEMM.

    Sums are float32. With int8 the rows are rounded to 7 bits: 8 would saturate where the CPU has
    no VNNI.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, precision: Literal["half", "int8"]
    ) -> None:
        quantized = torch.ops.quantized
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
