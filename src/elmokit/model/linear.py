"""Rows become their products with a weight matrix, in one of three precisions."""

import warnings
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Precision = Literal["float32", "half", "int8"]


class Product(Protocol):
    """A product with a fixed matrix: (rows, in) -> (rows, out)."""

    def __call__(self, rows: Tensor) -> Tensor:
        """The product."""

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """`sums` plus the product, put into `out`, which may be `sums` itself."""


def make_product(weight: Tensor, bias: Tensor | None, precision: Precision) -> Product:
    """The product with a weight (out, in) in the precision asked for, packed once.

    Packed precisions are the CPU's; elsewhere the plain product serves.
    """
    if precision == "float32" or weight.device.type != "cpu":
        return PlainProduct(weight, bias)
    return PackedProduct(weight, bias, precision)


class PlainProduct:
    """The product as torch does it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, rows: Tensor) -> Tensor:
        """The product."""
        return F.linear(rows, self._weight, self._bias)

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """`sums` plus the product, put into `out`."""
        torch.addmm(sums, rows, self._weight.t(), out=out)


class PackedProduct:
    """Weights as float16 or as int8 with a scale for each output, multiplied by FBGEMM.

    Sums are float32. With int8 the rows are rounded to 7 bits: 8 would saturate where the CPU has
    no VNNI.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, precision: Literal["half", "int8"]
    ) -> None:
        quantized = torch.ops.quantized
        bias = None if bias is None else bias.float()
        self._arguments: tuple[Any, ...]
        if precision == "half":
            self._multiply = quantized.linear_dynamic_fp16
            self._arguments = (quantized.linear_prepack_fp16(weight.float(), bias),)
            return
        scales = weight.detach().abs().amax(1).clamp(min=1e-12).double() / 127
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch calls it deprecated, and has nothing in its place
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(
                weight.detach().float(), scales, zeros, 0, torch.qint8
            )
        self._multiply = quantized.linear_dynamic
        self._arguments = (quantized.linear_prepack(rounded, bias), True)  # reduce_range

    def __call__(self, rows: Tensor) -> Tensor:
        """The product."""
        product: Tensor = self._multiply(rows, *self._arguments)
        return product

    def add_to(self, sums: Tensor, rows: Tensor, out: Tensor) -> None:
        """`sums` plus the product, put into `out`."""
        torch.add(sums, self(rows), out=out)
