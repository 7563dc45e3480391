"""Train, choose and measure the sentence heads that ship with the English model.

    python benchmarks/english/sentence_heads.py \
        --text wikipedia_a.train.txt.xz wikipedia_b.train.txt.xz \
        --stsb sts-train.csv --snli train.tsv.xz --out heads
    python benchmarks/english/sentence_heads.py --stsb sts-train.csv --snli train.tsv.xz \
        --table heads/words.npz --cross-validate
    python benchmarks/english/sentence_heads.py --evaluate sts-dev.csv

"whitened" is fitted to sentences of the text. "sentence" reads of each word its context-free
vector, its hashed spelling, and a vector of the words that stand near it in the text (positive
pointwise mutual information, reduced by a singular value decomposition, stored by product
quantization). It is trained on SNLI to find the entailed sentence among others (a ranking loss with
contradictions as hard negatives), then on STS-B's scores (squared error of the cosine). All
features are whitened for training; the head that is saved has the whitening folded into its
weights.
"""

import argparse
import copy
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.sparse.csgraph
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor, nn

import elmokit
from elmokit.embedder import Embedder
from elmokit.files import TextFile, read_lines
from elmokit.formats.native import write_head
from elmokit.head_fitting import fit_whitened
from elmokit.model.sentence_head import SentenceHead, SentenceHeadConfig
from elmokit.pooling import idf_weights, unit_vectors
from elmokit.text_pooling import spelling_signs, table_rows
from elmokit.tokenizers import get_tokenizer

Array = npt.NDArray[np.float32]

CONTEXT_LAYERS = (1,)
NUM_SIGNS = 200
TABLE_WORDS = 23_000  # the most frequent ones, so that model and heads stay below 40 MB
TABLE_CODES, CODE_SIZE, CODEBOOK_SIZE = 66, 3, 256
KEPT = {"context_free": 160, "signs": 128, "table": TABLE_CODES * CODE_SIZE}  # directions
CONTEXT_KEPT = 96  # directions of each context layer
HIDDEN = 128
ATTENTION_RATE = 5  # the attention's parameters are scaled, so that they learn faster
DROPOUT = 0.1
WINDOW, CONTEXT_WORDS = 20, 12_000  # of the co-occurrences
SENTENCES_TO_WHITEN = 20_000
SEEDS = 3  # whose weights are averaged
# Of the way from SNLI's weights to STS-B's; texts of other kinds lose where it is all of it
# (Wortsman et al. 2022). Chosen among quarters by cross-validation.
SHARE_OF_STSB = 0.75


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts, by their numbers, with labels or scores from 0 to 1."""

    texts: npt.NDArray[np.int64]  # (pairs, 2)
    values: Array  # (pairs,)
    genres: npt.NDArray[np.int64]  # (pairs,)


class TextNumbers(dict[str, int]):
    """Numbers texts as they come."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file, compressed or not."""
    with TextFile(str(path)).open() as file:
        yield from read_lines(file, str(path))


def read_stsb(path: Path, numbers: TextNumbers) -> Pairs:
    """The pairs of STS-B."""
    rows = [line.split("\t") for line in lines_of(path)]
    texts = np.array([[numbers[row[5]], numbers[row[6]]] for row in rows])
    names = sorted({row[0] for row in rows})
    genres = np.array([names.index(row[0]) for row in rows])
    return Pairs(texts, np.array([float(row[4]) / 5 for row in rows], np.float32), genres)


def read_snli(path: Path, numbers: TextNumbers) -> Pairs:
    """The pairs of SNLI: 0 is entailment, 1 neutral, 2 contradiction."""
    rows = [line.split("\t") for line in lines_of(path)]
    texts = np.array([[numbers[row[0]], numbers[row[1]]] for row in rows])
    labels = np.array([float(row[2]) for row in rows], np.float32)
    return Pairs(texts, labels, np.zeros(len(rows), np.int64))


# --- vectors of words by their neighbours in the text ---


def word_table(paths: Sequence[Path], words: dict[str, int], dim: int) -> Array:
    """A unit vector for each word, (words, dim), by what stands near it; zero if nothing does."""
    ids = np.concatenate([*_lines_of_ids(paths, words)])
    counts = np.zeros((len(words), CONTEXT_WORDS), np.float32)
    _count_neighbours(ids, WINDOW, counts)
    return unit_vectors(_singular_vectors(_positive_pmi(counts), dim))


def _lines_of_ids(paths: Sequence[Path], words: dict[str, int]) -> Iterator[npt.NDArray[np.int32]]:
    """The ids of each line's words in lower case; -1 for unknown ones, -2 at the end."""
    token = re.compile(r"\w+(?:[-.]\w+)*|'s|n't|[^\w\s]")
    for path in paths:
        for line in lines_of(path):
            if text := line.strip().lower().replace("'s", " 's"):
                ids = [words.get(word, -1) for word in token.findall(text)]
                yield np.array([*ids, -2], np.int32)


@numba.njit
def _count_neighbours(ids, window, counts):  # type: ignore[no-untyped-def]
    """Add 1 for each pair of words at most `window` apart in one line."""
    contexts = counts.shape[1]
    for i in range(len(ids)):
        if ids[i] < 0:
            continue
        for j in range(i + 1, min(i + 1 + window, len(ids))):
            if ids[j] == -2:
                break
            if ids[j] >= 0:
                if ids[j] < contexts:
                    counts[ids[i], ids[j]] += 1
                if ids[i] < contexts:
                    counts[ids[j], ids[i]] += 1


def _positive_pmi(counts: Array) -> scipy.sparse.csr_matrix:
    """Positive pointwise mutual information, contexts smoothed by the power 0.75."""
    totals = np.log(np.maximum(counts.sum(1, dtype=np.float64), 1e-9))
    contexts = counts.sum(0, dtype=np.float64) ** 0.75
    contexts = np.log(np.maximum(contexts / contexts.sum(), 1e-12))
    blocks = []
    for start in range(0, len(counts), 2000):
        block = counts[start : start + 2000]
        pmi = np.log(np.maximum(block, 1e-9))
        pmi = pmi - totals[start : start + 2000, None].astype(np.float32)
        pmi -= contexts.astype(np.float32)
        pmi[(block <= 0) | (pmi < 0)] = 0
        blocks.append(scipy.sparse.csr_matrix(pmi))
    return scipy.sparse.vstack(blocks).tocsr()


def _singular_vectors(matrix: scipy.sparse.csr_matrix, dim: int, rounds: int = 2) -> Array:
    """The left singular vectors, by a randomized subspace iteration."""
    random = np.random.default_rng(0)
    basis = matrix @ random.standard_normal((matrix.shape[1], dim + 130)).astype(np.float32)
    for _ in range(rounds):
        basis = matrix @ np.linalg.qr(matrix.T @ np.linalg.qr(basis)[0])[0]
    basis = np.linalg.qr(basis)[0]
    vectors = basis @ np.linalg.svd((matrix.T @ basis).T, full_matrices=False)[0]
    return vectors[:, :dim].astype(np.float32)


def quantize(table: Array, rounds: int = 15) -> tuple[Array, npt.NDArray[np.uint8]]:
    """Product quantization: codebooks (codes, 256, size), and the codes of each row."""
    random = np.random.default_rng(0)
    codebooks = np.zeros((TABLE_CODES, CODEBOOK_SIZE, CODE_SIZE), np.float32)
    codes = np.zeros((len(table), TABLE_CODES), np.uint8)
    for number in range(TABLE_CODES):
        part = table[:, number * CODE_SIZE : (number + 1) * CODE_SIZE]
        sample = part[random.choice(len(part), min(len(part), 10_000), replace=False)]
        centres = sample[random.choice(len(sample), CODEBOOK_SIZE, replace=False)]
        for _ in range(rounds):
            nearest = _nearest(sample, centres)
            sizes = np.bincount(nearest, minlength=CODEBOOK_SIZE)
            for axis in range(CODE_SIZE):
                sums = np.bincount(nearest, sample[:, axis], CODEBOOK_SIZE)
                centres[:, axis] = np.where(
                    sizes > 0, sums / np.maximum(sizes, 1), centres[:, axis]
                )
        codebooks[number] = centres.astype(np.float16)
        codes[:, number] = _nearest(part, codebooks[number])
    return codebooks, codes


def _nearest(rows: Array, centres: Array) -> npt.NDArray[np.int64]:
    return ((centres**2).sum(1) - 2 * rows @ centres.T).argmin(1)


# --- what the head is trained on ---


class Features:
    """The whitened features of all texts' words, and the maps that whiten them."""

    def __init__(
        self,
        model: Embedder,
        texts: Sequence[str],
        fit: Sequence[int],
        codebooks: Array,
        codes: npt.NDArray[np.uint8],
    ) -> None:
        vocabulary = model.pretrained.vocabulary
        assert vocabulary is not None
        self.codebooks, self.codes = codebooks, codes
        tokenized = [model.tokenize(text) for text in texts]
        words = [[word for sentence in text for word in sentence] for text in tokenized]
        type_ids = {word: n for n, word in enumerate(dict.fromkeys(w for t in words for w in t))}
        types = [*type_ids]
        lengths = [*map(len, words)]
        self.types = np.full((len(texts), max(lengths)), -1)
        for row, text in zip(self.types, words, strict=True):
            row[: len(text)] = [type_ids[word] for word in text]
        weights = np.concatenate(
            [idf_weights(text, vocabulary) if text else np.zeros(0) for text in words]
        )
        is_word = self.types >= 0
        self.idf = np.zeros(self.types.shape, np.float32)
        self.idf[is_word] = weights

        rows = table_rows(types, vocabulary, len(codes))
        table = codebooks[np.arange(TABLE_CODES), codes[rows.clip(0)]].reshape(len(types), -1)
        raw = {
            "context_free": model.session.encode(types).numpy(),
            "signs": spelling_signs(types, NUM_SIGNS),
            "table": np.where(rows[:, None] >= 0, table, 0).astype(np.float32),
        }
        # (rows, kept) each, with their means
        self.maps: dict[str, tuple[Array, Array]] = {}
        for name, kept in KEPT.items():
            means = self._means(raw[name], fit)
            self.maps[name] = _whitening_map(means, kept)
        parts = [(raw[name] - mean) @ matrix for name, (mean, matrix) in self.maps.items()]
        self.features = torch.from_numpy(np.concatenate(parts, 1))  # (types, features)

        stream = model.embed_stream(
            (sentence for text in tokenized for sentence in text), layers=[*CONTEXT_LAYERS]
        )
        layers = np.concatenate([array.astype(np.float16) for array in stream], 1)
        self.positions = np.full(self.types.shape, -1)
        self.positions[is_word] = np.arange(int(is_word.sum()))
        sample = np.random.default_rng(0).choice(layers.shape[1], 40_000)
        self.context_maps = [
            _whitening_map(layer[sample].astype(np.float32), CONTEXT_KEPT) for layer in layers
        ]
        context = [
            (layer.astype(np.float32) - mean) @ matrix
            for layer, (mean, matrix) in zip(layers, self.context_maps, strict=True)
        ]
        self.context = torch.from_numpy(np.concatenate(context, 1))  # (words, context features)

    def _means(self, features: Array, texts: Sequence[int]) -> Array:
        """The IDF means of texts."""
        types, weights = self.types[texts], self.idf[texts]
        row, column = (types >= 0).nonzero()
        matrix = scipy.sparse.csr_matrix(
            (weights[row, column], (row, types[row, column])), (len(types), len(features))
        )
        totals = np.maximum(weights.sum(1, keepdims=True), 1e-9)
        means: Array = (matrix @ features) / totals
        return means


def _whitening_map(vectors: Array, kept: int) -> tuple[Array, Array]:
    """The mean of vectors, and a matrix to the `kept` widest directions, to variance 1 / kept."""
    mean = vectors.mean(0)
    variances, directions = np.linalg.eigh(np.cov(vectors.T))
    rows, dim = vectors.shape
    shrunk = (rows * np.maximum(variances, 0) + dim * variances.mean()) / (rows + dim)
    matrix = directions[:, ::-1][:, :kept] / np.sqrt(shrunk[::-1][:kept] * kept)
    return mean.astype(np.float32), matrix.astype(np.float32)


class WhitenedHead(nn.Module):
    """A sentence head on whitened features."""

    def __init__(self, features: Features) -> None:
        super().__init__()
        self.data = features
        num_features, num_context = features.features.shape[1], features.context.shape[1]
        self.projection = nn.Parameter(torch.eye(num_features))
        self.attention = nn.Parameter(torch.zeros(num_features))
        self.context_attention = nn.Parameter(torch.zeros(num_context))
        self.hidden = nn.Linear(num_features, HIDDEN)
        self.output = nn.Parameter(0.3 * torch.eye(HIDDEN))

    def forward(self, texts: npt.NDArray[np.int64]) -> Tensor:  # -> (texts, output size)
        data = self.data
        length = int((data.types[texts] >= 0).sum(1).max())
        types = torch.from_numpy(data.types[texts, :length])
        is_word = types >= 0
        distinct, rows = torch.unique(types.clamp(min=0), return_inverse=True)
        features = data.features[distinct]
        if self.training:
            features = features * F.dropout(torch.ones(features.shape[1]), DROPOUT)
        context = data.context[torch.from_numpy(data.positions[texts, :length]).clamp(min=0)]
        idf = torch.from_numpy(data.idf[texts, :length])
        scores = idf.log() + ATTENTION_RATE * (features @ self.attention)[rows]
        scores = scores + ATTENTION_RATE * (context @ self.context_attention)
        weights = torch.softmax(scores.masked_fill(~is_word, -torch.inf), 1)
        by_type = torch.zeros(len(texts), len(distinct)).scatter_add_(1, rows, weights)
        mean = (by_type @ features) @ self.projection
        hidden = (by_type @ torch.relu(self.hidden(features))) @ self.output
        return torch.cat([mean, hidden], 1)

    def __deepcopy__(self, memo: object) -> "WhitenedHead":
        twin = WhitenedHead(self.data)
        twin.load_state_dict(self.state_dict())
        return twin

    def fold(self) -> SentenceHead:
        """The same head on the features as they are, rounded to float16."""
        data = self.data
        blocks = [torch.from_numpy(matrix) for _, matrix in data.maps.values()]
        means = torch.cat([torch.from_numpy(mean) for mean, _ in data.maps.values()])
        whiten = torch.block_diag(*blocks)  # (features, whitened features)
        context = torch.block_diag(*(torch.from_numpy(m) for _, m in data.context_maps))
        config = SentenceHeadConfig(
            context_free_size=len(blocks[0]),
            projection_size=self.projection.shape[1],
            attention=True,
            context_layers=CONTEXT_LAYERS,
            context_size=len(context),
            num_signs=NUM_SIGNS,
            table_words=len(data.codes),
            table_codes=TABLE_CODES,
            table_code_size=CODE_SIZE,
            hidden_size=HIDDEN,
        )
        head = SentenceHead(config)
        with torch.no_grad():
            head.projection.weight.copy_((whiten @ self.projection).T)
            head.projection.bias.copy_(-means @ whiten @ self.projection)
            attention = [whiten @ self.attention, context @ self.context_attention]
            head.attention.copy_(ATTENTION_RATE * torch.cat(attention))
            head.hidden.weight.copy_((whiten @ self.hidden.weight.T).T)
            head.hidden.bias.copy_(self.hidden.bias - means @ whiten @ self.hidden.weight.T)
            head.output.weight.copy_(self.output.T)
            head.codebooks.copy_(torch.from_numpy(data.codebooks))
            head.codes.copy_(torch.from_numpy(data.codes))
        return head.half().float()


# --- training ---


def cosines(head: nn.Module, pairs: npt.NDArray[np.int64]) -> Array:
    """The cosine of each pair of texts."""
    head.eval()
    found = []
    with torch.no_grad():
        for start in range(0, len(pairs), 500):
            texts = pairs[start : start + 500]
            found.append(torch.cosine_similarity(head(texts[:, 0]), head(texts[:, 1])).numpy())
    head.train()
    return np.concatenate(found)


def spearman(found: Array, expected: Array) -> float:
    """Spearman's correlation."""
    return float(spearmanr(found, expected).statistic)


def train_ranking(
    head: nn.Module, snli: Pairs, *, epochs: int = 3, rate: float = 1e-3, seed: int = 0
) -> None:
    """Find the entailed sentence among those of a batch and their contradictions."""
    entailed, contradicted = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for (premise, other), label in zip(snli.texts, snli.values, strict=True):
        if label == 0:
            entailed[premise].append(other)
        if label == 2:
            contradicted[premise].append(other)
    triples = np.array(
        [
            (premise, other, contradicted[premise][0] if premise in contradicted else -1)
            for premise, others in entailed.items()
            for other in others
        ]
    )
    random = np.random.default_rng(seed)
    for optimizer, batch in _batches(head, len(triples), 128, epochs, rate, random):
        premises, others, negatives = triples[batch].T
        known = negatives >= 0
        one, two, three = (
            F.normalize(head(texts)) for texts in (premises, others, negatives[known])
        )
        scores = torch.cat([one @ two.T, one @ three.T], 1) / 0.1
        loss = F.cross_entropy(scores, torch.arange(len(batch)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_regression(
    head: nn.Module,
    texts: npt.NDArray[np.int64],
    scores: Array,
    *,
    epochs: int = 6,
    rate: float = 2e-3,
    seed: int = 0,
) -> None:
    """Make the cosines of texts a linear function of their scores."""
    random = np.random.default_rng(seed)
    line = nn.Parameter(torch.tensor([1.0, 0.0]))
    expected = torch.from_numpy(scores)
    for optimizer, batch in _batches(head, len(texts), 256, epochs, rate, random, line):
        vectors = head(texts[batch].T.ravel())
        found = torch.cosine_similarity(vectors[: len(batch)], vectors[len(batch) :])
        loss = (line[0] * found + line[1] - expected[batch]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _batches(
    head: nn.Module,
    size: int,
    batch_size: int,
    epochs: int,
    rate: float,
    random: np.random.Generator,
    line: nn.Parameter | None = None,
) -> Iterator[tuple[torch.optim.Optimizer, npt.NDArray[np.int64]]]:
    """Shuffled batches, and Adam with a rate that falls to zero."""
    groups: list[dict[str, object]] = [{"params": [*head.parameters()], "lr": rate}]
    if line is not None:
        groups.append({"params": [line], "lr": 1e-2})
    optimizer = torch.optim.Adam(groups)
    steps = epochs * (size // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        order = random.permutation(size)
        for start in range(0, size - batch_size + 1, batch_size):
            yield optimizer, order[start : start + batch_size]
            schedule.step()


def train_average(
    start: WhitenedHead, texts: npt.NDArray[np.int64], scores: Array, seeds: int = SEEDS
) -> WhitenedHead:
    """The mean of heads that were trained on STS-B in different orders, drawn to the start."""
    trained = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        head = copy.deepcopy(start)
        train_regression(head, texts, scores, seed=seed)
        trained.append(head.state_dict())
    average = copy.deepcopy(start)
    for name, weight in average.state_dict().items():
        weight.lerp_(torch.stack([weights[name] for weights in trained]).mean(0), SHARE_OF_STSB)
    return average


def cross_validate(start: WhitenedHead, stsb: Pairs, folds: npt.NDArray[np.int64]) -> float:
    """Spearman's correlation of pairs that were left out, fold by fold."""
    found = np.zeros(len(folds), np.float32)
    for fold in np.unique(folds):
        out = folds == fold
        head = train_average(start, stsb.texts[~out], stsb.values[~out])
        found[out] = cosines(head, stsb.texts[out])
    return spearman(found, stsb.values)


def folds_without_common_texts(texts: npt.NDArray[np.int64], folds: int) -> npt.NDArray[np.int64]:
    """A fold for each pair, so that no text is in two folds."""
    links = scipy.sparse.coo_matrix((np.ones(len(texts)), texts.T), (texts.max() + 1,) * 2)
    groups = scipy.sparse.csgraph.connected_components(links, directed=False)[1][texts[:, 0]]
    sizes, fold_of = np.zeros(folds), {}
    counts = np.bincount(groups)
    for group in np.argsort(-counts, kind="stable"):
        fold_of[group] = int(sizes.argmin())
        sizes[fold_of[group]] += counts[group]
    return np.array([fold_of[group] for group in groups])


# --- choosing and measuring ---


def measure(model: Embedder, path: Path, *, snli: bool) -> dict[str, float]:
    """Spearman's correlation of the cosines of each way to encode with scores or labels.

    Of SNLI, labels are entailment and contradiction alone.
    """
    numbers = TextNumbers()
    pairs = read_snli(path, numbers) if snli else read_stsb(path, numbers)
    chosen = pairs.values != 1 if snli else np.ones(len(pairs.values), bool)
    expected = -pairs.values[chosen] if snli else pairs.values
    texts = [*numbers]
    ways = {"mean of layers": {"layers": "mean", "pooling": "mean"}}
    ways["layer 0, idf"] = {"layers": 0, "pooling": "idf"}
    ways |= {name: {"pooling": name} for name in model.pretrained.heads}
    found = {}
    for name, options in ways.items():
        vectors = unit_vectors(model.encode(texts, **options))
        first, second = vectors[pairs.texts[chosen].T]
        found[name] = spearman((first * second).sum(1), expected)
    raw = model.encode(texts, layers=0, pooling="idf")
    vectors = elmokit.Whitening.fit(raw).transform(raw)
    first, second = vectors[pairs.texts[chosen].T]
    found["layer 0, idf, whitened with these texts"] = spearman((first * second).sum(1), expected)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a model folder (default: the English model)")
    parser.add_argument("--text", type=Path, nargs="+", help="plain text, a paragraph a line")
    parser.add_argument("--stsb", type=Path, help="sts-train.csv")
    parser.add_argument("--snli", type=Path, help="premise, hypothesis and label, tabs between")
    parser.add_argument("--table", type=Path, help="words.npz of an earlier run")
    parser.add_argument("--out", type=Path, help="the folder for the heads")
    parser.add_argument("--cross-validate", action="store_true")
    parser.add_argument("--evaluate", type=Path, nargs="+", help="files of STS-B or SNLI (.tsv)")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = elmokit.load(options.model, threads=options.threads)
    for path in options.evaluate or ():
        print(f"\n| {path.name} | Spearman |\n| --- | --- |")
        for name, value in measure(model, path, snli=".tsv" in path.name).items():
            print(f"| {name} | {100 * value:.1f} |")
    if options.evaluate:
        return
    if not (options.stsb and options.snli and (options.text or options.table)):
        sys.exit("--stsb, --snli and one of --text and --table are needed to train")
    begin = time.process_time()

    vocabulary = model.pretrained.vocabulary
    assert vocabulary is not None
    if options.table:
        with np.load(options.table) as arrays:
            codebooks, codes = arrays["codebooks"], arrays["codes"]
    else:
        table = word_table(options.text, vocabulary.lower_case_ids, TABLE_CODES * CODE_SIZE)
        codebooks, codes = quantize(table[:TABLE_WORDS])
    print(f"word table: {time.process_time() - begin:.0f} s of processor time", flush=True)
    numbers = TextNumbers()
    stsb, snli = read_stsb(options.stsb, numbers), read_snli(options.snli, numbers)
    fit = np.unique(np.concatenate([stsb.texts.ravel(), snli.texts.ravel()]))
    features = Features(model, [*numbers], fit, codebooks, codes)
    torch.manual_seed(0)
    head = WhitenedHead(features)
    train_ranking(head, snli)
    print(f"STS-B train after SNLI alone: {spearman(cosines(head, stsb.texts), stsb.values):.4f}")
    print(f"features, SNLI: {time.process_time() - begin:.0f} s", flush=True)
    if options.out:
        options.out.mkdir(exist_ok=True)
        if not options.table:
            np.savez(options.out / "words.npz", codebooks=codebooks, codes=codes)
        model.add_head("sentence", train_average(head, stsb.texts, stsb.values).fold())
        if options.text:
            whitened = fit_whitened(model, sample_sentences(model, options.text))
            model.add_head("whitened", whitened.half().float())
        for name, fitted in model.pretrained.heads.items():
            write_head(fitted, options.out / f"{name}.head.safetensors")
    if options.cross_validate:
        folds = folds_without_common_texts(stsb.texts, 3)
        for name, chosen in (("no common texts", folds), ("genres left out", stsb.genres)):
            print(f"cross-validated, {name}: {cross_validate(head, stsb, chosen):.4f}", flush=True)
    print(f"all: {time.process_time() - begin:.0f} s of processor time")


def sample_sentences(model: Embedder, paths: Sequence[Path]) -> Iterator[str]:
    """A sentence of every 20th paragraph of text."""
    tokenizer = get_tokenizer(model.pretrained.tokenizer)
    for path in paths:
        paragraphs = islice((line for line in lines_of(path) if line.strip()), 0, None, 20)
        for number, line in enumerate(islice(paragraphs, SENTENCES_TO_WHITEN // len(paths))):
            sentences = tokenizer.split_sentences(line)
            yield sentences[number % len(sentences)]


if __name__ == "__main__":
    main()
