"""A model's files become seconds of elmokit: this version or, by PYTHONPATH, an earlier one.

`kernels.py` starts it in a process of its own, so that versions can take turns.
"""

import json
import os
import sys
import time
from functools import partial

import numpy as np

import elmokit

PRECISIONS = ("float32", "half", "int8")
clock = getattr(time, os.environ.get("BENCHMARK_CLOCK", "perf_counter"))
SHORT = ["The old man sat on the bank of the river, and nobody knew why."] * 50


def main(files: str, sentences_file: str, kernel: str, with_english: str) -> None:
    """First a line with the worst cosines; then for each line of stdin the seconds of passes.

    A line is a precision, how many sentences there are in a call, and of how many in all; or the
    name of what the English language model is asked. `kernel` is empty for a version without one.
    """
    with open(sentences_file, encoding="utf-8") as file:
        sentences = json.load(file)
    options = {"kernel": kernel} if kernel else {}
    paths = json.loads(files)
    models = {p: elmokit.load(*paths, precision=p, **options) for p in PRECISIONS}
    print(json.dumps(describe(models, sentences)), flush=True)
    operations = english_operations(options) if with_english else {}
    for line in sys.stdin:
        name, *numbers = line.split()
        if name in operations:
            run = operations[name]
        else:
            count, limit = map(int, numbers)
            run = partial(one_pass, models[name], sentences[:limit], count)
        print(json.dumps(seconds_of_passes(run)), flush=True)


def describe(models: dict[str, elmokit.Embedder], sentences: list[list[str]]) -> dict:
    """The worst cosine to float32 of any word and layer; whether a sentence has the same bits."""
    exact = models["float32"].embed(sentences)
    described = {}
    for precision, model in models.items():
        together = model.embed(sentences)
        alone = [model.embed([sentence])[0] for sentence in sentences[:16]]
        described[precision] = {
            "cosine": min(worst_cosine(*pair) for pair in zip(together, exact, strict=True)),
            "same_bits_alone": all(map(np.array_equal, alone, together)),
        }
    return described


def worst_cosine(ours, theirs) -> float:  # (layers, words, dim) each
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    norms = np.linalg.norm(ours, axis=2) * np.linalg.norm(theirs, axis=2)
    return float(((ours * theirs).sum(2) / norms).min())


def english_operations(options: dict) -> dict:
    model = elmokit.load(**options)
    return {
        "sample": partial(sample_50_words, model),
        "fill": partial(model.fill, "She opened an ___ at the bank."),
        "next_words": partial(model.next_words, SHORT[0]),
        "encode": lambda: [model.encode([text]) for text in SHORT],
    }


def sample_50_words(model: elmokit.Embedder) -> None:
    """Sample until there are 50 words; a text may end before."""
    words = seed = 0
    while words < 50:
        words += len(model.sample(max_words=50 - words, seed=seed)[0])
        seed += 1


def one_pass(model: elmokit.Embedder, sentences: list, count: int) -> None:
    for start in range(0, len(sentences), count):
        model.embed(sentences[start : start + count])


def seconds_of_passes(run) -> list[float]:
    """Two passes, the first of which has to find its memory; one that is long; more short ones."""
    seconds: list[float] = []
    while len(seconds) < 2 or sum(seconds) < 0.4:
        started = clock()
        run()
        seconds.append(clock() - started)
        if seconds[0] > 2:
            break
    return seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
