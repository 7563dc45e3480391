"""Words or characters for Chinese: which gives the lower perplexity after the same core-minutes?

    python benchmarks/chinese/units.py --minutes 25 [--folder chinese-corpora]

The same sentences are prepared twice, once with the words of the corpus and once with single
characters. A biLM is trained on each from random weights in one thread, with the settings of
`first.toml`; words are read by a character CNN, characters by one or from a table. The perplexities
are per character: all that a model predicts, sentence ends and the spelling of unknown words
included, divided by the number of characters. The trained models are left in the folder.
"""

import argparse
import json
import lzma
import math
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import torch

import elmokit
from elmokit.formats import save
from elmokit.pretraining.settings import read_settings
from elmokit.pretraining.trainer import Trainer
from elmokit.scoring import perplexity
from elmokit.tokenizers import get_tokenizer

HERE = Path(__file__).parent
PARTS = ("train", "valid")
CNN = {"input": "characters", "max_characters": "20", "filters": "[[1,32],[2,64],[3,128],[4,64]]"}


@dataclass(frozen=True)
class Arm:
    """How the text becomes units, and the settings that differ from first.toml."""

    tokenizer: str
    max_words: int | None = None
    settings: dict[str, str] = field(default_factory=dict)


ARMS = {
    # Of all words that occur three times, like the characters; as float16, 16 MB.
    "words": Arm("spaces", None, CNN | {"softmax": "adaptive", "cutoffs": "[4000,20000,60000]"}),
    "words, 20,000": Arm("spaces", 20_003, CNN),
    "words, 50,000": Arm("spaces", 50_003, CNN),
    "characters": Arm("characters"),
    "characters, CNN": Arm("characters", settings=CNN),
}
DEFAULT = ("words", "characters")
VALID_SENTENCES = 600
WARMUP = 0.08  # fraction of the steps
TIMED = 40  # steps that are timed, after a first; a multiple of encoder_every
EVALUATED_AT = (0.25, 0.5, 0.75, 1.0)  # fractions of the steps
BIGRAM_PRIOR = 5  # occurrences of a character from which its bigrams count for more than unigrams


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=25.0, help="of one core, for each arm")
    parser.add_argument("--folder", type=Path, default=Path("chinese-corpora"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data/lm/zh"))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(DEFAULT))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    sentences = {part: write_sentences(chosen.data, chosen.folder, part) for part in PARTS}
    for name in chosen.arms:
        arm = ARMS[name]
        corpus = elmokit.prepare(
            [str(sentences["train"])],
            chosen.folder / f"{arm.tokenizer}-{arm.max_words or 'all'}",
            tokenizer=arm.tokenizer,
            valid=[str(sentences["valid"])],
            max_words=arm.max_words,
        )
        model, result = train(corpus, arm.settings, chosen.minutes * 60)
        print(json.dumps({"arm": name, **result}), flush=True)
        save(model, chosen.folder / f"{name} {chosen.minutes:g}".replace(", ", "-"), half=True)


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
    """Train for so many seconds of one core; the model, and what it reached."""
    settings = read_settings(HERE / "first.toml", {"threads": "1", **changes})
    trial = Trainer(corpus, replace(settings, steps=1000))
    trial.train_step()
    started = time.process_time()
    for _ in range(TIMED):
        trial.train_step()
    steps = max(len(EVALUATED_AT), round(seconds * TIMED / (time.process_time() - started)))
    trainer = Trainer(corpus, replace(settings, steps=steps, warmup_steps=round(WARMUP * steps)))
    seconds, curve = 0.0, []
    for share in EVALUATED_AT:
        started = time.process_time()
        while trainer.step < round(share * steps):
            trainer.train_step()
        seconds += time.process_time() - started
        curve.append(perplexity_per_character(trainer.pretrained, corpus))
        print(f"step {trainer.step:,} of {steps:,}: {curve[-1]}", file=sys.stderr)
    return trainer.pretrained, {
        "vocabulary": len(corpus.vocabulary),
        "core_minutes": round(seconds / 60, 2),
        "steps": steps,
        "units_read": steps * trainer.words_per_step,
        "perplexity_per_character": [each["all"] for each in curve],
        "last": curve[-1],
    }


def perplexity_per_character(model, corpus):
    """Of both directions' mean, on the same held-out sentences whatever the unit is."""
    stride = max(1, len(corpus.valid) // VALID_SENTENCES)
    sentences = corpus.valid[::stride]
    per_unit = perplexity(model, sentences, show_progress_bar=False).geometric_mean
    units = [unit for units in sentences for unit in units]
    unknown = [unit for unit in units if unit not in corpus.vocabulary]
    predictions, characters = len(units) + len(sentences), sum(map(len, units))
    predicted, spelled = predictions * math.log(per_unit), spelling(corpus, unknown)
    return {
        "all": round(math.exp((predicted + spelled) / characters), 2),
        "unknown as one word": round(math.exp(predicted / characters), 2),
        "per_unit": round(per_unit, 2),
        "characters": characters,
        "unknown": round(len(unknown) / len(units), 4),
        "nats_to_spell_one": round(spelled / max(1, len(unknown)), 2),
    }


def spelling(corpus, unknown):
    """The nats that it takes to spell unknown units, by a bigram model of those in training."""
    pairs, firsts, singles = Counter(), Counter(), Counter()
    num_known = len(corpus.vocabulary)
    for unit, count in zip(corpus.lexicon[num_known:], corpus.counts[num_known:], strict=True):
        for first, second in pairwise(("", *unit, "")):
            pairs[first, second] += int(count)
            firsts[first] += int(count)
            singles[second] += int(count)
    total = singles.total() + 2**16  # as if every character had occurred once more

    def probability(first, second):
        single = (singles[second] + 1) / total
        return (pairs[first, second] + BIGRAM_PRIOR * single) / (firsts[first] + BIGRAM_PRIOR)

    return -sum(
        math.log(probability(first, second))
        for unit in unknown
        for first, second in pairwise(("", *unit, ""))
    )


if __name__ == "__main__":
    main()
