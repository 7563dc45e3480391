"""Recipes become what the same core-minutes buy: perplexity and parts of speech, as a table.

    python benchmarks/english/choose.py CORPUS --minutes 6 [--recipes base "batch size 32"]

The base is the preset `english` with half its batch size, for so short a time has few steps, and a
rate that falls to a twentieth by the last. Each recipe differs from it in one thing. It learns with
one thread, from random weights, for as many steps as fill the minutes of processor time, and is
judged after a quarter, a half and all of them. A recipe that has a line in `--out` is not measured
again: lines of one table must be of one kind of machine.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from elmokit.embedder import Embedder
from elmokit.errors import ConfigError
from elmokit.pretrain.corpus import UNKNOWN_ID, Corpus
from elmokit.pretrain.settings import PRESETS
from elmokit.pretrain.trainer import Trainer
from elmokit.scoring import perplexity
from elmokit.tasks.data.conllu import read_conllu
from elmokit.tasks.probe import probe_layers
from elmokit.vocab import Vocabulary

PUBLISHED = PRESETS["original"].filters
HALF = tuple((width, features // 2) for width, features in PRESETS["english"].filters)
BASE = {"schedule": "linear", "batch_size": 64}
VOCABULARY = "vocabulary"  # of a recipe: so many of the corpus's commonest words are predicted
RECIPES = {
    "base": {},
    "LSTM 128/512": {"projection_size": 128, "cell_size": 512},
    "LSTM 320/1280": {"projection_size": 320, "cell_size": 1280},
    "one layer": {"num_layers": 1},
    "encoder of 320 features": {"filters": HALF},
    "encoder of 2,048 features": {"filters": PUBLISHED},
    "two highways": {"highway_layers": 2},
    "encoder at every fourth step": {"encoder_every": 4},
    "20,003 words": {VOCABULARY: 20_003},
    "100,003 words": {VOCABULARY: 100_003},
    "1,024 sampled words": {"num_sampled": 1024},
    "8,192 sampled words": {"num_sampled": 8192},
    "adaptive softmax": {"softmax": "adaptive"},
    "full softmax": {"softmax": "full"},
    "batch size 32": {"batch_size": 32},
    "batch size 128": {"batch_size": 128},
    "sequences of 16": {"sequence_length": 16, "batch_size": 128},
    "sequences of 64": {"sequence_length": 64, "batch_size": 32},
    "Adagrad": {"optimizer": "adagrad", "learning_rate": 0.2, "max_grad_norm": 10.0},
    "rate 0.001": {"learning_rate": 0.001},
    "rate 0.004": {"learning_rate": 0.004},
    "constant rate": {"schedule": "constant"},
    "cosine": {"schedule": "cosine"},
    "dropout 0.1": {"dropout": 0.1},
    "bfloat16": {"precision": "bfloat16"},  # refused by a CPU that does not multiply it
}
WARMUP = 0.08  # fraction of the steps
TIMED = 8  # steps that tell how long one takes, after a first; as often as encoders learn
JUDGED = (0.25, 0.5, 1.0)  # fractions of the steps after which the perplexity is told
VALID_WORDS = 20_000
WIDEST = 100_003  # words over which the chance of <UNK> is shared out, to compare vocabularies
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
        asked = {"recipe": name, "minutes": chosen.minutes, "seed": chosen.seed}
        asked |= what(corpus, RECIPES[name])
        row = next((row for row in found if asked.items() <= row.items()), None)
        if row is None:
            try:
                trainer, curve = learn(corpus, RECIPES[name], 60 * chosen.minutes, chosen.seed)
            except ConfigError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            row = {**asked, "steps": trainer.step, "words": trainer.step * trainer.words_per_step}
            row["perplexity"] = curve
            row["widest"] = curve[-1] * math.exp(
                shared_out(trainer.corpus, held_out(trainer.corpus))
            )
            row["pos"] = probe_layers(Embedder(trainer.pretrained), train[:PROBE_SENTENCES], dev)
            with chosen.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        shown.append(row)
    show(shown)


def what(corpus, changes):
    """What a recipe is a recipe of, as a file keeps it."""
    settings = {**asdict(PRESETS["english"]), **BASE, **changes}
    return json.loads(json.dumps({"corpus": corpus.fingerprint, "settings": settings}))


def learn(corpus, changes, seconds, seed):
    """A run that took about so many seconds of one core, and its perplexities on the way."""
    changes = {**BASE, **changes}
    words = changes.pop(VOCABULARY, len(corpus.vocabulary))
    corpus = replace(corpus, vocabulary=Vocabulary(corpus.lexicon[:words]))
    settings = replace(PRESETS["english"], threads=1, seed=seed, steps=1000, **changes)
    trial = Trainer(corpus, settings)
    trial.train_step()
    started = time.process_time()
    for _ in range(TIMED):
        trial.train_step()
    steps = max(len(JUDGED), round(seconds * TIMED / (time.process_time() - started)))
    trainer = Trainer(corpus, replace(settings, steps=steps, warmup_steps=round(WARMUP * steps)))
    curve = []
    for share in JUDGED:
        while trainer.step < round(share * steps):
            trainer.train_step()
        curve.append(
            perplexity(trainer.pretrained, held_out(corpus), show_progress_bar=False).geometric_mean
        )
    return trainer, curve


def held_out(corpus):
    """Every so many-th held-out sentence, some 20,000 words in all."""
    stride = max(1, sum(map(len, corpus.valid)) // VALID_WORDS)
    return corpus.valid[::stride]


def shared_out(corpus, sentences):
    """What a word costs more, in nats, if `<UNK>` has to say which of the WIDEST words is meant.

    Of the words that a vocabulary lacks, each is as likely as it is common in the training text;
    those beyond the WIDEST stay one. So vocabularies of different sizes predict the same.
    """
    known, counts = len(corpus.vocabulary), corpus.counts.astype(float)
    counts[UNKNOWN_ID] = counts[WIDEST:].sum() + 1  # held-out text may have any word
    all_unknown = counts[known:WIDEST].sum() + counts[UNKNOWN_ID]
    ids = {word: place for place, word in enumerate(corpus.lexicon[:WIDEST])}
    nats, predictions = 0.0, 0
    for words in sentences:
        predictions += len(words) + 1
        for word in words:
            place = ids.get(word, UNKNOWN_ID)
            if place >= known or place == UNKNOWN_ID:
                nats -= math.log(counts[place] / all_unknown)
    return nats / predictions


def show(rows):
    told = ["recipe", "core-minutes", "steps", "words", *(f"perplexity at {s:g}" for s in JUDGED)]
    told += [f"over {WIDEST:,} words", "parts of speech by layer"]
    print(f"| {' | '.join(told)} |")
    print(f"|{' --- |' * len(told)}")
    for row in rows:
        words, pos = f"{row['words'] / 1e6:.2f} million", [f"{100 * p:.1f}" for p in row["pos"]]
        perplexities = [f"{value:.0f}" for value in (*row["perplexity"], row["widest"])]
        told = [row["recipe"], f"{row['minutes']:g}", f"{row['steps']:,}", words]
        print(f"| {' | '.join([*told, *perplexities, ', '.join(pos)])} |")


if __name__ == "__main__":
    main()
