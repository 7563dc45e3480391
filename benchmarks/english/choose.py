"""Recipes become what the same core-minutes buy: perplexity and parts of speech, as a table.

    python benchmarks/english/choose.py CORPUS --minutes 6 [--recipes base "32 lanes"]

The base is the preset `english` as its last run read (`fifth.toml`), but with half of its lanes,
for so short a time has few updates, and the preset's rate. Each recipe differs from it in one
thing. It learns with one thread, from random weights, for as many updates as fill the minutes of
processor time; its rate falls to a twentieth by the last. A recipe that has a line in `--out` is
not measured again: lines of one table must be of one kind of machine.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from elmokit.embedder import Embedder
from elmokit.lm.corpus import Corpus
from elmokit.lm.run import Run
from elmokit.lm.settings import PRESETS
from elmokit.lm.validate import validate
from elmokit.tasks.data.conllu import read_conllu
from elmokit.tasks.probe import probe_layers

PUBLISHED = PRESETS["original"].filters
HALF = tuple((width, features // 2) for width, features in PRESETS["english"].filters)
BASE = {
    "schedule": "linear", "precision": "bfloat16", "encoder_every": 4, "negatives": 3072,
    "lanes": 64,
}  # fmt: skip
RECIPES = {
    "base": {},
    "reader 128/512": {"dim": 128, "cell_dim": 512},
    "reader 320/1280": {"dim": 320, "cell_dim": 1280},
    "one layer": {"layers": 1},
    "encoder of 320 features": {"filters": HALF},
    "encoder of 2,048 features": {"filters": PUBLISHED},
    "two highways": {"highways": 2},
    "encoder at every update": {"encoder_every": 1},
    "1,024 wrong answers": {"negatives": 1024},
    "8,192 wrong answers": {"negatives": 8192},
    "adaptive softmax": {"softmax": "adaptive"},
    "full softmax": {"softmax": "full"},
    "32 lanes": {"lanes": 32},
    "128 lanes": {"lanes": 128},
    "windows of 16": {"steps": 16, "lanes": 128},
    "windows of 64": {"steps": 64, "lanes": 32},
    "Adagrad": {"optimizer": "adagrad", "learning_rate": 0.2, "clip_norm": 10.0},
    "rate 0.001": {"learning_rate": 0.001},
    "rate 0.004": {"learning_rate": 0.004},
    "constant rate": {"schedule": "constant"},
    "cosine": {"schedule": "cosine"},
    "dropout 0.1": {"dropout": 0.1},
    "float32": {"precision": "float32"},
}
WARM_UP = 0.08  # share of the updates
TIMED = 8  # updates that tell how long one takes, after a first; as often as encoders learn
VALID_WORDS = 20_000
PROBE_SENTENCES = 2000  # to learn parts of speech from


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--minutes", type=float, default=6.0, help="of one core, for each recipe")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/english/choose.jsonl"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    corpus = Corpus.open(chosen.corpus)
    train, dev = (read_conllu(chosen.data / f"pos_ud_ewt/{p}.conllu.xz") for p in ("train", "dev"))
    lines = chosen.out.read_text().splitlines() if chosen.out.exists() else []
    found = [json.loads(line) for line in lines]
    shown = []
    for name in chosen.recipes:
        asked = {"recipe": name, "minutes": chosen.minutes, "seed": chosen.seed, "base": BASE}
        row = next((row for row in found if asked.items() <= row.items()), None)
        if row is None:
            run, updates = learn(corpus, RECIPES[name], 60 * chosen.minutes, chosen.seed)
            row = {**asked, "updates": updates, "words": updates * run.words_per_update}
            row["perplexity"] = validate(run.pretrained, corpus.valid, words=VALID_WORDS).score
            row["pos"] = probe_layers(Embedder(run.pretrained), train[:PROBE_SENTENCES], dev)
            with chosen.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        shown.append(row)
    show(shown)


def learn(corpus, changes, seconds, seed):
    """A run that took about so many seconds of one core, and its number of updates."""
    settings = replace(PRESETS["english"], threads=1, seed=seed, updates=1000)
    settings = replace(settings, **{**BASE, **changes})
    trial = Run(corpus, settings)
    trial.update()
    started = time.process_time()
    for _ in range(TIMED):
        trial.update()
    updates = max(2, round(seconds * TIMED / (time.process_time() - started)))
    run = Run(corpus, replace(settings, updates=updates, warm_up=round(WARM_UP * updates)))
    while not run.over:
        run.update()
    return run, updates


def show(rows):
    print("| recipe | core-minutes | updates | words | perplexity | parts of speech by layer |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        pos = ", ".join(f"{100 * share:.1f}" for share in row["pos"])
        words = f"{row['words'] / 1e6:.2f} million"
        minutes, perplexity = f"{row['minutes']:g}", f"{row['perplexity']:.0f}"
        told = [row["recipe"], minutes, f"{row['updates']:,}", words, perplexity, pos]
        print(f"| {' | '.join(told)} |")


if __name__ == "__main__":
    main()
