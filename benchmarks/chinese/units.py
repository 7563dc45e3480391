"""Words or characters for Chinese: which gives the lower perplexity after the same core-minutes?

    python benchmarks/chinese/units.py --minutes 5 [--folder chinese-corpora]

The same sentences are prepared twice, once with the words of the corpus and once with single
characters. A biLM is trained on each from random weights in one thread, with the settings of
`first.toml`; words are read by a character CNN, characters by one or from a table. The perplexities
are per character: all that a model predicts, sentence ends and the spelling of unknown words
included, divided by the number of characters.
"""

import argparse
import json
import lzma
import math
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

import elmokit
from elmokit.pretraining.settings import read_settings
from elmokit.pretraining.trainer import Trainer
from elmokit.scoring import perplexity
from elmokit.tokenizers import get_tokenizer

HERE = Path(__file__).parent
PARTS = ("train", "valid")
CNN = {"input": "characters", "max_characters": "20", "filters": "[[1,32],[2,64],[3,128],[4,64]]"}
ARMS = {  # the tokenizer that makes the units, and the settings that differ from first.toml
    "words, CNN": ("spaces", CNN),
    "characters, CNN": ("characters", CNN),
    "characters, table": ("characters", {}),
}
VALID_SENTENCES = 600
WARMUP = 0.08  # fraction of the steps
TIMED = 8  # steps that are timed, after a first; a multiple of encoder_every
EVALUATED_AT = (0.5, 1.0)  # fractions of the steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="of one core, for each arm")
    parser.add_argument("--folder", type=Path, default=Path("chinese-corpora"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data/lm/zh"))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    sentences = {part: write_sentences(chosen.data, chosen.folder, part) for part in PARTS}
    for arm in chosen.arms:
        tokenizer, changes = ARMS[arm]
        corpus = elmokit.prepare(
            [str(sentences["train"])],
            chosen.folder / tokenizer,
            tokenizer=tokenizer,
            valid=[str(sentences["valid"])],
            max_words=50_003,
        )
        print(json.dumps({"arm": arm, **train(corpus, changes, chosen.minutes * 60)}), flush=True)


def write_sentences(data, folder, part):
    """The sentences of a part, one on each line, with spaces between words; the file."""
    path = folder / f"{part}.txt.xz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        split = get_tokenizer("characters").split_sentences
        with (
            lzma.open(data / f"wikipedia.{part}.txt.xz", "rt", encoding="utf-8") as lines,
            lzma.open(path, "wt", encoding="utf-8", preset=1) as file,
        ):
            file.writelines(f"{s.strip()}\n" for line in lines for s in split(line))
    return path


def train(corpus, changes, seconds):
    """Train for so many seconds of one core; the perplexities per character on the way."""
    settings = read_settings(HERE / "first.toml", {"threads": "1", **changes})
    trial = Trainer(corpus, replace(settings, steps=1000))
    trial.train_step()
    started = time.process_time()
    for _ in range(TIMED):
        trial.train_step()
    steps = max(len(EVALUATED_AT), round(seconds * TIMED / (time.process_time() - started)))
    trainer = Trainer(corpus, replace(settings, steps=steps, warmup_steps=round(WARMUP * steps)))
    started, curve = time.process_time(), []
    for share in EVALUATED_AT:
        while trainer.step < round(share * steps):
            trainer.train_step()
        curve.append(round(perplexity_per_character(trainer.pretrained, corpus), 2))
    return {
        "vocabulary": len(corpus.vocabulary),
        "core_minutes": round((time.process_time() - started) / 60, 2),
        "steps": steps,
        "units_read": steps * trainer.words_per_step,
        "perplexity_per_character": curve,
    }


def perplexity_per_character(model, corpus):
    """Of both directions' mean, on the same held-out sentences whatever the unit is."""
    stride = max(1, len(corpus.valid) // VALID_SENTENCES)
    sentences = corpus.valid[::stride]
    per_unit = perplexity(model, sentences, show_progress_bar=False).geometric_mean
    predictions = sum(len(units) + 1 for units in sentences)
    characters = sum(len(unit) for units in sentences for unit in units)
    nats = predictions * math.log(per_unit) + spelling(corpus, sentences)
    return math.exp(nats / characters)


def spelling(corpus, sentences):
    """The nats that it takes to spell the unknown units, by how often each character occurs."""
    counts = Counter()
    for unit, count in zip(corpus.lexicon[3:], corpus.counts[3:], strict=True):
        counts.update(dict.fromkeys(unit, int(count)))
        counts["end of unit"] += int(count)
    total = counts.total() + 2**16  # as if every character had occurred once more
    return -sum(
        math.log((counts[symbol] + 1) / total)
        for units in sentences
        for unit in units
        if unit not in corpus.vocabulary
        for symbol in (*unit, "end of unit")
    )


if __name__ == "__main__":
    main()
