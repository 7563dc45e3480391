"""Table 4: the uses of a word in running text that are nearest to a given use.

python benchmarks/paper/table4.py --text ../shared/data/lm/en/wikipedia_b.valid.txt.xz
"""

import argparse
import lzma
from pathlib import Path

import numpy as np

import elmokit

ASKED = [
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
        uses = [
            sentence
            for line in file
            if word in line
            for sentence in model.tokenize(line)
            if word in sentence
        ]
    for layer in (0, model.num_layers - 1):
        known = _uses(model, uses, word, layer)
        print(f"\n| layer {layer}: a use | nearest uses |\n| --- | --- |")
        for text in ASKED:
            (asked,) = _uses(model, [text.split()], word, layer)
            best = np.argsort(-(known @ asked))[: arguments.k]
            nearest = "<br>".join(" ".join(uses[place]) for place in best)
            print(f"| {text} | {nearest} |")


def _uses(model, sentences, word, layer):
    """The direction of the word's first use in each sentence, (sentences, dim)."""
    vectors = model.embed(sentences, layers=layer)
    found = np.stack([v[0, s.index(word)] for v, s in zip(vectors, sentences, strict=True)])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
