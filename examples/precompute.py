"""Embed texts once, into a file, and train classifiers from the file alone."""

import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

import elmokit


def main():
    text = Path(__file__).with_name("reviews.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reviews.hdf5"
        model = elmokit.load()
        elmokit.embed_file(model, [text for _, text in rows], file, dtype="float16")
        print(
            f"{file.name}: {file.stat().st_size:,} bytes, all words and layers of {len(rows)} texts"
        )
        with h5py.File(file) as stored:
            means = [stored[str(k)][...].astype(np.float32).mean(1) for k in range(len(rows))]
    layers = torch.from_numpy(np.stack(means, 1))  # (layers, texts, dim)
    labels = torch.tensor([label == "good" for label, _ in rows]).long()
    dev = torch.arange(len(rows)) % 4 == 3
    for layer, features in enumerate(layers):
        classifier = torch.nn.Linear(features.shape[1], 2)
        optimizer = torch.optim.AdamW(classifier.parameters(), lr=0.01, weight_decay=0.1)
        for _ in range(200):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(classifier(features[~dev]), labels[~dev]).backward()
            optimizer.step()
        correct = classifier(features).argmax(1) == labels
        print(f"layer {layer}: {correct[dev].double().mean():.0%} accuracy on the held-out texts")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
