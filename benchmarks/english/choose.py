"""Compare pretraining settings by what the same core-minutes give: perplexity and POS accuracy.

    python benchmarks/english/choose.py CORPUS --minutes 6 [--recipes base "batch size 32"]

The base is the preset `english` with half its batch size, because so short a run has few steps, and
a learning rate that falls to a twentieth. Each recipe differs from it in one setting. It is trained
in one thread, from random weights, for as many steps as fill the minutes of processor time, and
evaluated after a quarter, a half and all of them. A recipe with a line in `--out` is not measured
again, so all lines of that file should come from one kind of machine.
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
from elmokit.pretraining.corpus import UNKNOWN_ID, Corpus
from elmokit.pretraining.settings import PRESETS
from elmokit.pretraining.trainer import Trainer
from elmokit.scoring import perplexity
from elmokit.tasks.datasets.columns import read_conllu
from elmokit.tasks.probing import probe_layers
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
TIMED = 8  # steps that are timed, after a first; a multiple of encoder_every
EVALUATED_AT = (0.25, 0.5, 1.0)  # fractions of the steps after which the model is evaluated
VALID_WORDS = 20_000
# The probability of <UNK> is spread over so many words, to compare vocabularies.
LARGEST_VOCABULARY = 100_003
PROBE_SENTENCES = 2000  # for training the POS probe


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
    measured = [json.loads(line) for line in lines]
    shown = []
    for name in chosen.recipes:
        key = {"recipe": name, "minutes": chosen.minutes, "seed": chosen.seed}
        key |= recipe_key(corpus, RECIPES[name])
        row = next((row for row in measured if key.items() <= row.items()), None)
        if row is None:
            try:
                seconds = 60 * chosen.minutes
                trainer, curve = train_recipe(corpus, RECIPES[name], seconds, chosen.seed)
            except ConfigError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            row = {**key, "steps": trainer.step, "words": trainer.step * trainer.words_per_step}
            row["perplexity"] = curve
            row["widest"] = curve[-1] * math.exp(
                cost_of_unknown(trainer.corpus, held_out(trainer.corpus))
            )
            row["pos"] = probe_layers(Embedder(trainer.pretrained), train[:PROBE_SENTENCES], dev)
            with chosen.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        shown.append(row)
    show(shown)


def recipe_key(corpus, changes):
    """The corpus and the settings of a recipe, as its line in the file has them."""
    settings = {**asdict(PRESETS["english"]), **BASE, **changes}
    return json.loads(json.dumps({"corpus": corpus.fingerprint, "settings": settings}))


def train_recipe(corpus, changes, seconds, seed):
    """Train for about so many seconds of one core; the trainer, and its perplexities on the way."""
    changes = {**BASE, **changes}
    words = changes.pop(VOCABULARY, len(corpus.vocabulary))
    corpus = replace(corpus, vocabulary=Vocabulary(corpus.lexicon[:words]))
    settings = replace(PRESETS["english"], threads=1, seed=seed, steps=1000, **changes)
    trial = Trainer(corpus, settings)
    trial.train_step()
    started = time.process_time()
    for _ in range(TIMED):
        trial.train_step()
    steps = max(len(EVALUATED_AT), round(seconds * TIMED / (time.process_time() - started)))
    trainer = Trainer(corpus, replace(settings, steps=steps, warmup_steps=round(WARMUP * steps)))
    curve = []
    for share in EVALUATED_AT:
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


def cost_of_unknown(corpus, sentences):
    """What a word costs more, in nats, if `<UNK>` has to say which word is meant.

    The probability of `<UNK>` is spread over the words that the vocabulary lacks, by their
    frequency in the text; those beyond LARGEST_VOCABULARY stay one. So vocabularies of different
    sizes predict the same.
    """
    known, counts = len(corpus.vocabulary), corpus.counts.astype(float)
    counts[UNKNOWN_ID] = counts[LARGEST_VOCABULARY:].sum() + 1  # held-out text may have any word
    all_unknown = counts[known:LARGEST_VOCABULARY].sum() + counts[UNKNOWN_ID]
    ids = {word: index for index, word in enumerate(corpus.lexicon[:LARGEST_VOCABULARY])}
    nats, predictions = 0.0, 0
    for words in sentences:
        predictions += len(words) + 1
        for word in words:
            word_id = ids.get(word, UNKNOWN_ID)
            if word_id >= known or word_id == UNKNOWN_ID:
                nats -= math.log(counts[word_id] / all_unknown)
    return nats / predictions


def show(rows):
    names = [
        "recipe",
        "core-minutes",
        "steps",
        "words",
        *(f"perplexity at {s:g}" for s in EVALUATED_AT),
    ]
    names += [f"over {LARGEST_VOCABULARY:,} words", "parts of speech by layer"]
    print(f"| {' | '.join(names)} |")
    print(f"|{' --- |' * len(names)}")
    for row in rows:
        words, pos = f"{row['words'] / 1e6:.2f} million", [f"{100 * p:.1f}" for p in row["pos"]]
        perplexities = [f"{value:.0f}" for value in (*row["perplexity"], row["widest"])]
        cells = [row["recipe"], f"{row['minutes']:g}", f"{row['steps']:,}", words]
        print(f"| {' | '.join([*cells, *perplexities, ', '.join(pos)])} |")


if __name__ == "__main__":
    main()
