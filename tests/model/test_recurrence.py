"""Under autocast the products are short, and what is learnt is nearly the same."""

import os
import subprocess
import sys

PROGRAM = """
import torch
from elmokit.config import BiLMConfig, CharacterConfig
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
        said, output, memory = bilm.lstms[0](vectors, sizes, *state, 2)
        loss = sampled_loss(said[-1], targets, softmax.weight, softmax.bias, sample)
    assert {part.dtype for part in (vectors, *said, output, memory, loss)} == {torch.float32}
    return said[-1].detach(), loss.detach(), torch.autograd.grad(loss, weights)


def distance(one, other):
    return float((one - other).norm() / one.norm())


(said, loss, exact), (short_said, short_loss, short) = gradients(False), gradients(True)
assert 0 < distance(loss, short_loss) < 0.001, (loss, short_loss)
assert 1e-5 < distance(said, short_said) < 0.02, distance(said, short_said)
worst = max(distance(a, b) for a, b in zip(exact, short))
assert 1e-4 < worst < 0.05, worst
"""


def test_under_autocast_the_products_are_short_and_nothing_else():
    # Some machines announce bfloat16 instructions that they do not have: keep to older ones.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
