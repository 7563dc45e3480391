"""A command line becomes the one task that all trainers are timed on.

Each trainer is called as `SCRIPT DATA_FOLDER --size S --updates 500`, with a folder that
`two_million.py` wrote, and prints one JSON line last: tokens a second and mean losses.
"""

import argparse
import json
from pathlib import Path

LANES, STEPS = 64, 20
TOKENS_PER_UPDATE = LANES * STEPS  # a token counts once for both directions
NEGATIVES = 4096
DROPOUT = 0.1
LEARNING_RATE, FIRST_ACCUMULATOR = 0.2, 1.0  # of Adagrad
CLIP, GRADIENT_CLIP = 3.0, 10.0
LAYERS, CHARACTERS, CHARACTER_DIM, HIGHWAYS = 2, 50, 16, 1
FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
SIZES = {
    "S": {"dim": 128, "cell_dim": 512, "filters": FILTERS[:5]},
    "small": {"dim": 128, "cell_dim": 1024, "filters": FILTERS},
}
WARM_UP = 5  # updates that are not timed
LOSSES_PER_MEAN = 50


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="what two_million.py wrote")
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.updates <= WARM_UP:
        parser.error(f"--updates is {chosen.updates}, expected more than {WARM_UP}")
    return chosen


def report(losses: list[float], ended: list[float]) -> None:
    """Print the speed after the warm-up and mean losses; `ended` is when each update did."""
    seconds = ended[-1] - ended[WARM_UP - 1]
    speed = (len(ended) - WARM_UP) * TOKENS_PER_UPDATE / seconds
    chunks = [losses[k : k + LOSSES_PER_MEAN] for k in range(0, len(losses), LOSSES_PER_MEAN)]
    means = [sum(chunk) / len(chunk) for chunk in chunks]
    print(f"{speed:.0f} tokens/s, loss " + " ".join(f"{mean:.3f}" for mean in means))
    print(json.dumps({"tokens_per_second": speed, "losses": means}))
