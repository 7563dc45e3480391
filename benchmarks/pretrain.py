"""Two million words become tokens per second of training, beside the ancestors installed.

    python benchmarks/pretrain.py FOLDER [--sizes S small] [--updates 40]

FOLDER is what `two_million.py` makes. Every trainer reads the same text with the same sizes and
settings: 64 lanes of 20 steps, 4,096 wrong answers, dropout 0.1, Adagrad 0.2. A word counts once
for both directions. A table for people, one JSON line last for machines.
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
from elmokit.lm.run import Run

HERE = Path(__file__).parent
S = {"dim": 128, "cell_dim": 512, "filters": ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256))}
SIZES = {"S": S, "small": {"dim": 128, "cell_dim": 1024}}
SAME = {"lanes": 64, "steps": 20, "negatives": 4096, "dropout": 0.1, "epochs": 1.0}
OURS = {"lanes": 256, "steps": 20, "negatives": 2048, "dropout": 0.1, "epochs": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", nargs="+", default=[*SIZES], choices=SIZES)
    parser.add_argument("--updates", type=int, default=40)
    chosen = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as prepared:
        corpus = prepare(chosen.folder, Path(prepared, "corpus"))
        for size in chosen.sizes:
            results += measure(size, corpus, chosen.folder, chosen.updates)
    print(json.dumps(results))


def prepare(folder: Path, prepared: Path) -> elmokit.Corpus:
    return elmokit.prepare(
        folder / "train.txt",
        prepared,
        split="spaces",
        vocabulary=folder / "vocabulary.txt",
        valid=folder / "valid.txt",
    )


def measure(size: str, corpus: elmokit.Corpus, folder: Path, updates: int) -> list[dict]:
    """A row for elmokit with the same settings, with its own, and for each peer."""
    rows = []
    for name, settings in (("elmokit", SAME), ("elmokit, its own lanes", OURS)):
        run = Run(corpus, elmokit.Settings(**SIZES[size], **settings))
        speed, share = best_speed(run, updates)
        rows.append({"size": size, "trainer": name, "tokens_per_second": speed, "of_peak": share})
        print(f"{size:6} {name:24} {speed:8,.0f} tokens/s, readers at {share:.2f} of the peak")
    for name, script, python in peers():
        told = json.loads(
            subprocess.run(
                [python, script, folder, "--size", size, "--updates", str(updates)],
                check=True,
                stdout=subprocess.PIPE,
            ).stdout.splitlines()[-1]
        )
        speed = told["tokens_per_second"]
        rows.append({"size": size, "trainer": name, "tokens_per_second": speed})
        ratio = rows[0]["tokens_per_second"] / speed
        print(f"{size:6} {name:24} {speed:8,.0f} tokens/s; elmokit does {ratio:.1f} times that")
    return rows


def best_speed(run: Run, updates: int) -> tuple[float, float]:
    """Words a second in the best ten updates, and the readers' share of the GEMM peak meanwhile."""
    run.update()
    times = []
    for _ in range(updates):
        started = time.perf_counter()
        run.update()
        times.append(time.perf_counter() - started)
    fastest = sorted(times)[: max(1, min(10, updates // 2))]
    speed = run.words_per_update * len(fastest) / sum(fastest)
    weights = sum(parameter.numel() for parameter in run.model.bilm.readers.parameters())
    return speed, 6 * weights * speed / gemm_peak()


def gemm_peak() -> float:
    """The float32 operations a second that a large product reaches, now."""
    left, right = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - started)
    return 2 * 2048**3 / best


def peers() -> list[tuple[str, Path, Path]]:
    found = [("straightforward PyTorch", HERE / "plain_trainer.py", Path(sys.executable))]
    bilm_tf = HERE / "peers" / "bilm_tf" / "bin" / "python"
    if bilm_tf.exists():
        found.append(("bilm-tf", HERE / "bilm_tf_peer.py", bilm_tf))
    return found


if __name__ == "__main__":
    main()
