import os
import subprocess
import sys

import pytest
import torch
from torch.autograd import gradcheck

from elmokit.model.lstm import LSTMStack, ProjectedLSTM
from elmokit.model_config import BiLMConfig


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
        {"peepholes": True, "cell_clip": 0.2},
    ],
    ids=["projected", "no projection", "no clips", "tight clips", "peepholes"],
)
def test_gradients_match_finite_differences(changes):
    shape = config(**changes)
    layer = ProjectedLSTM(shape).double()
    if layer.peepholes is not None:
        torch.nn.init.normal_(layer.peepholes)
    sizes = [3, 3, 2, 1]
    vectors = torch.randn(
        sum(sizes), shape.projection_size, dtype=torch.float64, requires_grad=True
    )
    hidden = 0.05 * torch.randn(3, shape.projection_size, dtype=torch.float64)
    cell = 0.1 * torch.randn(3, shape.cell_size, dtype=torch.float64)
    inputs = (vectors, hidden.requires_grad_(), cell.requires_grad_(), *layer.parameters())

    def run(vectors, hidden, cell, *_):
        return layer(vectors, sizes, hidden, cell)

    assert gradcheck(run, inputs, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("peepholes", [False, True])
def test_gradients_equal_those_of_a_plain_loop(peepholes):
    shape = config(projection_size=4, cell_size=8, peepholes=peepholes)
    layer = ProjectedLSTM(shape)
    from_cell = torch.zeros(3, 8)
    if peepholes:
        from_cell = torch.nn.init.normal_(layer.peepholes)
    sizes = [3, 2, 2, 1]
    vectors = torch.randn(sum(sizes), 4, requires_grad=True)
    start = torch.randn(3, 4), torch.randn(3, 8)

    def plain():
        hidden, cell = start
        outputs = []
        offset = torch.cat([torch.zeros(8), torch.ones(8), torch.zeros(16)])
        for step in vectors.split(sizes):
            n = len(step)
            gates = step @ layer.input_weight.t() + hidden[:n] @ layer.recurrent_weight.t()
            i, f, o, g = (gates + layer.bias + offset).chunk(4, 1)
            i, f = i + from_cell[0] * cell[:n], f + from_cell[1] * cell[:n]
            new_cell = (f.sigmoid() * cell[:n] + i.sigmoid() * g.tanh()).clamp(-3, 3)
            o = o + from_cell[2] * new_cell
            output = ((o.sigmoid() * new_cell.tanh()) @ layer.projection.t()).clamp(-3, 3)
            outputs.append(output)
            hidden = torch.cat([output, hidden[n:]])
            cell = torch.cat([new_cell, cell[n:]])
        return torch.cat(outputs), hidden, cell

    parameters = [vectors, *layer.parameters()]
    results = []
    for run in (plain, lambda: layer(vectors, sizes, *start)):
        outcome = run()
        loss = sum(
            (part * torch.arange(1, part.numel() + 1).view_as(part)).sum() for part in outcome
        )
        results.append((outcome, torch.autograd.grad(loss, parameters)))
    (expected, expected_grads), (actual, actual_grads) = results
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(actual_grads, expected_grads, rtol=1e-4, atol=1e-4)


def test_computing_in_windows_changes_nothing():
    layer = ProjectedLSTM(config())
    sizes = [2] * 700 + [1] * 300
    vectors = torch.randn(sum(sizes), 3)
    state = torch.zeros(2, 3), torch.zeros(2, 5)
    with torch.no_grad():
        windows = layer(vectors, sizes, *state)
    at_once = layer(vectors.requires_grad_(), sizes, *state)
    torch.testing.assert_close(windows, at_once)


def test_the_initial_state_is_not_written_to():
    layer = ProjectedLSTM(config())
    hidden, cell = torch.ones(1, 3), torch.ones(1, 5)
    with torch.no_grad():
        layer(torch.randn(4, 3), [1, 1, 1, 1], hidden, cell)
    assert (hidden == 1).all()
    assert (cell == 1).all()


def test_states_stay_within_the_clips():
    shape = config(cell_clip=0.4, projection_clip=0.3)
    layer = ProjectedLSTM(shape)
    with torch.no_grad():
        layer.input_weight.mul_(50)
        outputs, _, cell = layer(torch.randn(9, 3), [3, 3, 3], torch.zeros(3, 3), torch.zeros(3, 5))
    assert outputs.abs().max() == pytest.approx(0.3)
    assert cell.abs().max() == pytest.approx(0.4)


def test_layers_that_are_not_run_keep_their_state():
    stack = LSTMStack(config())
    state = torch.ones(2, 1, 3), torch.ones(2, 1, 5)
    with torch.no_grad():
        outputs, hidden, cell = stack(torch.randn(2, 3), [1, 1], *state, num_layers=1)
    assert len(outputs) == 1
    assert not (hidden[0] == 1).all()
    assert (hidden[1] == 1).all()
    assert (cell[1] == 1).all()


AUTOCAST_PROGRAM = """
import torch
from elmokit.model_config import BiLMConfig, CharacterConfig
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import NegativeSample, Softmax, sampled_loss

torch.manual_seed(0)
characters = CharacterConfig(
    max_characters=8, embedding_size=4, filters=((1, 8), (2, 8)), highway_layers=1
)
bilm = BiLM(BiLMConfig(
    projection_size=16, cell_size=24, num_layers=2, characters=characters
))
softmax, targets = Softmax(30, 16), torch.randint(30, (9,))
sample = NegativeSample.entire_vocabulary(30, like=softmax.weight)
weights = [*bilm.encoder.parameters(), *bilm.lstms[0].parameters(), *softmax.parameters()]
chars, sizes = torch.randint(1, 200, (9, 8)), [4, 3, 2]
state = torch.zeros(2, 4, 16), torch.zeros(2, 4, 24)


def gradients(short):
    with torch.autocast("cpu", torch.bfloat16, enabled=short):
        vectors = bilm.encode(chars)
        outputs, hidden, cell = bilm.lstms[0](vectors, sizes, *state, 2)
        loss = sampled_loss(outputs[-1], targets, softmax.weight, softmax.bias, sample)
    assert {part.dtype for part in (vectors, *outputs, hidden, cell, loss)} == {torch.float32}
    return outputs[-1].detach(), loss.detach(), torch.autograd.grad(loss, weights)


def distance(one, other):
    return float((one - other).norm() / one.norm())


(output, loss, exact), (short_output, short_loss, short) = gradients(False), gradients(True)
assert 0 < distance(loss, short_loss) < 0.001, (loss, short_loss)
assert 1e-5 < distance(output, short_output) < 0.02, distance(output, short_output)
worst = max(distance(a, b) for a, b in zip(exact, short))
assert 1e-4 < worst < 0.05, worst
"""


def test_autocast_changes_the_type_of_products_only():
    # Some machines announce bfloat16 instructions that they do not have: keep to older ones.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", AUTOCAST_PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
