"""The task that all trainers are timed on, and their command line.

Each trainer is called as `SCRIPT DATA_FOLDER --size S --steps 500`, with a folder that
`two_million.py` wrote, and prints one JSON line last: tokens a second and mean losses.
"""

import argparse
import json
from pathlib import Path

BATCH_SIZE, SEQUENCE_LENGTH = 64, 20
TOKENS_PER_STEP = BATCH_SIZE * SEQUENCE_LENGTH  # a token counts once for both directions
NUM_SAMPLED = 4096
DROPOUT = 0.1
LEARNING_RATE, INITIAL_ACCUMULATOR = 0.2, 1.0  # of Adagrad
CLIP, MAX_GRAD_NORM = 3.0, 10.0
NUM_LAYERS, MAX_CHARACTERS, CHARACTER_EMBEDDING_SIZE, HIGHWAY_LAYERS = 2, 50, 16, 1
FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
SIZES = {
    "S": {"projection_size": 128, "cell_size": 512, "filters": FILTERS[:5]},
    "small": {"projection_size": 128, "cell_size": 1024, "filters": FILTERS},
}
WARMUP_STEPS = 5  # steps that are not timed
LOSSES_PER_MEAN = 50


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="what two_million.py wrote")
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.steps <= WARMUP_STEPS:
        parser.error(f"--steps is {chosen.steps}, expected more than {WARMUP_STEPS}")
    return chosen


def report(losses: list[float], ended: list[float]) -> None:
    """Print the speed after the warm-up and mean losses; `ended` is when each step did."""
    seconds = ended[-1] - ended[WARMUP_STEPS - 1]
    speed = (len(ended) - WARMUP_STEPS) * TOKENS_PER_STEP / seconds
    chunks = [losses[k : k + LOSSES_PER_MEAN] for k in range(0, len(losses), LOSSES_PER_MEAN)]
    means = [sum(chunk) / len(chunk) for chunk in chunks]
    print(f"{speed:.0f} tokens/s, loss " + " ".join(f"{mean:.3f}" for mean in means))
    print(json.dumps({"tokens_per_second": speed, "losses": means}))
