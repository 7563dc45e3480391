"""What Numba compiles for `kernels`: a layer of an LSTM, from its inputs to its outputs.

A product takes its weights panel by panel, keeps the sums of a panel for a few rows in the CPU's
registers, and adds one input after the other. So a row has the same bits whatever rows are beside
it. Numba has no vectors, so this part is written with the instructions of LLVM.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from elmokit.model.kernels import MAX_ROWS, PANEL_VECTORS
from elmokit.model.packed_linear import Precision

# Of so many rows the sums are kept at a time, by the size of a vector: 32 registers of 16 numbers
# have room for more than 16 registers of 8.
_MAX_ROWS: dict[int, dict[Precision, int]] = {
    16: {"float32": MAX_ROWS, "half": MAX_ROWS, "int8": MAX_ROWS},
    8: {"float32": 3, "half": 2, "int8": 4},
}
_UNROLLED = 4  # products of an output that follow each other in the code, divided by the rows

# tanh(x) is nearly x P(x²) / Q(x²), up to where it rounds to 1. The relative error is 2e-8; it was
# fitted by least squares, with larger weights where the error was large.
_TANH_LIMIT = np.float32(9.01)
_P0, _P1, _P2, _P3, _P4 = (
    np.float32(number)
    for number in (0.99999998, 0.133803716, 0.00349481102, 2.05962734e-5, 1.33368476e-8)
)
_Q0, _Q1, _Q2, _Q3, _Q4 = (
    np.float32(number) for number in (1.0, 0.467136870, 0.0258740266, 3.28436318e-4, 7.76928277e-7)
)
_HALF = np.float32(0.5)

_SAME_FOR_ALL_ROWS = np.int64(0)  # the stride of sums that products are added to

_FLOAT, _INT32, _INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FLOATS, _INT16S = types.CPointer(types.float32), types.CPointer(types.int16)

# Divisions are not checked; a product and a sum may become one instruction.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}


def compile_layer(precision: Precision, vector_size: int) -> Any:
    """Numba's function of a layer with weights of a precision.

    `vector_size` is how many float32 numbers a vector of the CPU has.
    """
    product: _Product
    if precision == "int8":
        product = _IntProduct(vector_size)
    else:
        product = _FloatProduct(vector_size, is_half=precision == "half")
    multiply = _multiply_function(product, _MAX_ROWS[vector_size][precision])

    def run_layer(
        steps, batch_sizes, window, dim, cell_size, has_projection, input_weights, input_scales,
        recurrent_weights, recurrent_scales, projection, projection_scales, bias, zeros, peepholes,
        cell_clip, projection_clip, inputs, hidden, cell, outputs, gates, unprojected, rounded,
        row_scales, tile,
    ):  # fmt: skip
        """Write the outputs, and the states after each sentence; see `kernels`."""
        gates_size = 4 * cell_size
        step = token = 0
        previous, previous_rows = hidden, batch_sizes[0]
        while step < steps:
            end, tokens = step, 0
            while end < steps and (end == step or tokens + batch_sizes[end] <= window):
                tokens += batch_sizes[end]
                end += 1
            multiply(
                input_weights, input_scales, _at(inputs, token * dim), tokens, dim, rounded,
                row_scales, tile, bias, _SAME_FOR_ALL_ROWS, gates, gates_size,
            )  # fmt: skip
            step_gates = gates
            while step < end:
                rows = batch_sizes[step]
                if rows < previous_rows:  # some sentences have ended
                    ended = rows * dim
                    _copy(_at(previous, ended), _at(hidden, ended), previous_rows * dim - ended)
                multiply(
                    recurrent_weights, recurrent_scales, previous, rows, dim, rounded, row_scales,
                    tile, step_gates, gates_size, step_gates, gates_size,
                )  # fmt: skip
                for row in range(rows):
                    start = row * cell_size
                    _update_cell(
                        _at(step_gates, row * gates_size), _at(cell, start),
                        _at(unprojected, start), peepholes, cell_size, cell_clip,
                    )  # fmt: skip
                output = _at(outputs, token * dim)
                if has_projection:
                    multiply(
                        projection, projection_scales, unprojected, rows, cell_size, rounded,
                        row_scales, tile, zeros, _SAME_FOR_ALL_ROWS, output, dim,
                    )  # fmt: skip
                else:
                    _copy(unprojected, output, rows * dim)
                _clip(output, rows * dim, projection_clip)
                previous, previous_rows = output, rows
                step_gates = _at(step_gates, rows * gates_size)
                token += rows
                step += 1
        _copy(previous, hidden, previous_rows * dim)

    integer, number, weights = types.int64, types.float32, types.CPointer(product.weight_type)
    signature = types.void(
        integer, types.CPointer(integer), integer, integer, integer, integer, weights, _FLOATS,
        weights, _FLOATS, weights, _FLOATS, _FLOATS, _FLOATS, _FLOATS, number, number, _FLOATS,
        _FLOATS, _FLOATS, _FLOATS, _FLOATS, _FLOATS, _INT16S, _FLOATS, _FLOATS,
    )  # fmt: skip
    return njit(signature, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(run_layer)


def _multiply_function(product: "_Product", max_rows: int) -> Any:
    """The function that multiplies rows with a packed matrix."""
    multiply_panels = _panels_function(product, max_rows)
    panel_size, inputs_at_once = product.panel_size, product.inputs_at_once
    prepare = _round_rows if inputs_at_once == 2 else _take_rows

    @njit(**_OPTIONS)
    def multiply(
        weights, weight_scales, rows, num_rows, size, rounded, row_scales, tile, sums, sums_stride,
        out, out_size,
    ):  # fmt: skip
        """Write sums plus products, (rows, out_size)."""
        steps = (size + inputs_at_once - 1) // inputs_at_once
        numbers = prepare(rows, num_rows, size, steps, rounded, row_scales)
        num_panels = (out_size + panel_size - 1) // panel_size
        panel = 0
        while panel < num_panels:
            panels = 2 if num_rows == 1 and panel + 1 < num_panels else 1
            first = panel * panel_size
            columns = min(panels * panel_size, out_size - first)
            panel_weights = _at(weights, first * steps * inputs_at_once)
            scales = _at(weight_scales, first)
            row = 0
            while row < num_rows:
                block = rest = num_rows - row
                if rest > max_rows:
                    block = max_rows if rest >= 2 * max_rows else (rest + 1) // 2
                multiply_panels(
                    panel_weights, _at(numbers, row * steps), steps, block, panels, tile
                )
                for i in range(block):
                    target = _at(out, (row + i) * out_size + first)
                    added = _at(sums, (row + i) * sums_stride + first)
                    products = _at(tile, i * 2 * panel_size)
                    row_scale = row_scales[row + i]
                    for j in range(columns):
                        target[j] = added[j] + products[j] * (scales[j] * row_scale)
                row += block
            panel += panels

    return multiply


@intrinsic
def _at(typing, pointer, index):
    """The address of an element."""

    def emit(context, builder, signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.int64), emit


@intrinsic
def _as_pairs(typing, pointer):
    """Numbers of 16 bits, two by two."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], _INT32.as_pointer())

    return types.CPointer(types.int32)(pointer), emit


@intrinsic
def _nearest(typing, number):
    """The int16 nearest to a number."""

    def emit(context, builder, signature, arguments):
        rounded = builder.call(_llvm_function(builder, "llvm.rint.f32", _FLOAT), arguments)
        return builder.trunc(builder.fptosi(rounded, _INT32), ir.IntType(16))

    return types.int16(types.float32), emit


@njit(inline="always", **_OPTIONS)
def _tanh(x):
    x = min(max(x, -_TANH_LIMIT), _TANH_LIMIT)
    t = x * x
    numerator = x * (_P0 + t * (_P1 + t * (_P2 + t * (_P3 + t * _P4))))
    return numerator / (_Q0 + t * (_Q1 + t * (_Q2 + t * (_Q3 + t * _Q4))))


@njit(inline="always", **_OPTIONS)
def _sigmoid(x):
    return _HALF + _HALF * _tanh(_HALF * x)


@njit(**_OPTIONS)
def _update_cell(gates, cell, unprojected, peepholes, size, clip):
    """The cell state of a row, and its hidden state before the projection."""
    forget, output, candidate = _at(gates, size), _at(gates, 2 * size), _at(gates, 3 * size)
    to_forget, to_output = _at(peepholes, size), _at(peepholes, 2 * size)
    for j in range(size):
        state = cell[j]
        input_gate = _sigmoid(gates[j] + state * peepholes[j])
        forget_gate = _sigmoid(forget[j] + state * to_forget[j])
        state = forget_gate * state + input_gate * _tanh(candidate[j])
        state = min(max(state, -clip), clip)
        cell[j] = state
        unprojected[j] = _sigmoid(output[j] + state * to_output[j]) * _tanh(state)


@njit(**_OPTIONS)
def _copy(source, target, size):
    for j in range(size):
        target[j] = source[j]


@njit(**_OPTIONS)
def _clip(numbers, size, clip):
    for j in range(size):
        numbers[j] = min(max(numbers[j], -clip), clip)


@njit(**_OPTIONS)
def _take_rows(rows, num_rows, size, steps, rounded, scales):
    """The rows as they are."""
    for i in range(num_rows):
        scales[i] = 1
    return rows


@njit(**_OPTIONS)
def _round_rows(rows, num_rows, size, steps, rounded, scales):
    """The rows as int16, each with a scale, so small that sums of their products are int32."""
    limit = np.float32(min(2**15, 2**31 // (127 * size)) - 1)
    for i in range(num_rows):
        row, target = _at(rows, i * size), _at(rounded, i * 2 * steps)
        largest = np.float32(0)
        for j in range(size):
            largest = max(largest, abs(row[j]))
        scales[i] = largest / limit
        factor = limit / largest if largest > 0 else largest
        for j in range(size):
            target[j] = _nearest(row[j] * factor)
        if 2 * steps > size:
            target[size] = 0
    return _as_pairs(rounded)


class _Product:
    """How the weights of a panel are multiplied with the numbers of a row."""

    inputs_at_once = 1
    weight_type: Any  # Numba's
    number_type: Any  # Numba's, of an input or of a pair of inputs

    def __init__(self, vector_size: int, sums: ir.Type, loaded: ir.Type) -> None:
        self.vector_size, self.panel_size = vector_size, PANEL_VECTORS * vector_size
        self.floats, self.sums = (
            ir.VectorType(_FLOAT, vector_size),
            ir.VectorType(sums, vector_size),
        )
        self._loaded = ir.VectorType(loaded, vector_size * self.inputs_at_once)

    def load(self, builder: Any, address: Any) -> Any:
        """The weights of an input, or of two, in a vector of outputs."""
        return builder.load(builder.bitcast(address, self._loaded.as_pointer()), align=4)

    def broadcast(self, builder: Any, number: Any) -> Any:
        """A vector whose numbers are all the same."""
        vector = ir.VectorType(number.type, self.vector_size)
        undefined = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(undefined, number, _INT32(0))
        zeros = ir.Constant(ir.VectorType(_INT32, self.vector_size), None)
        return builder.shuffle_vector(first, undefined, zeros)

    def add(self, builder: Any, sums: Any, weights: Any, numbers: Any) -> Any:
        """Sums plus products."""
        raise NotImplementedError

    def as_floats(self, builder: Any, sums: Any) -> Any:
        """Sums in float32."""
        return sums


class _FloatProduct(_Product):
    """With float32 or float16 weights."""

    number_type = types.float32

    def __init__(self, vector_size: int, *, is_half: bool) -> None:
        super().__init__(vector_size, _FLOAT, ir.HalfType() if is_half else _FLOAT)
        self.weight_type = types.uint16 if is_half else types.float32

    def load(self, builder: Any, address: Any) -> Any:
        weights = super().load(builder, address)
        return weights if weights.type == self.floats else builder.fpext(weights, self.floats)

    def add(self, builder: Any, sums: Any, weights: Any, numbers: Any) -> Any:
        add = _llvm_function(builder, f"llvm.fma.v{self.vector_size}f32", *[self.floats] * 3)
        return builder.call(add, [weights, numbers, sums])


class _IntProduct(_Product):
    """With int8 weights and rows of int16, two inputs at once; their sums are exact."""

    inputs_at_once = 2
    number_type = types.int32
    weight_type = types.int8

    def __init__(self, vector_size: int) -> None:
        super().__init__(vector_size, _INT32, ir.IntType(8))
        self._pairs = ir.VectorType(ir.IntType(16), 2 * vector_size)

    def load(self, builder: Any, address: Any) -> Any:
        return builder.sext(super().load(builder, address), self._pairs)

    def broadcast(self, builder: Any, number: Any) -> Any:
        return builder.bitcast(super().broadcast(builder, number), self._pairs)

    def add(self, builder: Any, sums: Any, weights: Any, numbers: Any) -> Any:
        name = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}[self.vector_size]
        multiply = _llvm_function(builder, name, self._pairs, self._pairs, result=self.sums)
        return builder.add(sums, builder.call(multiply, [weights, numbers]))

    def as_floats(self, builder: Any, sums: Any) -> Any:
        return builder.sitofp(sums, self.floats)


def _panels_function(product: _Product, max_rows: int) -> Any:
    """The function that multiplies up to `max_rows` rows with a panel, or one row with two."""

    @intrinsic
    def multiply_panels(typing, weights, numbers, steps, rows, panels, tile):
        signature = types.void(
            types.CPointer(product.weight_type), types.CPointer(product.number_type),
            types.int64, types.int64, types.int64, _FLOATS,
        )  # fmt: skip

        def emit(context, builder, signature, arguments):
            *operands, given_rows, given_panels, tile = arguments
            end = builder.function.append_basic_block()
            index = builder.add(builder.mul(given_panels, _INT64(MAX_ROWS + 1)), given_rows)
            switch = builder.switch(index, end)
            for num_panels, num_rows in [(2, 1), *((1, n) for n in range(1, max_rows + 1))]:
                case = builder.function.append_basic_block()
                switch.add_case(_INT64(num_panels * (MAX_ROWS + 1) + num_rows), case)
                builder.position_at_end(case)
                # Four rows of whole panels would not leave a register for the weights.
                width = PANEL_VECTORS // 2 if max_rows == 4 and num_rows > 2 else PANEL_VECTORS
                for first in range(0, PANEL_VECTORS, width):
                    shape = [
                        (row, panel, vector)
                        for row in range(num_rows)
                        for panel in range(num_panels)
                        for vector in range(first, first + width)
                    ]
                    _emit_products(builder, product, shape, [*operands, tile])
                builder.branch(end)
            builder.position_at_end(end)
            return context.get_dummy_value()

        return signature, emit

    return multiply_panels


def _emit_products(
    builder: Any, product: _Product, shape: Sequence[tuple[int, int, int]], operands: Sequence[Any]
) -> None:
    """Products of rows with vectors of panels, from their first input to the last, to the tile.

    `shape` are the rows, panels and vectors of the sums, which are kept in a register each.
    """
    weights, numbers, steps, tile = operands
    rows = len({row for row, _, _ in shape})
    vectors = {(panel, vector): None for _, panel, vector in shape}

    def add_products(first_step: Any, sums: Sequence[Any], num_steps: int) -> list[Any]:
        new = dict(zip(shape, sums, strict=True))
        for offset in range(num_steps):
            step = builder.add(first_step, _INT64(offset))
            row_numbers = []
            for row in range(rows):
                index = builder.add(builder.mul(_INT64(row), steps), step)
                number = builder.load(builder.gep(numbers, [index]), align=4)
                row_numbers.append(product.broadcast(builder, number))
            for panel, vector in vectors:
                index = builder.add(builder.mul(_INT64(panel), steps), step)
                index = builder.mul(index, _INT64(product.panel_size))
                index = builder.add(index, _INT64(vector * product.vector_size))
                index = builder.mul(index, _INT64(product.inputs_at_once))
                loaded = product.load(builder, builder.gep(weights, [index]))
                for row in range(rows):
                    key = row, panel, vector
                    new[key] = product.add(builder, new[key], loaded, row_numbers[row])
        return [*new.values()]

    unrolled = max(1, _UNROLLED // rows)
    rest = builder.srem(steps, _INT64(unrolled))
    middle = builder.sub(steps, rest)
    sums: Sequence[Any] = [ir.Constant(product.sums, None)] * len(shape)
    sums = _emit_loop(builder, _INT64(0), middle, unrolled, sums, add_products)
    if unrolled > 1:
        sums = _emit_loop(builder, middle, steps, 1, sums, add_products)
    for (row, panel, vector), value in zip(shape, sums, strict=True):
        index = (2 * row + panel) * product.panel_size + vector * product.vector_size
        address = builder.bitcast(builder.gep(tile, [_INT64(index)]), product.floats.as_pointer())
        builder.store(product.as_floats(builder, value), address, align=4)


def _emit_loop(
    builder: Any, start: Any, end: Any, step: int, values: Sequence[Any],
    body: Callable[[Any, Sequence[Any], int], Sequence[Any]],
) -> list[Any]:  # fmt: skip
    """A loop whose body makes new values of those before it; the values at its end."""
    before = builder.block
    head, inside, after = (builder.function.append_basic_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    index, *current = (builder.phi(value.type) for value in (start, *values))
    builder.cbranch(builder.icmp_signed("<", index, end), inside, after)
    builder.position_at_end(inside)
    new = body(index, current, step)
    next_index = builder.add(index, _INT64(step))
    builder.branch(head)
    for phi, first, following in zip(
        (index, *current), (start, *values), (next_index, *new), strict=True
    ):
        phi.add_incoming(first, before)
        phi.add_incoming(following, builder.block)
    builder.position_at_end(after)
    return current


def _llvm_function(builder: Any, name: str, *arguments: Any, result: Any = None) -> Any:
    """A function of LLVM; its result has the type of the first argument, if no other is given."""
    function_type = ir.FunctionType(result or arguments[0], arguments)
    return cgutils.get_or_insert_function(builder.module, function_type, name)
