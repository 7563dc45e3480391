import pytest
import torch
from torch.autograd import gradcheck

from elmokit.config import BiLMConfig
from elmokit.model.lstm import LSTMStack, ProjectedLSTM


def config(**changes):
    base = {
        "projection_size": 3,
        "cell_size": 5,
        "num_layers": 2,
        "characters": None,
        "vocabulary_size": 4,
    }
    return BiLMConfig(**{**base, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"projection_size": 5},
        {"cell_clip": None, "projection_clip": None},
        {"cell_clip": 0.2, "projection_clip": 0.1},
    ],
    ids=["projected", "no projection", "no clips", "tight clips"],
)
def test_gradients_are_right(changes):
    shape = config(**changes)
    layer = ProjectedLSTM(shape).double()
    sizes = [3, 3, 2, 1]
    vectors = torch.randn(
        sum(sizes), shape.projection_size, dtype=torch.float64, requires_grad=True
    )
    output = 0.05 * torch.randn(3, shape.projection_size, dtype=torch.float64)
    memory = 0.1 * torch.randn(3, shape.cell_size, dtype=torch.float64)
    inputs = (vectors, output.requires_grad_(), memory.requires_grad_(), *layer.parameters())

    def run(vectors, output, memory, *_):
        return layer(vectors, sizes, output, memory)

    assert gradcheck(run, inputs, eps=1e-6, atol=1e-6)


def test_gradients_equal_those_of_a_plain_loop():
    """Float32, a batch with sentences of several lengths, autograd as the second opinion."""
    shape = config(projection_size=4, cell_size=8)
    layer = ProjectedLSTM(shape)
    sizes = [3, 2, 2, 1]
    vectors = torch.randn(sum(sizes), 4, requires_grad=True)
    start = torch.randn(3, 4), torch.randn(3, 8)

    def plain():
        output, memory = start
        said = []
        offset = torch.cat([torch.zeros(8), torch.ones(8), torch.zeros(16)])
        for now in vectors.split(sizes):
            n = len(now)
            gates = now @ layer.input_weight.t() + output[:n] @ layer.recurrent_weight.t()
            i, f, o, g = (gates + layer.bias + offset).chunk(4, 1)
            new = (f.sigmoid() * memory[:n] + i.sigmoid() * g.tanh()).clamp(-3, 3)
            out = ((o.sigmoid() * new.tanh()) @ layer.projection.t()).clamp(-3, 3)
            said.append(out)
            output = torch.cat([out, output[n:]])
            memory = torch.cat([new, memory[n:]])
        return torch.cat(said), output, memory

    parameters = [vectors, *layer.parameters()]
    results = []
    for run in (plain, lambda: layer(vectors, sizes, *start)):
        outcome = run()
        loss = sum(
            (part * torch.arange(1, part.numel() + 1).view_as(part)).sum() for part in outcome
        )
        results.append((outcome, torch.autograd.grad(loss, parameters)))
    (expected, expected_grads), (found, found_grads) = results
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_grads, expected_grads, rtol=1e-4, atol=1e-4)


def test_a_long_text_is_read_in_windows_without_a_seam():
    layer = ProjectedLSTM(config())
    sizes = [2] * 700 + [1] * 300
    vectors = torch.randn(sum(sizes), 3)
    state = torch.zeros(2, 3), torch.zeros(2, 5)
    with torch.no_grad():
        windows = layer(vectors, sizes, *state)
    whole = layer(vectors.requires_grad_(), sizes, *state)
    torch.testing.assert_close(windows, whole)


def test_the_state_given_is_not_touched():
    layer = ProjectedLSTM(config())
    output, memory = torch.ones(1, 3), torch.ones(1, 5)
    with torch.no_grad():
        layer(torch.randn(4, 3), [1, 1, 1, 1], output, memory)
    assert (output == 1).all()
    assert (memory == 1).all()


def test_nothing_is_said_beyond_the_clips():
    shape = config(cell_clip=0.4, projection_clip=0.3)
    layer = ProjectedLSTM(shape)
    with torch.no_grad():
        layer.input_weight.mul_(50)
        said, _, memory = layer(torch.randn(9, 3), [3, 3, 3], torch.zeros(3, 3), torch.zeros(3, 5))
    assert said.abs().max() == pytest.approx(0.3)
    assert memory.abs().max() == pytest.approx(0.4)


def test_layers_above_the_top_do_not_move():
    reader = LSTMStack(config())
    state = torch.ones(2, 1, 3), torch.ones(2, 1, 5)
    with torch.no_grad():
        said, output, memory = reader(torch.randn(2, 3), [1, 1], *state, top=1)
    assert len(said) == 1
    assert not (output[0] == 1).all()
    assert (output[1] == 1).all()
    assert (memory[1] == 1).all()
