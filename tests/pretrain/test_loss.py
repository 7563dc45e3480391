"""A step's gradients are those of the loss as it is written on paper."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from elmokit.config import BiLMConfig, CharacterConfig
from elmokit.model.bilm import BiLM, LanguageModel, State
from elmokit.model.dropout import Dropout
from elmokit.model.softmax import AdaptiveSoftmax, NegativeSample, Softmax
from elmokit.pretrain.loss import DirectionInput, Segments, add_gradients

LANES, STEPS, WORDS, TYPES = 3, 7, 20, 9
CHARACTERS = CharacterConfig(
    max_characters=8, embedding_size=3, filters=((1, 4), (2, 6)), highway_layers=1
)


def make_model(kind):
    torch.manual_seed(0)
    config = BiLMConfig(
        projection_size=16,
        cell_size=24,
        num_layers=2,
        characters=None if kind == "shared" else CHARACTERS,
        vocabulary_size=WORDS if kind == "shared" else None,
        cell_clip=0.1,
        projection_clip=0.05,
    )
    softmax = AdaptiveSoftmax(WORDS, 16, (5,)) if kind == "adaptive" else Softmax(WORDS, 16)
    return LanguageModel(BiLM(config), softmax, tie_weights=kind == "shared").double()


def make_case(model, kind):
    random = np.random.default_rng(1)
    shared = model.bilm.config.characters is None
    chars = random.integers(1, WORDS if shared else 200, (TYPES + 1, 1 if shared else 8))
    readings, resets = [], []
    for _ in range(2):
        reset = random.random((LANES, STEPS)) < 0.3
        resets.append(reset)
        every = (
            NegativeSample.entire_vocabulary(WORDS, like=next(model.parameters()))
            if kind != "adaptive"
            else None
        )
        readings.append(
            DirectionInput(
                torch.from_numpy(random.integers(1, TYPES + 1, LANES * STEPS)),
                torch.from_numpy(random.integers(0, WORDS, LANES * STEPS)),
                Segments.of(reset),
                Dropout(0.0, torch.Generator()),
                every,
            )
        )
    state = State.zeros(model.bilm.config, LANES, like=next(model.parameters()))
    state = State(torch.randn_like(state.hidden) * 0.05, torch.randn_like(state.cell) * 0.1)
    return torch.from_numpy(chars), readings, resets, state


def loss_on_paper(model, chars, readings, resets, state):
    """Lane by lane and word by word; half the sum of both directions' mean losses."""
    types = model.bilm.encode(chars)
    total = 0.0
    outputs, memories = torch.empty_like(state.hidden), torch.empty_like(state.cell)
    for way, (reading, reset) in enumerate(zip(readings, resets, strict=True)):
        words, targets = reading.words.view(LANES, STEPS), reading.targets.view(LANES, STEPS)
        for lane in range(LANES):
            output, memory = state.hidden[way][:, [lane]], state.cell[way][:, [lane]]
            for step in range(STEPS):
                if reset[lane, step]:
                    output, memory = torch.zeros_like(output), torch.zeros_like(memory)
                read, output, memory = model.bilm.lstms[way](
                    types[words[lane, [step]]], [1], output, memory, 2
                )
                if isinstance(model.softmax, AdaptiveSoftmax):
                    logs = model.softmax(read[-1])
                else:
                    table = model.tied_embedding
                    weight = model.softmax.weight if table is None else table
                    logs = F.log_softmax(F.linear(read[-1], weight, model.softmax.bias), -1)
                total = total - logs[0, targets[lane, step]] / (LANES * STEPS) / 2
            outputs[way][:, lane], memories[way][:, lane] = output[:, 0], memory[:, 0]
    return total, outputs.detach(), memories.detach()


@pytest.mark.parametrize("kind", ["plain", "sparse", "adaptive", "shared", "side by side"])
def test_gradients_are_those_of_the_loss_on_paper(kind, monkeypatch):
    if kind == "side by side":
        monkeypatch.setattr("elmokit.pretrain.loss._NUMBERS_TO_LEARN_AT_ONCE", 0)
    model = make_model(kind)
    chars, readings, resets, state = make_case(model, kind)
    learnt = add_gradients(model, chars, readings, state, scale=5.0, sparse=kind == "sparse")
    ours = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    loss, outputs, memories = loss_on_paper(model, chars, readings, resets, state)
    (5.0 * loss).backward()

    assert sum(learnt.losses) / 2 == pytest.approx(loss.item())
    torch.testing.assert_close(learnt.state.hidden, outputs)
    torch.testing.assert_close(learnt.state.cell, memories)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            mine = ours[name].to_dense() if ours[name].is_sparse else ours[name]
            torch.testing.assert_close(mine, parameter.grad, msg=lambda m, n=name: f"{n}: {m}")
    assert ("softmax.weight" in ours) == (kind not in ("adaptive", "shared"))
    if kind == "sparse":
        assert ours["softmax.weight"].is_sparse
