"""Under autocast the products are short, and what is learnt is nearly the same."""

import os
import subprocess
import sys

PROGRAM = """
import torch
from elmokit.config import BiLMConfig, CharacterConfig
from elmokit.model.bilm import BiLM

torch.manual_seed(0)
characters = CharacterConfig(width=8, character_dim=4, filters=((1, 8), (2, 8)), highways=1)
bilm = BiLM(BiLMConfig(dim=16, cell_dim=24, layers=2, characters=characters))
chars, sizes = torch.randint(1, 200, (9, 8)), [4, 3, 2]
state = torch.zeros(2, 4, 16), torch.zeros(2, 4, 24)


def gradients(short):
    bilm.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=short):
        vectors = bilm.encode(chars)
        said, output, memory = bilm.readers[0](vectors, sizes, *state, 2)
    assert {part.dtype for part in (vectors, *said, output, memory)} == {torch.float32}
    (said[-1] ** 2).sum().backward()
    return said[-1].detach(), [p.grad.clone() for p in bilm.parameters() if p.grad is not None]


def distance(one, other):
    return float((one - other).norm() / one.norm())


(said, exact), (short_said, short) = gradients(False), gradients(True)
assert 1e-5 < distance(said, short_said) < 0.02, distance(said, short_said)
assert len(exact) == len(short) > 10
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
