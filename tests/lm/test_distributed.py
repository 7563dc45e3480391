"""Two ranks learn what one rank with all the lanes learns, and a lost rank ends the run."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch

from elmokit.errors import ConfigError
from elmokit.lm.distributed import Ranks
from made import make_corpus

SENTENCES = [f"the {a} cat sat on the {b} mat .".split() for a in "abc" for b in "defg"] * 3
RUN = """
import os, sys, torch
from elmokit.lm.corpus import Corpus
from elmokit.lm.settings import Settings
from elmokit.lm.trainer import pretrain
torch.set_num_threads(1)
folder, out, updates = sys.argv[1:]
settings = Settings(
    dim=8, cell_dim=12, filters=((1, 6), (2, 6)), width=12, character_dim=4, lanes=6, steps=5,
    negatives=6, updates=int(updates), validate_every=4, log_every=2, dropout=0.0,
    learning_rate=0.1, checkpoint_minutes=0.0,
)
def tell(line):
    if os.environ.get("RANK") == "1" and os.environ.get("LOSE") and line.startswith("update 4 "):
        os._exit(3)
pretrain(Corpus.open(folder), settings, out, tell=tell)
"""


def start(folder, out, updates, rank=None, port=None, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    if rank is not None:
        environment |= {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", RUN, folder, out, str(updates)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )


def run_two(folder, out, updates, **more):
    """The exit codes of two ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [start(folder, out, updates, rank, port, **more) for rank in (0, 1)]
    return [rank.wait(timeout=100) for rank in ranks]


def weights_of(out):
    return torch.load(out / "checkpoint.pt", weights_only=True)["weights"]


def test_two_ranks_are_one_with_all_the_lanes_even_after_a_loss(tmp_path):
    folder = make_corpus(tmp_path / "corpus", SENTENCES, valid=SENTENCES[:3])
    alone = start(folder, tmp_path / "one", 8)
    assert run_two(folder, tmp_path / "two", 8, LOSE="1") != [0, 0]
    assert torch.load(tmp_path / "two" / "checkpoint.pt", weights_only=True)["update"] < 8
    assert run_two(folder, tmp_path / "two", 8) == [0, 0]
    assert alone.wait(timeout=100) == 0
    one, two = weights_of(tmp_path / "one"), weights_of(tmp_path / "two")
    for name, weight in one.items():
        torch.testing.assert_close(weight, two[name], atol=1e-5, rtol=0)
    updates = [
        [json.loads(line)["update"] for line in (tmp_path / n / "log.jsonl").open()]
        for n in ("one", "two")
    ]
    assert updates[0] == updates[1]


def test_lanes_that_ranks_cannot_share_are_refused():
    with pytest.raises(ConfigError, match="multiple of 4"):
        Ranks(1, 4).share(6)
    assert Ranks(1, 4).share(8) == slice(2, 4)
