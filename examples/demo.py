"""What the English model knows, in a minute: senses of words, predictions, a file of vectors."""

import argparse
import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np

import elmokit

HERE = Path(__file__).parent
# The senses of a word in its five sentences; the word may be inflected ("banks").
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
    print(f"The English model: {model.num_layers} layers of {model.dim} dimensions.\n")
    for word, senses in SENSES.items():
        show_senses(model, word, senses, texts[word])
    show_predictions(model)
    write_vectors(model, [text for word in SENSES for text in texts[word]], arguments.out)
    show_page()


def show_senses(model, word, senses, texts):
    """Print the mean cosine of occurrences with the same and different senses, by layer."""
    sentences = [[w for sentence in model.tokenize(text) for w in sentence] for text in texts]
    occurrences = []  # (layers, dim) each, of length 1
    for sentence, vectors in zip(sentences, model.embed(sentences), strict=True):
        position = next(i for i, w in enumerate(sentence) if w.lower().startswith(word))
        vector = vectors[:, position]
        occurrences.append(vector / np.linalg.norm(vector, axis=-1, keepdims=True))
    same, different = [], []
    for i, j in combinations(range(len(occurrences)), 2):
        cosines = (occurrences[i] * occurrences[j]).sum(-1)  # (layers,)
        (same if senses[i] == senses[j] else different).append(cosines)
    print(f"{word}: mean cosine of two occurrences")
    for text, sense in zip(texts, senses, strict=True):
        print(f"  [{sense}] {text}")
    print("  layer   same sense   different senses   difference")
    for layer, (s, d) in enumerate(zip(np.mean(same, 0), np.mean(different, 0), strict=True)):
        print(f"  {layer}       {s:10.3f}   {d:16.3f}   {s - d:+.3f}")
    print()


def show_predictions(model):
    """Print words that may come next, and words for a gap."""
    for text in ("He opened an account at the", "The river flows into the"):
        print(f"{text} ... {format_predictions(model.next_words(text, k=5))}")
    text = "The team ___ the match."
    (gap,) = model.fill(text, k=5)
    print(f"{text} {format_predictions(gap)}\n")


def format_predictions(predictions):
    return ", ".join(f"{p.word} {p.probability:.1%}" for p in predictions)


def write_vectors(model, texts, target):
    """Write the vectors of all words, as `elmo embed` does."""
    target.unlink(missing_ok=True)
    count = elmokit.embed_file(model, texts, target, tokenizer=model.pretrained.tokenizer)
    print(f"The vectors of {count} sentences, all words and layers: {target.resolve()}")
    print("The same on the command line: elmo embed sentences.txt vectors.hdf5 --tokenizer moses")


def show_page():
    """Print how to open the page in a browser."""
    elmo = Path(sys.executable).with_name("elmo")
    if elmo.is_relative_to(Path.cwd()):
        elmo = elmo.relative_to(Path.cwd())
    print(f"\nThe same in a browser, as you type: run {elmo} serve, and open http://127.0.0.1:8000")


if __name__ == "__main__":
    main()
