import os
import subprocess
import sys

import pytest
import torch

from elmokit.errors import InputError
from elmokit.model import kernels
from elmokit.model.lstm import LSTMStack
from elmokit.model_config import BiLMConfig

pytest.importorskip("numba")

# Sizes that fill whole vectors and panels, and sizes that do not.
SHAPES = {
    "small": (3, 5),
    "no projection": (6, 6),
    "some vectors": (24, 40),
    "odd": (33, 129),
    "whole panels": (128, 256),
}
CLIPS = {"clips": (3.0, 3.0), "no clips": (None, None), "tight clips": (0.3, 0.2)}
# Sentences end at different steps.
BATCH_SIZES = [13, 13, 9, 8, 8, 5, 4, 4, 3, 2, 2, 1, 1, 1]


def make_stack(shape="odd", clips="clips", *, peepholes=False, num_layers=1):
    dim, cell_size = SHAPES[shape]
    cell_clip, projection_clip = CLIPS[clips]
    config = BiLMConfig(
        projection_size=dim, cell_size=cell_size, num_layers=num_layers, characters=None,
        vocabulary_size=4, cell_clip=cell_clip, projection_clip=projection_clip,
        peepholes=peepholes,
    )  # fmt: skip
    stack = LSTMStack(config).requires_grad_(False)
    for weight in stack.parameters():
        weight.copy_(torch.randn_like(weight))
    for layer in stack.layers:
        for weight in (layer.input_weight, layer.recurrent_weight):
            weight.mul_(1.5 * dim**-0.5)
        if layer.projection is not None:
            layer.projection.mul_(1.5 * cell_size**-0.5)
    return stack


def make_inputs(stack, batch_sizes=BATCH_SIZES):
    weight, num_layers = stack.layers[0].recurrent_weight, len(stack.layers)
    rows, dim, cell_size = max(batch_sizes), weight.shape[1], len(weight) // 4
    return (
        torch.randn(sum(batch_sizes), dim), batch_sizes,
        0.3 * torch.randn(num_layers, rows, dim), 0.3 * torch.randn(num_layers, rows, cell_size),
        num_layers,
    )  # fmt: skip


def run(stack, inputs, precision="float32"):
    outputs, hidden, cell = stack.pack(precision, "numba").run(*inputs)
    return torch.stack(outputs), hidden, cell


def reference(stack, inputs):
    """Outputs and states in float64, sentence by sentence."""
    vectors, batch_sizes, *states, _ = inputs
    outputs, ends = [vectors.double()], []
    for layer, hidden, cell in zip(stack.layers, *states, strict=True):
        output, *end = reference_layer(layer, outputs[-1], batch_sizes, hidden, cell)
        skipped = stack.skip_connections and len(outputs) > 1
        outputs.append(output + outputs[-1] if skipped else output)
        ends.append(end)
    return torch.stack(outputs[1:]), *map(torch.stack, zip(*ends, strict=True))


def reference_layer(layer, vectors, batch_sizes, hidden, cell):
    cell_size = cell.shape[1]
    bias = layer.bias.double()
    bias[cell_size : 2 * cell_size] += layer.forget_bias
    peepholes = torch.zeros(3, 1) if layer.peepholes is None else layer.peepholes
    peepholes = peepholes.double()
    outputs = torch.empty_like(vectors)
    hidden, cell = hidden.double(), cell.double()
    starts = [sum(batch_sizes[:step]) for step in range(len(batch_sizes))]
    for row in range(len(hidden)):
        h, c = hidden[row], cell[row]
        for step, rows in enumerate(batch_sizes):
            if row >= rows:
                break
            x = vectors[starts[step] + row]
            gates = layer.input_weight.double() @ x + layer.recurrent_weight.double() @ h + bias
            i, f, o, g = gates.split(cell_size)
            i, f = i + peepholes[0] * c, f + peepholes[1] * c
            c = clip(f.sigmoid() * c + i.sigmoid() * g.tanh(), layer.clips.cell)
            h = (o + peepholes[2] * c).sigmoid() * c.tanh()
            if layer.projection is not None:
                h = layer.projection.double() @ h
            h = outputs[starts[step] + row] = clip(h, layer.clips.projection)
        hidden[row], cell[row] = h, c
    return outputs, hidden, cell


def clip(values, limit):
    return values if limit is None else values.clamp(-limit, limit)


def round_weights(stack, precision):
    """Give a stack the weights that it has in a precision."""
    for weight in stack.parameters():
        if weight.ndim == 2 and precision == "half":
            weight.copy_(weight.half())
        elif weight.ndim == 2:
            scales = weight.abs().amax(1, keepdim=True) / 127
            weight.copy_((weight / scales).round() * scales)


def assert_near(actual, expected, tolerance=5e-6):
    for part, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(part.double(), other, rtol=0, atol=tolerance)


def assert_same(actual, expected):
    for part, other in zip(actual, expected, strict=True):
        assert torch.equal(part, other)


@pytest.mark.parametrize("clips", CLIPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_agrees_with_float64(shape, clips):
    stack = make_stack(shape, clips)
    inputs = make_inputs(stack)
    assert_near(run(stack, inputs), reference(stack, inputs))


def test_peepholes_agree_with_float64():
    stack = make_stack(peepholes=True)
    inputs = make_inputs(stack)
    assert_near(run(stack, inputs), reference(stack, inputs))


@pytest.mark.parametrize("skip_connections", [True, False])
def test_layers_agree_with_float64(skip_connections):
    stack = make_stack(num_layers=3)
    stack.skip_connections = skip_connections
    inputs = make_inputs(stack)
    assert_near(run(stack, inputs), reference(stack, inputs), 1e-5)


# The rounding of rows to int16 is what remains.
@pytest.mark.parametrize(("precision", "tolerance"), [("half", 5e-6), ("int8", 1e-3)])
@pytest.mark.parametrize("shape", SHAPES)
def test_short_weights_are_all_that_is_rounded(shape, precision, tolerance):
    stack = make_stack(shape)
    inputs = make_inputs(stack)
    actual = run(stack, inputs, precision)
    round_weights(stack, precision)
    assert_near(actual, reference(stack, inputs), tolerance)


@pytest.mark.parametrize("precision", ["float32", "half", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_beside_any_others(shape, precision):
    packed = (stack := make_stack(shape)).pack(precision, "numba")
    steps, most = 3, 17
    vectors, _, hidden, cell, _ = make_inputs(stack, [most] * steps)
    vectors = vectors.view(steps, most, -1)
    (outputs,), *states = packed.run(vectors.flatten(0, 1), [most] * steps, hidden, cell, 1)
    outputs = outputs.view(steps, most, -1)
    for rows in range(1, most):
        for first in (0, most - rows):
            part = slice(first, first + rows)
            (alone,), *ends = packed.run(
                vectors[:, part].flatten(0, 1), [rows] * steps, hidden[:, part], cell[:, part], 1
            )
            assert torch.equal(alone.view(steps, rows, -1), outputs[:, part])
            assert_same(ends, [state[:, part] for state in states])


@pytest.mark.parametrize("precision", ["float32", "half", "int8"])
def test_computing_in_windows_changes_no_bit(precision, monkeypatch):
    stack = make_stack()
    inputs = make_inputs(stack)
    at_once = run(stack, inputs, precision)
    monkeypatch.setattr(kernels, "_WINDOW_NUMBERS", 1)
    assert_same(run(stack, inputs, precision), at_once)


def test_a_long_sentence_agrees_with_float64():
    stack = make_stack("some vectors")
    inputs = make_inputs(stack, [1] * 3000)
    assert_near(run(stack, inputs), reference(stack, inputs))


def test_a_state_can_be_carried():
    packed = (stack := make_stack(num_layers=2)).pack("float32", "numba")
    vectors, sizes, hidden, cell, _ = make_inputs(stack, [4] * 6)
    at_once, *ends = packed.run(vectors, sizes, hidden, cell, 2)
    first, *states = packed.run(vectors[:8], [4, 4], hidden, cell, 2)
    second, *states = packed.run(vectors[8:], [4] * 4, *states, 2)
    assert_same(map(torch.cat, zip(first, second, strict=True)), at_once)
    assert_same(states, ends)


def test_layers_that_are_not_run_keep_their_state():
    stack = make_stack(num_layers=2)
    *inputs, _ = make_inputs(stack)
    outputs, hidden, cell = stack.pack("float32", "numba").run(*inputs, 1)
    assert len(outputs) == 1
    assert not torch.equal(hidden[0], inputs[2][0])
    assert torch.equal(hidden[1], inputs[2][1])
    assert torch.equal(cell[1], inputs[3][1])


def test_inputs_and_initial_states_are_not_written_to():
    stack = make_stack(num_layers=2)
    inputs = make_inputs(stack)
    tensors = inputs[0], *inputs[2:4]
    before = [tensor.clone() for tensor in tensors]
    run(stack, inputs)
    assert_same(tensors, before)


def test_a_layer_without_steps_keeps_its_state():
    stack = make_stack()
    *_, hidden, cell, _ = make_inputs(stack, [2])
    outputs, *states = run(stack, (torch.empty(0, 33), [], hidden, cell, 1))
    assert outputs.shape == (1, 0, 33)
    assert_same(states, [hidden, cell])


def test_tensors_that_are_not_contiguous_are_read_right():
    stack = make_stack()
    vectors, sizes, hidden, cell, _ = make_inputs(stack)
    strided = [part.mT.contiguous().mT for part in (vectors, hidden, cell)]
    assert not any(part.is_contiguous() for part in strided)
    expected = run(stack, (vectors, sizes, hidden, cell, 1))
    assert_same(run(stack, (strided[0], sizes, *strided[1:], 1)), expected)


def test_numba_is_chosen_where_it_can_be_used(monkeypatch):
    parameter = torch.empty(1)
    assert kernels.choose_kernel("auto", "float32", parameter) == "numba"
    assert kernels.choose_kernel("torch", "float32", parameter) == "torch"
    for unusable in (torch.empty(1, device="meta"), torch.empty(1, dtype=torch.float64)):
        assert kernels.choose_kernel("auto", "float32", unusable) == "torch"
        with pytest.raises(InputError, match="on the CPU in float32, but the model is float"):
            kernels.choose_kernel("numba", "float32", unusable)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "vector_lanes", lambda: 0)
        assert kernels.choose_kernel("auto", "float32", parameter) == "torch"
        with pytest.raises(InputError, match="needs an x86 CPU with AVX2, FMA and F16C"):
            kernels.choose_kernel("numba", "float32", parameter)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert kernels.choose_kernel("auto", "float32", parameter) == "torch"
    with pytest.raises(InputError, match=r"needs Numba: pip install 'elmokit\[fast\]'"):
        kernels.choose_kernel("numba", "float32", parameter)


def test_torch_computes_where_the_layer_cannot_be_compiled(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(kernels, "_layer_function", fail)
    assert kernels.choose_kernel("auto", "float32", torch.empty(1)) == "torch"
    assert "the compiled kernel cannot be used here: no such instruction" in caplog.text
    with pytest.raises(InputError, match=r"which fails here .no such instruction.; use 'torch'"):
        kernels.choose_kernel("numba", "float32", torch.empty(1))


AVX2 = "avx,avx2,bmi,bmi2,cx16,f16c,fma,lzcnt,movbe,popcnt,sse,sse2,sse3,ssse3,sse4.1,sse4.2,xsave"


@pytest.mark.full
def test_a_layer_for_avx2_passes_these_tests():
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in ["64bit", *AVX2.split(",")]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, "-q", "-m", "not full", "-p", "no:xdist"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
