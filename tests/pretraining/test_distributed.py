"""Training on two ranks, and a rank that is lost."""

import json
import multiprocessing
import os
import socket

import pytest
import torch
import torch._dynamo

from elmokit.errors import ConfigError, RankError
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.distributed import ProcessGroup
from elmokit.pretraining.settings import PretrainingSettings
from elmokit.pretraining.trainer import Trainer, pretrain
from random_models import make_corpus

SENTENCES = [f"the {a} cat sat on the {b} mat .".split() for a in "abc" for b in "defg"] * 3
SETTINGS = PretrainingSettings(
    projection_size=8,
    cell_size=12,
    filters=((1, 6), (2, 6)),
    max_characters=12,
    character_embedding_size=4,
    batch_size=6,
    sequence_length=5,
    num_sampled=6,
    steps=8,
    validation_interval=4,
    log_interval=2,
    dropout=0.0,
    learning_rate=0.1,
    checkpoint_minutes=0.0,
    encoder_every=2,
)


def train(folder, out, environment, lose):
    os.environ |= environment

    train_step = Trainer.train_step

    def train_step_or_die(trainer):
        if trainer.step == 4:
            os._exit(3)
        return train_step(trainer)

    if lose:
        Trainer.train_step = train_step_or_die
    try:
        pretrain(Corpus.open(folder), SETTINGS, out)
    except RankError:
        os._exit(1)


def run_ranks(folder, out, *, ranks, lost=None):
    """The exit codes of the ranks; `lost` is the rank that exits early."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("fork")
    processes = []
    for rank in range(ranks):
        environment = {
            "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
        processes.append(
            context.Process(target=train, args=(folder, out, environment, rank == lost))
        )
        processes[-1].start()
    for process in processes:
        process.join(timeout=100)
    return [process.exitcode for process in processes]


def weights_of(out):
    return torch.load(out / "checkpoint.pt", weights_only=True)["weights"]


def test_two_ranks_train_the_weights_of_one_even_after_a_lost_rank(tmp_path):
    folder = make_corpus(tmp_path / "corpus", SENTENCES, valid=SENTENCES[:3])
    one, two = tmp_path / "one", tmp_path / "two"
    assert run_ranks(folder, one, ranks=1) == [0]
    assert run_ranks(folder, two, ranks=2, lost=1) == [1, 3]
    assert torch.load(two / "checkpoint.pt", weights_only=True)["step"] < 8
    assert run_ranks(folder, two, ranks=2) == [0, 0]
    single, pair = weights_of(one), weights_of(two)
    for name, weight in single.items():
        torch.testing.assert_close(weight, pair[name], atol=1e-5, rtol=0)
    updates = [
        [json.loads(line)["update"] for line in (out / "log.jsonl").read_text().splitlines()]
        for out in (one, two)
    ]
    assert updates[0] == updates[1]


def test_a_batch_size_that_ranks_cannot_share_is_refused():
    with pytest.raises(ConfigError, match="multiple of 4"):
        ProcessGroup(1, 4).rows(6)
    assert ProcessGroup(1, 4).rows(8) == slice(2, 4)
