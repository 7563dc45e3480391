"""Segments of a training window, and its gradients against a plain implementation of the loss."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from elmokit.model.bilm import BiLM, LanguageModel, State
from elmokit.model.dropout import Dropout
from elmokit.model.softmax import AdaptiveSoftmax, NegativeSample, Softmax
from elmokit.model_config import BiLMConfig, CharacterConfig
from elmokit.pretraining.gradients import DirectionInput, Segments, add_gradients
from elmokit.threads import using_threads

BATCH_SIZE, STEPS, WORDS, TYPES = 3, 7, 20, 9
CHARACTERS = CharacterConfig(
    max_characters=8, embedding_size=3, filters=((1, 4), (2, 6)), highway_layers=1
)


@given(num_rows=st.integers(1, 6), steps=st.integers(1, 8), seed=st.integers(0, 999))
def test_segments_cover_the_window_and_split_only_at_resets(num_rows, steps, seed):
    resets = np.random.default_rng(seed).random((num_rows, steps)) < 0.3
    segments = Segments.of(resets)
    assert sorted(segments.tokens.tolist()) == list(range(num_rows * steps))
    assert sum(segments.batch_sizes) == num_rows * steps
    assert segments.batch_sizes == sorted(segments.batch_sizes, reverse=True)

    # Follow each segment through its steps.
    begin = 0
    segment_of, step_in_segment = {}, {}
    for step, size in enumerate(segments.batch_sizes):
        for segment, token in enumerate(segments.tokens[begin : begin + size].tolist()):
            segment_of[token], step_in_segment[token] = segment, step
        begin += size
    for token in range(num_rows * steps):
        row, step = divmod(token, steps)
        assert segments.rows[segment_of[token]] == row
        if step > 0 and not resets[row, step]:
            assert segment_of[token] == segment_of[token - 1]
            assert step_in_segment[token] == step_in_segment[token - 1] + 1
        else:
            assert step_in_segment[token] == 0
            assert segments.is_reset[segment_of[token]] == resets[row, step]
    assert [
        segment_of[row * steps + steps - 1] for row in range(num_rows)
    ] == segments.last.tolist()


def make_model(kind):
    torch.manual_seed(0)
    config = BiLMConfig(
        projection_size=16,
        cell_size=24,
        num_layers=2,
        characters=None if kind == "tied" else CHARACTERS,
        vocabulary_size=WORDS if kind == "tied" else None,
        cell_clip=0.1,
        projection_clip=0.05,
    )
    softmax = AdaptiveSoftmax(WORDS, 16, (5,)) if kind == "adaptive" else Softmax(WORDS, 16)
    return LanguageModel(BiLM(config), softmax, tie_weights=kind == "tied").double()


def make_case(model, kind):
    random = np.random.default_rng(1)
    tied = model.bilm.config.characters is None
    chars = random.integers(1, WORDS if tied else 200, (TYPES + 1, 1 if tied else 8))
    inputs, resets = [], []
    for _ in range(2):
        reset = random.random((BATCH_SIZE, STEPS)) < 0.3
        resets.append(reset)
        entire_vocabulary = (
            NegativeSample.entire_vocabulary(WORDS, like=next(model.parameters()))
            if kind != "adaptive"
            else None
        )
        inputs.append(
            DirectionInput(
                torch.from_numpy(random.integers(1, TYPES + 1, BATCH_SIZE * STEPS)),
                torch.from_numpy(random.integers(0, WORDS, BATCH_SIZE * STEPS)),
                Segments.of(reset),
                Dropout(0.0, torch.Generator()),
                entire_vocabulary,
            )
        )
    state = State.zeros(model.bilm.config, BATCH_SIZE, like=next(model.parameters()))
    state = State(torch.randn_like(state.hidden) * 0.05, torch.randn_like(state.cell) * 0.1)
    return torch.from_numpy(chars), inputs, resets, state


def reference_loss(model, chars, inputs, resets, state):
    """Row by row and word by word; half the sum of both directions' mean losses."""
    types = model.bilm.encode(chars)
    total = 0.0
    hidden, cell = torch.empty_like(state.hidden), torch.empty_like(state.cell)
    for direction, (input_, reset) in enumerate(zip(inputs, resets, strict=True)):
        words, targets = (t.view(BATCH_SIZE, STEPS) for t in (input_.type_rows, input_.targets))
        for row in range(BATCH_SIZE):
            h, c = state.hidden[direction][:, [row]], state.cell[direction][:, [row]]
            for step in range(STEPS):
                if reset[row, step]:
                    h, c = torch.zeros_like(h), torch.zeros_like(c)
                layers, h, c = model.bilm.lstms[direction](types[words[row, [step]]], [1], h, c, 2)
                if isinstance(model.softmax, AdaptiveSoftmax):
                    logs = model.softmax(layers[-1])
                else:
                    table = model.tied_embedding
                    weight = model.softmax.weight if table is None else table
                    logs = F.log_softmax(F.linear(layers[-1], weight, model.softmax.bias), -1)
                total = total - logs[0, targets[row, step]] / (BATCH_SIZE * STEPS) / 2
            hidden[direction][:, row], cell[direction][:, row] = h[:, 0], c[:, 0]
    return total, hidden.detach(), cell.detach()


@pytest.mark.parametrize(
    "kind", ["plain", "sparse", "adaptive", "tied", "side by side", "in pieces"]
)
def test_gradients_are_those_of_the_reference_loss(kind, monkeypatch):
    if kind == "side by side":
        monkeypatch.setattr("elmokit.pretraining.gradients._NUMBERS_FOR_THREADS", 0)
    if kind == "in pieces":
        monkeypatch.setattr("elmokit.pretraining.gradients._TYPES_PER_PIECE", 4)
    model = make_model(kind)
    chars, inputs, resets, state = make_case(model, kind)
    result = add_gradients(model, chars, inputs, state, scale=5.0, sparse=kind == "sparse")
    ours = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    loss, hidden, cell = reference_loss(model, chars, inputs, resets, state)
    (5.0 * loss).backward()

    assert sum(result.losses) / 2 == pytest.approx(loss.item())
    torch.testing.assert_close(result.state.hidden, hidden)
    torch.testing.assert_close(result.state.cell, cell)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            mine = ours[name].to_dense() if ours[name].is_sparse else ours[name]
            torch.testing.assert_close(mine, parameter.grad, msg=lambda m, n=name: f"{n}: {m}")
    assert ("softmax.weight" in ours) == (kind not in ("adaptive", "tied"))
    if kind == "sparse":
        assert ours["softmax.weight"].is_sparse


def test_the_number_of_threads_changes_no_bit_of_a_gradient(monkeypatch):
    monkeypatch.setattr("elmokit.pretraining.gradients._NUMBERS_FOR_THREADS", 0)
    monkeypatch.setattr("elmokit.pretraining.gradients._TYPES_PER_PIECE", 2)
    gradients = []
    for threads in (1, 2, 4):
        model = make_model("plain")
        torch.manual_seed(0)
        chars, inputs, _, state = make_case(model, "plain")
        with using_threads(threads):
            for _ in range(2):  # the second window's are added to the first's
                add_gradients(model, chars, inputs, state, scale=1.0, sparse=False)
        gradients.append([parameter.grad for parameter in model.parameters()])
    for others in gradients[1:]:
        assert all(map(torch.equal, others, gradients[0]))
