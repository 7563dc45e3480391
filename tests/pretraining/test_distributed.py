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
from tiny_run import assert_equal_runs

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


def changed(**changes):
    return PretrainingSettings(**{**vars(SETTINGS), **changes})


def train(folder, out, settings, environment, lose, sizes):
    os.environ |= environment

    train_step = Trainer.train_step

    def train_step_or_die(trainer):
        if lose and trainer.step == 4:
            os._exit(3)
        result = train_step(trainer)
        state = getattr(trainer._optimizer, "optim", trainer._optimizer).state
        tensors = [t for values in state.values() for t in values.values() if t.dim()]
        sizes[int(os.environ["RANK"])] = sum(tensor.numel() for tensor in tensors)
        return result

    Trainer.train_step = train_step_or_die
    try:
        pretrain(Corpus.open(folder), settings, out)
    except RankError:
        os._exit(1)


def run_ranks(folder, out, *, ranks, lost=None, settings=SETTINGS):
    """The exit codes of the ranks, and how many numbers the optimizer of each keeps.

    `lost` is the rank that exits early.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("fork")
    sizes = context.Array("l", ranks)
    processes = []
    for rank in range(ranks):
        environment = {
            "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
        arguments = folder, out, settings, environment, rank == lost, sizes
        processes.append(context.Process(target=train, args=arguments))
        processes[-1].start()
    for process in processes:
        process.join(timeout=100)
    return [process.exitcode for process in processes], [*sizes]


def weights_of(out):
    return torch.load(out / "checkpoint.pt", weights_only=True)["weights"]


def test_two_ranks_train_the_weights_of_one_even_after_a_lost_rank(tmp_path):
    folder = make_corpus(tmp_path / "corpus", SENTENCES, valid=SENTENCES[:3])
    one, two = tmp_path / "one", tmp_path / "two"
    assert run_ranks(folder, one, ranks=1)[0] == [0]
    assert run_ranks(folder, two, ranks=2, lost=1)[0] == [1, 3]
    assert torch.load(two / "checkpoint.pt", weights_only=True)["step"] < 8
    assert run_ranks(folder, two, ranks=2)[0] == [0, 0]
    single, pair = weights_of(one), weights_of(two)
    for name, weight in single.items():
        torch.testing.assert_close(weight, pair[name], atol=1e-5, rtol=0)
    updates = [
        [json.loads(line)["update"] for line in (out / "log.jsonl").read_text().splitlines()]
        for out in (one, two)
    ]
    assert updates[0] == updates[1]


@pytest.mark.parametrize("optimizer", ["adagrad", "adamw"])
def test_two_micro_batches_have_the_bits_of_one_rank_on_two(optimizer, tmp_path):
    """With dropout, accumulated windows, and a sharded optimizer that is lost on the way."""
    folder = make_corpus(tmp_path / "corpus", SENTENCES, valid=SENTENCES[:3], shards=3)
    settings = changed(
        micro_batches=2, dropout=0.2, gradient_accumulation=2, optimizer=optimizer,
        softmax_gradient="dense", batch_size=8,
    )  # fmt: skip
    one, two = tmp_path / "one", tmp_path / "two"
    codes, (whole,) = run_ranks(folder, one, ranks=1, settings=settings)
    assert codes == [0]
    sharded = PretrainingSettings(**{**vars(settings), "shard_optimizer": True})
    codes, shares = run_ranks(folder, two, ranks=2, lost=1, settings=sharded)
    assert codes == [1, 3]
    assert sum(shares) == whole
    assert max(shares) < 0.7 * whole
    # One rank goes on with what two have done, and two with that.
    some = PretrainingSettings(**{**vars(settings), "steps": 6})
    assert run_ranks(folder, two, ranks=1, settings=some)[0] == [0]
    assert run_ranks(folder, two, ranks=2, settings=sharded)[0] == [0, 0]
    assert_equal_runs(one, two)


@pytest.mark.full
def test_more_ranks_than_micro_batches_share_their_rows(tmp_path):
    """Three ranks, one of which has rows of both micro-batches."""
    folder = make_corpus(tmp_path / "corpus", SENTENCES, shards=3)
    settings = changed(micro_batches=2, batch_size=8)
    one, three = tmp_path / "one", tmp_path / "three"
    assert run_ranks(folder, one, ranks=1, settings=settings)[0] == [0]
    assert run_ranks(folder, three, ranks=3, settings=settings)[0] == [0, 0, 0]
    single, several = weights_of(one), weights_of(three)
    for name, weight in single.items():
        torch.testing.assert_close(weight, several[name], atol=1e-5, rtol=0)
    positions = [
        torch.load(out / "checkpoint.pt", weights_only=True)["positions"] for out in (one, three)
    ]
    assert positions[0] == positions[1]


def test_a_batch_size_that_ranks_cannot_share_is_refused():
    with pytest.raises(ConfigError, match="at least 4"):
        ProcessGroup(1, 4).rows(3)
    assert [ProcessGroup(rank, 3).rows(7) for rank in range(3)] == [
        slice(0, 2), slice(2, 4), slice(4, 7)
    ]  # fmt: skip
    assert ProcessGroup(1, 4).rows(8) == slice(2, 4)
