"""Table 4: the occurrences of a word in running text that are nearest to a given one.

python benchmarks/paper/table4.py --text ../shared/data/lm/en/wikipedia_b.valid.txt.xz
"""

import argparse
import lzma
from pathlib import Path

import numpy as np

import elmokit
from elmokit.pooling import unit_vectors

QUERIES = [
    "The shortstop made a spectacular play in the ninth inning .",
    "She signed up to play the lead in a Broadway play about her life .",
    "Children play in the garden behind the house .",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--text", type=Path, default=Path("../shared/data/lm/en/wikipedia_b.valid.txt.xz")
    )
    parser.add_argument("--word", default="play")
    parser.add_argument("-k", type=int, default=3)
    arguments = parser.parse_args()
    model, word = elmokit.load(), arguments.word
    with lzma.open(arguments.text, "rt", encoding="utf-8") as file:
        sentences = [
            sentence
            for line in file
            if word in line
            for sentence in model.tokenize(line)
            if word in sentence
        ]
    for layer in (0, model.num_layers - 1):
        vectors = _occurrence_vectors(model, sentences, word, layer)
        print(f"\n| layer {layer}: an occurrence | nearest occurrences |\n| --- | --- |")
        for text in QUERIES:
            (query,) = _occurrence_vectors(model, [text.split()], word, layer)
            best = np.argsort(-(vectors @ query))[: arguments.k]
            nearest = "<br>".join(" ".join(sentences[number]) for number in best)
            print(f"| {text} | {nearest} |")


def _occurrence_vectors(model, sentences, word, layer):
    """The unit vector of the word's first occurrence in each sentence, (sentences, dim)."""
    layers = model.embed(sentences, layers=layer)
    return unit_vectors(
        np.stack([v[0, s.index(word)] for v, s in zip(layers, sentences, strict=True)])
    )


if __name__ == "__main__":
    main()
