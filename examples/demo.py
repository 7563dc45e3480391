"""A few sentences become vectors, and a word's uses come apart, layer by layer: `make demo`."""

import argparse
import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np

import elmokit

HERE = Path(__file__).parent
# What a word means in each of its five sentences, and by which letters it begins there.
SENSES = {
    "bank": ("money", "river", "money", "river", "money"),
    "work": ("art", "job", "job", "art", "job"),
    "plant": ("to grow", "to grow", "to grow", "green thing", "green thing"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=Path, default=HERE / "senses.json")
    parser.add_argument("--out", type=Path, default=Path("demo.hdf5"))
    arguments = parser.parse_args()
    texts = json.loads(arguments.sentences.read_text("utf-8"))
    model = elmokit.load()
    print(f"The English model: {model.num_layers} layers, {model.dim} numbers a word and layer.\n")
    for word, senses in SENSES.items():
        show_senses(model, word, senses, texts[word])
    show_words(model)
    write_vectors(model, [text for word in SENSES for text in texts[word]], arguments.out)
    show_page()


def show_senses(model, word, senses, texts):
    """Mean cosines of a word's uses, of one sense and of two, layer by layer."""
    sentences = [[w for s in model.tokenize(text) for w in s] for text in texts]
    uses = []  # (layers, dim) of each use
    for sentence, vectors in zip(sentences, model.embed(sentences), strict=True):
        place = next(i for i, w in enumerate(sentence) if w.lower().startswith(word))
        uses.append(vectors[:, place] / np.linalg.norm(vectors[:, place], axis=-1, keepdims=True))
    alike, apart = [], []
    for one, other in combinations(range(len(uses)), 2):
        cosines = (uses[one] * uses[other]).sum(-1)  # (layers,)
        (alike if senses[one] == senses[other] else apart).append(cosines)
    print(f"{word}: how alike two uses are, as a mean cosine")
    for text, sense in zip(texts, senses, strict=True):
        print(f"  [{sense}] {text}")
    print("  layer   same sense   different senses   gap")
    for layer, (a, b) in enumerate(zip(np.mean(alike, 0), np.mean(apart, 0), strict=True)):
        print(f"  {layer}       {a:10.3f}   {b:16.3f}   {a - b:+.3f}")
    print()


def show_words(model):
    """What may come next, before, and between."""
    for text in ("He opened an account at the", "The river flows into the"):
        words = ", ".join(f"{g.word} {g.probability:.1%}" for g in model.next_words(text, k=5))
        print(f"{text} ... {words}")
    text = "The team ___ the match."
    (gap,) = model.fill(text, k=5)
    print(f"{text} {', '.join(f'{g.word} {g.probability:.1%}' for g in gap)}\n")


def write_vectors(model, texts, target):
    """The vectors of every word of the sentences, as `elmo embed` writes them."""
    target.unlink(missing_ok=True)
    count = elmokit.embed_file(model, texts, target, tokenizer=model.pretrained.tokenizer)
    print(f"The vectors of {count} sentences, all words and layers: {target.resolve()}")
    print("The same from a terminal: elmo embed sentences.txt vectors.hdf5 --tokenizer moses")


def show_page():
    """How to see it all in a browser."""
    elmo = Path(sys.executable).with_name("elmo")
    if elmo.is_relative_to(Path.cwd()):
        elmo = elmo.relative_to(Path.cwd())
    print(f"\nThe same on a page, as you type: start {elmo} serve, and open http://127.0.0.1:8000")


if __name__ == "__main__":
    main()
