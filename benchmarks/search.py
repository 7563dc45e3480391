"""How well and how fast an index searches: recall, speed, questions of SQuAD, STS-B.

    python benchmarks/search.py [MODEL] [--corpus FILE …] [--passages 10000 100000]
        [--store postgresql://…] [--squad dev.json.xz [--weights]] [--stsb sts-dev.csv]
        [--layers mean top …] [--pooling idf sentence mean …]

With --corpus: the recall of each kind of store, its queries per second and its build time; with
--store, also in PostgreSQL, in an index that is dropped afterwards. With --squad: how often the
paragraph of a question is found first or among ten by each mode of an index, by bm25s if it is
installed, and by vectors of whole paragraphs; with --weights, also by other weights of a hybrid
search, to choose them by the train part. With --stsb: Spearman's correlation of cosines with
people's judgements. All layers and poolings are measured in turn; stores and modes use the first.
Prints Markdown tables, and one line of JSON at the end.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice, product
from pathlib import Path

import numpy as np
import numpy.typing as npt

import elmokit
from elmokit.files import find_files
from elmokit.pooling import HEADS, POOLINGS
from elmokit.search import MODES, Index
from elmokit.search.faiss_vectors import FaissVectors, sample_rows
from elmokit.search.passage_vectors import IndexConfig, embed_passages
from elmokit.search.passages import Passage, VectorSource, read_passages
from elmokit.search.store import Hit
from elmokit.tasks.datasets.squad import read_squad
from elmokit.tokenizers import get_tokenizer
from elmokit.whitening import Whitening
from similarity import read_stsb, spearman

Vectors = npt.NDArray[np.float32]
Ranks = npt.NDArray[np.int64]  # (questions, paragraphs), from 0

KINDS = ("flat", "hnsw", "ivf")
WHITENINGS = ("none", "centre", "top", "zca")
QUERIES = 1000
K = 10
CANDIDATES = 100  # of each question, when weights are tried
PASSAGES_PER_CALL = 4096
SHARES = tuple(n / 10 for n in range(11))  # of a part of the score in a hybrid search
BOOTSTRAPS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "model", nargs="?", help="folder or zip of a model; default: the English one"
    )
    parser.add_argument("--corpus", nargs="+", default=[], help="files, folders, globs")
    parser.add_argument("--passages", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--store", help="PostgreSQL URL of an index to build and drop")
    parser.add_argument("--squad", type=Path, help="SQuAD 1.1, compressed or not")
    parser.add_argument(
        "--questions", type=int, help="number of questions of SQuAD; 0: all", default=0
    )
    parser.add_argument("--weights", action="store_true", help="try other weights on SQuAD")
    parser.add_argument("--stsb", type=Path, help="pairs of STS-B")
    parser.add_argument(
        "--layers", nargs="+", default=["0"], help="mean, top, concat or a layer's number"
    )
    parser.add_argument("--pooling", nargs="+", default=["idf"], choices=[*POOLINGS])
    parser.add_argument("--precision", default="float32", choices=("float32", "half", "int8"))
    args = parser.parse_args()
    model = elmokit.load(args.model, precision=args.precision)
    configs = [
        IndexConfig(
            model.pretrained.fingerprint(pooling), model.pretrained.tokenizer, "sentences",
            int(layers) if layers and layers.isdigit() else layers, pooling, "zca", "auto",
        )
        for pooling in args.pooling
        for layers in ([None] if pooling in HEADS else args.layers)  # heads have their own
    ]  # fmt: skip
    results: dict[str, object] = {"model": configs[0].model}
    if args.corpus:
        results["stores"] = measure_stores(
            model, configs[0], args.corpus, sorted(args.passages), args.store
        )
        print_table(results["stores"])
    if args.squad:
        squad = Squad(args.squad, configs[0].tokenizer, args.questions)
        print(f"\n{len(squad.questions):,} questions, {len(squad.paragraphs):,} paragraphs\n")
        results["modes"], results["weights"] = measure_modes(
            model, configs[0], squad, try_weights=args.weights
        )
        print_table(results["modes"])
        if args.weights:
            print_table(results["weights"])
        results["squad"] = measure_squad(model, configs, squad)
        print_table(results["squad"])
    if args.stsb:
        results["stsb"] = measure_stsb(model, configs, args.stsb)
        print_table(results["stsb"])
    print(json.dumps(results))


def measure_stores(
    model: elmokit.Embedder,
    config: IndexConfig,
    corpus: list[str],
    sizes: list[int],
    database: str | None,
) -> list[dict[str, object]]:
    """Each kind of store at each size, on the first passages; the next ones are the queries."""
    passages = read_passages(find_files(corpus), tokenizer=config.tokenizer, unit=config.unit)
    started = time.perf_counter()
    vectors = embed(model, config, islice(passages, sizes[-1] + QUERIES))
    embedded = len(vectors) / (time.perf_counter() - started)
    print(f"{len(vectors):,} passages, {embedded:,.0f} embedded a second\n")
    if len(vectors) <= sizes[-1]:
        raise SystemExit(f"the corpus has {len(vectors):,} passages, expected over {sizes[-1]:,}")
    rows = []
    for size in sizes:
        whitening = Whitening.fit_batches(
            [vectors[:size]], dim=vectors.shape[1], method=config.whitening
        )
        stored, queries = (
            whitening.transform(vectors[:size]),
            whitening.transform(vectors[sizes[-1] :]),
        )
        exact_ids = None
        for kind in KINDS:
            row, ids = measure_store(kind, stored, queries, exact_ids)
            exact_ids = ids if exact_ids is None else exact_ids  # the flat one comes first
            rows.append({"passages": size, "kind": kind, **row})
        for kind in ("flat", "hnsw") if database else ():
            row, _ = measure_database(database, kind, stored, queries, exact_ids)
            rows.append({"passages": size, "kind": f"PostgreSQL, {kind}", **row})
    return rows


def measure_store(
    kind: str, stored: Vectors, queries: Vectors, exact: npt.NDArray[np.int64] | None
) -> tuple[dict[str, object], npt.NDArray[np.int64]]:
    """The figures of one store, and the ids it found."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors")
        started = time.perf_counter()
        stride = max(1, len(stored) // sample_rows(kind, len(stored)))
        sample = np.ascontiguousarray(stored[::stride])
        store = FaissVectors.create(path, kind=kind, sample=sample, rows=len(stored))
        store.add(stored)
        store.save()
        built = time.perf_counter() - started
        megabytes = path.stat().st_size / 1e6
    started = time.perf_counter()
    ids = np.concatenate([store.search(query[None], K)[1] for query in queries])  # one by one
    seconds = time.perf_counter() - started
    return figures(ids, exact, seconds=seconds, built=built, megabytes=megabytes), ids


def measure_database(
    url: str, kind: str, stored: Vectors, queries: Vectors, exact: npt.NDArray[np.int64]
) -> tuple[dict[str, object], npt.NDArray[np.int64]]:
    """The same in PostgreSQL, without the time to embed and to whiten."""
    from elmokit.search.pg_builder import PostgresBuilder
    from elmokit.search.pg_connection import Database, PostgresAddress
    from elmokit.search.pg_store import PostgresStore

    config = IndexConfig("benchmark", "spaces", "sentences", "mean", "mean", "none", kind)
    started = time.perf_counter()
    with PostgresBuilder.open(url, asdict(config), dim=stored.shape[1]) as builder:
        for start in range(0, len(stored), PASSAGES_PER_CALL):
            some = stored[start : start + PASSAGES_PER_CALL].astype(np.float16)
            passages = [Passage("", start + n, 0, 0, "", ()) for n in range(len(some))]
            builder.add_part(passages, [VectorSource(n) for n in range(len(some))], some)
        builder.finish(config, Whitening.fit_batches([], dim=stored.shape[1], method="none"), None)
    built = time.perf_counter() - started
    store, database = PostgresStore.open(url), Database(PostgresAddress.from_url(url))
    try:
        size = "SELECT pg_total_relation_size('{s}.vectors'::regclass)"
        ((num_bytes,),) = database.query(size)
        started = time.perf_counter()
        ids = np.array([[hit.passage.line for hit in store.nearest(query, K)] for query in queries])
        seconds = time.perf_counter() - started
    finally:
        store.close()
        database.execute("DROP SCHEMA {s} CASCADE")
        database.close()
    row = figures(ids, exact, seconds=seconds, built=built, megabytes=num_bytes / 1e6)
    return row, ids


def figures(
    ids: npt.NDArray[np.int64],
    exact: npt.NDArray[np.int64] | None,
    *,
    seconds: float,
    built: float,
    megabytes: float,
) -> dict[str, object]:
    exact = ids if exact is None else exact
    recall = np.mean([len({*a} & {*b}) / len(b) for a, b in zip(ids, exact, strict=True)])
    return {
        f"recall@{K}": round(float(recall), 4),
        "queries a second": round(len(ids) / seconds, 1),
        "seconds to build": round(built, 2),
        "MB": round(megabytes, 1),
    }


class Squad:
    """Questions, paragraphs, and the number of the paragraph that each question is about."""

    def __init__(self, path: Path, tokenizer: str, max_questions: int) -> None:
        questions = read_squad(path, get_tokenizer(tokenizer).tokenize)
        self.paragraphs = [" ".join(q.text.split()) for q in questions]  # one line each
        self.paragraphs = [*dict.fromkeys(self.paragraphs)]
        numbers = {text: number for number, text in enumerate(self.paragraphs)}
        stride = max(1, len(questions) // max_questions) if max_questions else 1
        self.wanted = np.array([numbers[" ".join(q.text.split())] for q in questions[::stride]])
        self.questions = [" ".join(question.question) for question in questions[::stride]]

    def recall(self, ranks: npt.NDArray[np.int64]) -> dict[str, float]:
        """How many of the wanted paragraphs have the first rank, 0, or one of the first ten."""
        return {f"recall@{k}": round(100 * float((ranks < k).mean()), 2) for k in (1, K)}


def measure_modes(
    model: elmokit.Embedder, config: IndexConfig, squad: Squad, *, try_weights: bool
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """How often an index of the paragraphs finds that of a question, by mode and by weights."""
    ranks: dict[str, npt.NDArray[np.int64]] = {}
    milliseconds: dict[str, float] = {}
    bm25_scores = bm25(squad.paragraphs, squad.questions)
    if bm25_scores is not None:
        ranks["bm25s"] = ranked(bm25_scores)[range(len(squad.wanted)), squad.wanted]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "paragraphs.txt")
        text.write_text("".join(f"{paragraph}\n" for paragraph in squad.paragraphs), "utf-8")
        with Index.build(
            Path(folder, "index"), [str(text)], model, unit="paragraphs",
            layers=config.layers, pooling=config.pooling,
        ) as index:  # fmt: skip
            for mode in MODES:
                started = time.process_time()  # of the CPU: other programs do not count
                found = [index.search(question, K, mode=mode) for question in squad.questions]
                seconds = time.process_time() - started
                milliseconds[mode] = round(1000 * seconds / len(found), 1)
                ranks[mode] = np.array([*map(rank_of, found, squad.wanted)])
            weights = measure_weights(index, squad) if try_weights else []
    gains = (ranks["hybrid"] == 0).astype(float) - (ranks["lexical"] == 0)
    samples = np.random.default_rng(0).choice(gains, (BOOTSTRAPS, len(gains))).mean(1)
    low, high = 100 * np.quantile(samples, (0.025, 0.975))
    print(f"hybrid - lexical, recall@1: {100 * gains.mean():.2f} ({low:.2f} to {high:.2f})\n")
    modes = [
        {"mode": mode, **squad.recall(own), "CPU ms a question": milliseconds.get(mode, "")}
        for mode, own in ranks.items()
    ]
    return modes, weights


def measure_weights(index: Index, squad: Squad) -> list[dict[str, object]]:
    """Hybrid searches with all weights in steps of 0.1, the ten best by recall@1 first."""
    parts = [
        [
            (hit.bm25, hit.word_match, hit.cosine, hit.passage.line - 1 == wanted)
            for hit in index.rank(index.find(index.query(question), CANDIDATES // 2), CANDIDATES)
        ]
        for question, wanted in zip(squad.questions, squad.wanted, strict=True)
    ]
    arrays = [np.array(own, np.float32).reshape(-1, 4) for own in parts]
    rows: list[dict[str, object]] = []
    for weights in product(SHARES, repeat=3):
        if round(sum(weights), 6) != 1:
            continue
        ranks = []
        for own in arrays:
            scores, is_wanted = own[:, :3] @ np.float32(weights), own[:, 3] > 0
            better = scores > scores[is_wanted].max(initial=-np.inf)
            ranks.append(int(better.sum()) if is_wanted.any() else len(squad.paragraphs))
        row = dict(zip(("BM25", "words", "cosine"), weights, strict=True))
        rows.append({**row, **squad.recall(np.array(ranks))})
    return sorted(rows, key=lambda row: -float(str(row["recall@1"])))[:10]


def rank_of(hits: Sequence[Hit], wanted: int) -> int:
    """The rank of a paragraph among hits; after all of them if it is not there."""
    return next((n for n, hit in enumerate(hits) if hit.passage.line - 1 == wanted), len(hits) + K)


def measure_squad(
    model: elmokit.Embedder, configs: list[IndexConfig], squad: Squad
) -> list[dict[str, object]]:
    """How often the paragraph of a question is found by one vector for each paragraph."""
    rows: list[dict[str, object]] = []
    for config in configs:
        contexts = embed(model, config, as_passages(config, squad.paragraphs))
        queries = embed(model, config, as_passages(config, squad.questions))
        for method in WHITENINGS:
            whitening = Whitening.fit_batches([contexts], dim=contexts.shape[1], method=method)
            scores = whitening.transform(queries) @ whitening.transform(contexts).T
            ranks = ranked(scores)[range(len(squad.wanted)), squad.wanted]
            rows.append({"by": title(config, method), **squad.recall(ranks)})
    return rows


def measure_stsb(
    model: elmokit.Embedder, configs: list[IndexConfig], path: Path
) -> list[dict[str, object]]:
    """Spearman's correlation of sentence similarity with people's judgements, by method."""
    pairs = read_stsb(path, get_tokenizer(configs[0].tokenizer).tokenize)
    first, second = ([texts[n] for texts in (p.texts for p in pairs)] for n in (0, 1))
    gold = [pair.score for pair in pairs]
    print(f"\n{len(pairs):,} pairs\n")
    rows: list[dict[str, object]] = []

    def add(name: str, scores: npt.NDArray[np.floating]) -> None:
        rows.append({"by": name, "Spearman": round(spearman(gold, scores), 4)})

    bm25_scores = bm25(first, second)
    if bm25_scores is not None:  # the score of each sentence for the other, both added
        add("BM25", np.diag(bm25_scores) + np.diag(bm25(second, first)))
    for config in configs:
        one, other = (embed(model, config, as_passages(config, side)) for side in (first, second))
        for method in WHITENINGS:
            whitening = Whitening.fit_batches([one, other], dim=one.shape[1], method=method)
            add(
                title(config, method),
                (whitening.transform(one) * whitening.transform(other)).sum(1),
            )
    return rows


def title(config: IndexConfig, whitening: str) -> str:
    return f"layers {config.layers}, pooling {config.pooling}, {whitening}"


def embed(model: elmokit.Embedder, config: IndexConfig, passages: Iterator[Passage]) -> Vectors:
    """The vectors of passages before whitening."""
    parts = []
    while some := [*islice(passages, PASSAGES_PER_CALL)]:
        parts.append(embed_passages(config, model, some)[1])
    return np.concatenate(parts)


def as_passages(config: IndexConfig, texts: Sequence[str]) -> Iterator[Passage]:
    for text in texts:
        sentences = tuple(map(tuple, config.tokenize(text)))
        yield Passage("", 0, 0, len(text), text, sentences)


def bm25(paragraphs: list[str], questions: list[str]) -> Vectors | None:
    """BM25 scores, (questions, paragraphs); None without bm25s."""
    try:
        import bm25s
    except ImportError:
        print("without BM25: pip install bm25s\n")
        return None
    index = bm25s.BM25()
    index.index(
        bm25s.tokenize(paragraphs, stopwords="en", show_progress=False), show_progress=False
    )
    tokens = bm25s.tokenize(questions, stopwords="en", return_ids=False, show_progress=False)
    return np.stack([index.get_scores(words) for words in tokens])


def ranked(scores: npt.NDArray[np.floating]) -> Ranks:
    """The rank of each paragraph; of equals, the earlier one is first."""
    order = np.argsort(-scores, 1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(scores.shape[1])[None], 1)
    return ranks


def print_table(rows: list[dict[str, object]]) -> None:
    names = [*rows[0]]
    print("| " + " | ".join(names) + " |")
    print("|" + " --- |" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row[name]) for name in names) + " |")


if __name__ == "__main__":
    main()
