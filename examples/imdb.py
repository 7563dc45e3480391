"""Classify reviews in two ways: from one vector per text, and with a head on all words.

    python examples/imdb.py train.tsv dev.tsv --texts 400

Each line of a file is a label, a tab and a review; files may be compressed. Without a second file,
every fourth review is held out. Without any, examples/reviews.tsv is used.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

import elmokit
from elmokit.tasks.probing import fit_linear
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task

DEFAULT_FILE = Path(__file__).with_name("reviews.tsv")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path, nargs="?", default=DEFAULT_FILE)
    parser.add_argument("dev", type=Path, nargs="?")
    parser.add_argument("--texts", type=int, default=400, help="reviews to read from each file")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    task = TASKS["classification"]
    train = task.read(arguments.train)[: arguments.texts]
    if arguments.dev:
        dev = task.read(arguments.dev)[: arguments.texts]
    else:
        train, dev = [e for n, e in enumerate(train) if n % 4 < 3], train[3::4]
    print(f"{len(train)} reviews to train on, {len(dev)} held out")
    model = elmokit.load()

    started = time.perf_counter()
    labels = sorted({example.label for example in train})
    train_vectors, dev_vectors = (
        torch.from_numpy(model.encode([e.text for e in examples], layers="concat"))
        for examples in (train, dev)
    )
    targets = torch.tensor([labels.index(example.label) for example in train])
    weight, bias = fit_linear(train_vectors, targets, len(labels))
    scores = dev_vectors @ weight.t() + bias  # (texts, labels)
    predictions = [labels[k] for k in scores.argmax(1).tolist()]
    seconds = time.perf_counter() - started
    print(f"one vector per text: {task.score(dev, predictions)} ({seconds:.0f} s)")

    started = time.perf_counter()
    settings = replace(task.settings, hidden_size=64, epochs=arguments.epochs, words_per_batch=4000)
    with tempfile.TemporaryDirectory() as out:
        trained = train_task(task, train, dev, out, settings=settings, model=model, log=print)
    print(f"head on all words: {trained.scores} ({time.perf_counter() - started:.0f} s)")


if __name__ == "__main__":
    main()
