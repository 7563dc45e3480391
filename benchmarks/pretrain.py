"""Training speed in tokens per second, beside the reference implementations installed.

    python benchmarks/pretrain.py FOLDER [--sizes S small] [--steps 45]

FOLDER is what `two_million.py` wrote. Every trainer does the task of `contest.py`; elmokit also
with larger batches. A table for people, one JSON line last for machines.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import elmokit
from contest import BATCH_SIZE, DROPOUT, NUM_SAMPLED, SEQUENCE_LENGTH, SIZES, WARMUP_STEPS
from elmokit.pretraining.trainer import Trainer
from embed import gemm_peak

HERE = Path(__file__).parent
OWN = {"batch_size": 4 * BATCH_SIZE, "num_sampled": NUM_SAMPLED // 2}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", nargs="+", default=[*SIZES], choices=SIZES)
    parser.add_argument("--steps", type=int, default=45)
    chosen = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, float32 product {gemm_peak() / 1e9:.0f} GFLOP/s")
    rows = []
    with tempfile.TemporaryDirectory() as prepared:
        corpus = elmokit.prepare(
            chosen.folder / "train.txt",
            Path(prepared, "corpus"),
            tokenizer="spaces",
            vocabulary=chosen.folder / "vocabulary.txt",
            valid=chosen.folder / "valid.txt",
            workers=1,
        )
        for size in chosen.sizes:
            rows += measure(size, corpus, chosen.folder, chosen.steps)
    print(json.dumps(rows))


def measure(size: str, corpus: elmokit.Corpus, folder: Path, steps: int) -> list[dict]:
    """A row for elmokit with the task's settings, with its own, and for each peer."""
    rows = []
    for name, changes in (("elmokit", {}), ("elmokit, larger batches", OWN)):
        trainer = Trainer(corpus, settings_of(size, changes))
        speed, share = speed_of(trainer, steps)
        rows.append({"size": size, "trainer": name, "tokens_per_second": speed, "of_peak": share})
        print(f"{size:6} {name:24} {speed:8,.0f} tokens/s, LSTMs at {share:.2f} of the peak")
    for name, script, python in peers():
        done = subprocess.run(
            [python, script, folder, "--size", size, "--steps", str(steps)],
            check=True,
            stdout=subprocess.PIPE,
        )
        theirs = json.loads(done.stdout.splitlines()[-1])["tokens_per_second"]
        rows.append({"size": size, "trainer": name, "tokens_per_second": theirs})
        ratios = " and ".join(f"{row['tokens_per_second'] / theirs:.1f}" for row in rows[:2])
        print(f"{size:6} {name:24} {theirs:8,.0f} tokens/s; elmokit does {ratios} times that")
    return rows


def settings_of(size: str, changes: dict) -> elmokit.PretrainingSettings:
    """elmokit's settings for the task: what `contest.py` says, all else as published."""
    filters = tuple(tuple(pair) for pair in SIZES[size]["filters"])
    task = {
        "batch_size": BATCH_SIZE,
        "sequence_length": SEQUENCE_LENGTH,
        "num_sampled": NUM_SAMPLED,
        "dropout": DROPOUT,
    }
    return elmokit.PretrainingSettings(**{**SIZES[size], "filters": filters, **task, **changes})


def speed_of(trainer: Trainer, steps: int) -> tuple[float, float]:
    """Words a second after the warm-up, and the LSTMs' share of the GEMM peak meanwhile."""
    for _ in range(WARMUP_STEPS):
        trainer.train_step()
    started = time.perf_counter()
    for _ in range(steps - WARMUP_STEPS):
        trainer.train_step()
    speed = trainer.words_per_step * (steps - WARMUP_STEPS) / (time.perf_counter() - started)
    weights = sum(parameter.numel() for parameter in trainer.model.bilm.lstms.parameters())
    return speed, 6 * weights * speed / gemm_peak()


def peers() -> list[tuple[str, Path, Path]]:
    peers = [("straightforward PyTorch", HERE / "plain_trainer.py", Path(sys.executable))]
    bilm_tf = HERE / "peers" / "bilm_tf" / "bin" / "python"
    if bilm_tf.exists():
        peers.append(("bilm-tf", HERE / "bilm_tf_peer.py", bilm_tf))
    return peers


if __name__ == "__main__":
    main()
