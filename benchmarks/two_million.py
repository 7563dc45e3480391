"""English Wikipedia becomes the two million words that trainers are compared on.

    python benchmarks/two_million.py FOLDER

Writes train.txt and valid.txt (a sentence a line, its words separated by spaces) and
vocabulary.txt (the three marks, then the 50,000 commonest words of train.txt).
"""

import argparse
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

TEXT = Path(__file__).parents[2] / "shared/data/lm/en/wikipedia_a.train.txt.xz"
SENTENCE_END = re.compile(r"""(?<=[.!?])["')\]]*\s+(?=["'(\[]?[A-Z0-9])""")
WORD = re.compile(r"\w+|[^\w\s]")
TRAINING_WORDS, HELD_OUT_WORDS = 2_000_000, 100_000  # and the rest of the last sentence
EXACTLY = 2_000_018  # the words of the published figures
VOCABULARY_WORDS = 50_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path, default=TEXT, help="Wikipedia, a paragraph a line")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with lzma.open(chosen.source, "rt", encoding="utf-8") as paragraphs:
        sentences = split(paragraphs)
        training = take(sentences, TRAINING_WORDS)
        held_out = take(sentences, HELD_OUT_WORDS)
    count = sum(map(len, training))
    if count != EXACTLY:
        raise SystemExit(f"{chosen.source.name}: {count:,} words, expected {EXACTLY:,}")
    write_lines(chosen.folder / "train.txt", map(" ".join, training))
    write_lines(chosen.folder / "valid.txt", map(" ".join, held_out))
    write_lines(chosen.folder / "vocabulary.txt", ["<S>", "</S>", "<UNK>", *commonest(training)])
    print(
        f"{count:,} words in {len(training):,} sentences, "
        f"held out {sum(map(len, held_out)):,} in {len(held_out):,}"
    )


def split(paragraphs: Iterable[str]) -> Iterator[list[str]]:
    """The words of each sentence."""
    for paragraph in paragraphs:
        for sentence in SENTENCE_END.split(paragraph.strip()):
            if words := WORD.findall(sentence):
                yield words


def take(sentences: Iterator[list[str]], words: int) -> list[list[str]]:
    """Sentences until they hold so many words."""
    taken = []
    while words > 0:
        taken.append(next(sentences))
        words -= len(taken[-1])
    return taken


def commonest(sentences: list[list[str]]) -> list[str]:
    """Words by falling frequency; of equally frequent ones, the first met."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return [word for word, _ in counts.most_common(VOCABULARY_WORDS)]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
