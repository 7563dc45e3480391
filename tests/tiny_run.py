"""Settings and text of a pretraining run that takes a second."""

import operator

import torch
import torch.utils._pytree as pytree

from elmokit.pretraining.settings import PretrainingSettings

TINY = PretrainingSettings(
    projection_size=8,
    cell_size=12,
    filters=((1, 6), (2, 6)),
    max_characters=12,
    character_embedding_size=4,
    batch_size=4,
    sequence_length=5,
    num_sampled=6,
    steps=24,
    validation_interval=8,
    log_interval=4,
    optimizer="adamw",
    learning_rate=0.02,
    dropout=0.2,
    warmup_steps=3,
    schedule="cosine",
    checkpoint_minutes=0.0,
)


SENTENCES = [
    f"the {color} {animal} sat on the {color} mat .".split()
    for color in ("red", "blue")
    for animal in ("cat", "dog", "owl")
] * 4


def changed(**changes):
    return PretrainingSettings(**{**vars(TINY), **changes})


def weights_of(folder):
    return (folder / "model" / "model.safetensors").read_bytes()


def assert_equal_runs(one, other):
    """Two runs have the same bits: weights, optimizer, states and positions."""
    first, second = (torch.load(out / "checkpoint.pt", weights_only=True) for out in (one, other))
    for values in (first, second):
        del values["settings"]
    values = [
        {pytree.keystr(path): value for path, value in pytree.tree_flatten_with_path(tree)[0]}
        for tree in (first, second)
    ]
    assert values[0].keys() == values[1].keys()
    for path, value in values[0].items():
        same = torch.equal if isinstance(value, torch.Tensor) else operator.eq
        assert same(value, values[1][path]), path
    models = [(out / "model" / "model.safetensors").read_bytes() for out in (one, other)]
    assert models[0] == models[1]
