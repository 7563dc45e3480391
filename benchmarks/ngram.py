"""Perplexity of a Kneser-Ney n-gram model of a prepared corpus, as a baseline.

    python benchmarks/ngram.py CORPUS [--order 5] [--backward] [--text FILE ...]

Modified interpolated Kneser-Ney (Chen and Goodman, 1998): three discounts an order, lower orders
that count distinct words to the left, and interpolation down to a uniform choice of a word.
CORPUS is what `elmo prepare` or `two_million.py` writes. The last line is JSON.
"""

import argparse
import json
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

OPEN, CLOSE, UNKNOWN = 0, 1, 2  # the lines of <S>, </S> and <UNK> in every vocabulary


def main() -> None:
    chosen = command_line()
    started = time.perf_counter()
    vocabulary = read_vocabulary(chosen.corpus / "vocabulary.txt")
    training = read_corpus(chosen.corpus, vocabulary)
    model = train(
        to_stream(training, backward=chosen.backward),
        order=chosen.order, words=len(vocabulary), begin=CLOSE if chosen.backward else OPEN,
    )  # fmt: skip
    trained = time.perf_counter() - started
    grams = [len(table.keys) for table in model.tables]
    print(f"{(training > CLOSE).sum():,} words, n-grams {grams}, {trained:.0f} s")

    held_out = []
    for path in chosen.text or [chosen.corpus / "valid.txt"]:
        result = measure(model, read_text(path, vocabulary), backward=chosen.backward)
        held_out.append({"text": path.name, **result})
        print(
            f"{path.name}: perplexity {result['perplexity']:.2f}; {result['words']:,} words in "
            f"{result['sentences']:,} sentences, {result['unknown']:,} unknown"
        )
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{seconds:.0f} s, peak {peak:,.0f} MB")
    direction = "backward" if chosen.backward else "forward"
    summary = {"order": chosen.order, "direction": direction, "held_out": held_out}
    print(json.dumps(summary | {"n_grams": grams, "seconds": seconds, "peak_mb": peak}))


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path, help="vocabulary.txt, and 00000.npy … or train.txt")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--backward", action="store_true", help="read each sentence from its end")
    parser.add_argument("--text", type=Path, nargs="+", help="held-out sentences, one a line")
    return parser.parse_args()


def measure(model: "Model", sentences: np.ndarray, *, backward: bool) -> dict:
    """The perplexity of words and sentence ends, and the counts."""
    probs = probabilities(model, to_stream(sentences, backward=backward))
    return {
        "perplexity": float(np.exp(-np.log(probs).mean())),
        "words": int((sentences > CLOSE).sum()),
        "sentences": int((sentences == CLOSE).sum()),
        "unknown": int((sentences == UNKNOWN).sum()),
    }


@dataclass(frozen=True)
class Model:
    """N-grams of every length up to the order, shortest first; `begin` is never predicted."""

    tables: list["Table"]
    words: int
    begin: int


@dataclass(frozen=True)
class Table:
    """The n-grams of one length.

    An n-gram's number is its index in `keys`, which are sorted: number of its history among
    the n-grams one shorter, times words of the vocabulary, plus its last word. `totals` and
    `given_away` belong to histories: the sum of their counts, and the fraction that discounting
    leaves to the shorter history.
    """

    keys: np.ndarray  # (n-grams)
    counts: np.ndarray  # (n-grams)
    discounts: np.ndarray  # of a count of 0, 1, 2, and 3 or more
    totals: np.ndarray  # (histories)
    given_away: np.ndarray  # (histories)


def train(stream: np.ndarray, *, order: int, words: int, begin: int) -> Model:
    """The model of sentences that each start with `begin`."""
    keys = np.arange(words)
    counts = np.bincount(stream, minlength=words)
    counts[begin] = 0
    grams = stream  # at each position, the number of the n-gram that ends there, or -1
    histories, tables = 1, []
    for _ in range(order - 1):
        longer_keys, longer_counts, longer_grams, suffixes = extend(
            grams, stream, words=words, begin=begin
        )
        # Kneser-Ney: a shorter n-gram counts the distinct words before it. Nothing is before the
        # start of a sentence: n-grams from there keep their plain counts, as in KenLM.
        words_before = np.bincount(suffixes, minlength=len(keys))
        counts = np.where(words_before > 0, words_before, counts)
        tables.append(make_table(keys, counts, histories=histories, words=words))
        histories = len(keys)
        keys, counts, grams = longer_keys, longer_counts, longer_grams
    tables.append(make_table(keys, counts, histories=histories, words=words))
    return Model(tables, words, begin)


def extend(grams: np.ndarray, stream: np.ndarray, *, words: int, begin: int) -> tuple:
    """The n-grams one longer: keys, counts, which ends at each position, and their suffixes."""
    positions = np.flatnonzero((grams[:-1] >= 0) & (stream[1:] != begin)) + 1
    keys = grams[positions - 1].astype(np.int64) * words + stream[positions]
    by_key = np.argsort(keys)
    keys, positions = keys[by_key], positions[by_key]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    counts = np.diff(first, append=len(keys))
    longer = np.full(len(stream), -1, np.int32)
    longer[positions] = np.repeat(np.arange(len(first), dtype=np.int32), counts)
    return keys[first], counts, longer, grams[positions[first]]


def make_table(keys: np.ndarray, counts: np.ndarray, *, histories: int, words: int) -> Table:
    discounts = estimate_discounts(counts)
    history = keys // words
    totals = np.bincount(history, weights=counts, minlength=histories)
    discounted = np.bincount(history, weights=discounts[np.minimum(counts, 3)], minlength=histories)
    never_continued = totals == 0
    totals[never_continued] = discounted[never_continued] = 1  # all goes to the shorter history
    return Table(keys, counts.astype(np.int32), discounts, totals, discounted / totals)


def estimate_discounts(counts: np.ndarray) -> np.ndarray:
    """What a count of 0, 1, 2, and 3 or more loses: Chen and Goodman's closed form."""
    once, twice, thrice, four_times = np.bincount(np.minimum(counts, 5), minlength=6)[1:5]
    if min(once, twice, thrice) > 0:
        ratio = once / (once + 2 * twice)
        steps = np.array([twice / once, thrice / twice, four_times / thrice])
        lost = np.arange(1, 4) - np.arange(2, 5) * ratio * steps
        if lost.min() > 0:
            return np.append(0, lost)
    return np.array([0, 0.5, 1, 1.5])  # too little text to estimate: KenLM's fall-back


def probabilities(model: Model, stream: np.ndarray) -> np.ndarray:
    """Of each word but `begin`, given what comes before it in its sentence."""
    probs = np.full(len(stream), 1 / (model.words - 1))
    histories = np.zeros(len(stream), np.int64)  # the number of what comes before, or -1
    for table in model.tables:
        keys = histories * model.words + stream
        grams = np.searchsorted(table.keys, keys)
        grams[grams == len(table.keys)] = 0
        seen = table.keys[grams] == keys
        counts = np.where(seen, table.counts[grams], 0)
        discounted = counts - table.discounts[np.minimum(counts, 3)]
        mixed = discounted / table.totals[histories] + table.given_away[histories] * probs
        probs = np.where(histories >= 0, mixed, probs)
        histories = np.append(-1, np.where(seen, grams, -1)[:-1])
    return probs[stream != model.begin]


def to_stream(sentences: np.ndarray, *, backward: bool) -> np.ndarray:
    """Sentences that end in CLOSE, with OPEN before each; or all of that from end to start."""
    ends = np.flatnonzero(sentences == CLOSE)
    stream = np.insert(sentences, np.append(0, ends[:-1] + 1), OPEN)
    return stream[::-1] if backward else stream


def read_vocabulary(path: Path) -> dict[str, int]:
    with path.open(encoding="utf-8", newline="\n") as file:
        return {line.rstrip("\n"): number for number, line in enumerate(file)}


def read_corpus(folder: Path, vocabulary: dict[str, int]) -> np.ndarray:
    """Word numbers of all sentences, CLOSE after each."""
    shards = sorted(folder.glob("[0-9]*.npy"))
    if not shards:
        return read_text(folder / "train.txt", vocabulary)
    numbers = np.concatenate([np.load(shard) for shard in shards])
    numbers[numbers >= len(vocabulary)] = UNKNOWN
    return numbers


def read_text(path: Path, vocabulary: dict[str, int]) -> np.ndarray:
    """Word numbers of the sentences of a file, CLOSE after each."""
    numbers: list[int] = []
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            words = filter(None, line.rstrip("\n").split(" "))
            numbers += [vocabulary.get(word, UNKNOWN) for word in words]
            numbers.append(CLOSE)
    return np.array(numbers, np.int32)


if __name__ == "__main__":
    main()
