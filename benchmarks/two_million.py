"""Write the two million words of English Wikipedia that trainers are compared on.

    python benchmarks/two_million.py FOLDER

Writes train.txt and valid.txt (a sentence per line, words separated by spaces) and vocabulary.txt
(the special tokens, then the 50,000 most frequent words of train.txt).
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
TRAINING_WORDS, VALIDATION_WORDS = 2_000_000, 100_000  # plus the rest of the last sentence
EXPECTED_WORDS = 2_000_018  # in the published figures
VOCABULARY_WORDS = 50_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path, default=TEXT, help="Wikipedia, a paragraph per line")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with lzma.open(args.source, "rt", encoding="utf-8") as paragraphs:
        sentences = split_sentences(paragraphs)
        training = take(sentences, TRAINING_WORDS)
        validation = take(sentences, VALIDATION_WORDS)
    count = sum(map(len, training))
    if count != EXPECTED_WORDS:
        raise SystemExit(f"{args.source.name}: {count:,} words, expected {EXPECTED_WORDS:,}")
    write_lines(args.folder / "train.txt", map(" ".join, training))
    write_lines(args.folder / "valid.txt", map(" ".join, validation))
    write_lines(args.folder / "vocabulary.txt", ["<S>", "</S>", "<UNK>", *most_frequent(training)])
    print(
        f"{count:,} words in {len(training):,} sentences, "
        f"validation {sum(map(len, validation)):,} in {len(validation):,}"
    )


def split_sentences(paragraphs: Iterable[str]) -> Iterator[list[str]]:
    """The words of each sentence."""
    for paragraph in paragraphs:
        for sentence in SENTENCE_END.split(paragraph.strip()):
            if words := WORD.findall(sentence):
                yield words


def take(sentences: Iterator[list[str]], words: int) -> list[list[str]]:
    """Sentences until they have so many words."""
    taken = []
    while words > 0:
        taken.append(next(sentences))
        words -= len(taken[-1])
    return taken


def most_frequent(sentences: list[list[str]]) -> list[str]:
    """Words by falling frequency; of equally frequent ones, the first in the text."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return [word for word, _ in counts.most_common(VOCABULARY_WORDS)]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
