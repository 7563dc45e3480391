"""A model becomes how well and how fast it searches: nearest passages, and answers to questions.

    python benchmarks/search.py [MODEL] [--corpus FILE …] [--passages 10000 100000]
        [--store postgresql://…] [--squad dev.json.xz] [--stsb sts-dev.csv]
        [--layers mean top …] [--pooling idf mean max …]

Of the corpus: how many of the exact ten nearest each kind of store finds, how fast, and how long it
takes to build; with --store in PostgreSQL too, in an index that is dropped again. Of SQuAD: how
often the paragraph of a question is the first found, or among ten, by the model with each
whitening, by BM25 where bm25s is installed, and by both (a weighted sum of scores). Of STS-B: how
much the cosines of sentences agree with people (Spearman). Several layers and poolings are tried
in turn; stores have the first. Markdown tables for people, one JSON line last for machines.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

import elmokit
from elmokit.files import find_files
from elmokit.search.build import BuildManifest
from elmokit.search.faiss_vectors import FaissVectors, sample_rows
from elmokit.search.passages import Passage, VectorSource, read_passages
from elmokit.search.vectors import IndexConfig, embed_passages
from elmokit.tasks.data.squad import read_squad
from elmokit.tasks.data.table import read_stsb
from elmokit.tasks.metrics.correlation import spearman
from elmokit.tokenizers import get_tokenizer
from elmokit.whitening import estimate

Vectors = npt.NDArray[np.float32]
Ranks = npt.NDArray[np.int64]  # (questions, paragraphs): the place of each paragraph, 0 the first

KINDS = ("flat", "hnsw", "ivf")
WAYS = ("none", "centre", "top", "zca")
QUERIES = 1000
K = 10
PASSAGES_AT_ONCE = 4096
WEIGHT = 0.2  # of vectors beside BM25: the best of seven on SQuAD's train part


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", help="a folder or zip; the English one that ships")
    parser.add_argument("--corpus", nargs="+", default=[], help="files, folders, globs")
    parser.add_argument("--passages", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--store", help="an address of PostgreSQL, with no such index yet")
    parser.add_argument("--squad", type=Path, help="questions of SQuAD 1.1, packed or not")
    parser.add_argument("--questions", type=int, help="of SQuAD, evenly from all", default=0)
    parser.add_argument("--stsb", type=Path, help="pairs of STS-B")
    parser.add_argument(
        "--layers", nargs="+", default=["0"], help="mean, top, concat or a layer's number"
    )
    parser.add_argument(
        "--pooling", nargs="+", default=["idf"], choices=("idf", "mean", "max", "first", "last")
    )
    parser.add_argument("--precision", default="float32", choices=("float32", "half", "int8"))
    chosen = parser.parse_args()
    model = elmokit.load(chosen.model, precision=chosen.precision)
    configs = [
        IndexConfig(
            model.pretrained.fingerprint(), model.pretrained.tokenizer, "sentences",
            int(layers) if layers.isdigit() else layers, pooling, "zca", "auto",
        )
        for layers in chosen.layers
        for pooling in chosen.pooling
    ]  # fmt: skip
    results: dict[str, object] = {"model": configs[0].model}
    if chosen.corpus:
        results["stores"] = measure_stores(
            model, configs[0], chosen.corpus, sorted(chosen.passages), chosen.store
        )
        print_table(results["stores"])
    if chosen.squad:
        results["squad"] = measure_squad(model, configs, chosen.squad, chosen.questions)
        print_table(results["squad"])
    if chosen.stsb:
        results["stsb"] = measure_stsb(model, configs, chosen.stsb)
        print_table(results["stsb"])
    print(json.dumps(results))


def measure_stores(
    model: elmokit.Embedder,
    config: IndexConfig,
    corpus: list[str],
    sizes: list[int],
    database: str | None,
) -> list[dict[str, object]]:
    """Each kind of store at each size, on the first passages; the queries are those after them."""
    passages = read_passages(find_files(corpus), tokenizer=config.tokenizer, unit=config.unit)
    started = time.perf_counter()
    vectors = embed(model, config, islice(passages, sizes[-1] + QUERIES))
    embedded = len(vectors) / (time.perf_counter() - started)
    print(f"{len(vectors):,} passages, {embedded:,.0f} embedded a second\n")
    if len(vectors) <= sizes[-1]:
        raise SystemExit(f"the corpus has {len(vectors):,} passages, expected over {sizes[-1]:,}")
    rows = []
    for size in sizes:
        whitening = estimate([vectors[:size]], dim=vectors.shape[1], way=config.whitening)
        kept, queries = whitening.apply(vectors[:size]), whitening.apply(vectors[sizes[-1] :])
        exact = None
        for kind in KINDS:
            row, found = measure_store(kind, kept, queries, exact)
            exact = found if exact is None else exact  # the flat one comes first
            rows.append({"passages": size, "kind": kind, **row})
        for kind in ("flat", "hnsw") if database else ():
            row, _ = measure_database(database, kind, kept, queries, exact)
            rows.append({"passages": size, "kind": f"PostgreSQL, {kind}", **row})
    return rows


def measure_store(
    kind: str, kept: Vectors, queries: Vectors, exact: npt.NDArray[np.int64] | None
) -> tuple[dict[str, object], npt.NDArray[np.int64]]:
    """What is measured of one store, and what it found."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors")
        started = time.perf_counter()
        stride = max(1, len(kept) // sample_rows(kind, len(kept)))
        sample = np.ascontiguousarray(kept[::stride])
        store = FaissVectors.create(path, kind=kind, sample=sample, rows=len(kept))
        store.add(kept)
        store.save()
        built = time.perf_counter() - started
        megabytes = path.stat().st_size / 1e6
    started = time.perf_counter()
    found = np.concatenate([store.search(query[None], K)[1] for query in queries])  # one by one
    seconds = time.perf_counter() - started
    return figures(found, exact, seconds=seconds, built=built, megabytes=megabytes), found


def measure_database(
    url: str, kind: str, kept: Vectors, queries: Vectors, exact: npt.NDArray[np.int64]
) -> tuple[dict[str, object], npt.NDArray[np.int64]]:
    """The same of a store in PostgreSQL, without the time to embed and to whiten."""
    from elmokit.search.pg_connection import Database, PostgresAddress
    from elmokit.search.pg_store import PostgresBuilder, PostgresStore

    config = IndexConfig("benchmark", "spaces", "sentences", "mean", "mean", "none", kind)
    started = time.perf_counter()
    with PostgresBuilder.open(url, BuildManifest(config, []), dim=kept.shape[1]) as builder:
        for start in range(0, len(kept), PASSAGES_AT_ONCE):
            some = kept[start : start + PASSAGES_AT_ONCE].astype(np.float16)
            passages = [Passage("", start + n, 0, 0, "", ()) for n in range(len(some))]
            builder.add_part(passages, [VectorSource(n) for n in range(len(some))], some)
        builder.finish(config, estimate([], dim=kept.shape[1], way="none"))
    built = time.perf_counter() - started
    store, database = PostgresStore.open(url), Database(PostgresAddress.from_url(url))
    try:
        size = "SELECT pg_total_relation_size('{s}.vectors'::regclass)"
        ((size_in_bytes,),) = database.query(size)
        started = time.perf_counter()
        found = np.array(
            [[hit.passage.line for hit in store.nearest(query, K)] for query in queries]
        )
        seconds = time.perf_counter() - started
    finally:
        store.close()
        database.execute("DROP SCHEMA {s} CASCADE")
        database.close()
    row = figures(found, exact, seconds=seconds, built=built, megabytes=size_in_bytes / 1e6)
    return row, found


def figures(
    found: npt.NDArray[np.int64],
    exact: npt.NDArray[np.int64] | None,
    *,
    seconds: float,
    built: float,
    megabytes: float,
) -> dict[str, object]:
    exact = found if exact is None else exact
    recall = np.mean([len({*a} & {*b}) / len(b) for a, b in zip(found, exact, strict=True)])
    return {
        f"recall@{K}": round(float(recall), 4),
        "queries a second": round(len(found) / seconds, 1),
        "seconds to build": round(built, 2),
        "MB": round(megabytes, 1),
    }


def measure_squad(
    model: elmokit.Embedder, configs: list[IndexConfig], path: Path, most: int
) -> list[dict[str, object]]:
    """How often each way finds the paragraph that a question was asked of."""
    asked = read_squad(path, get_tokenizer(configs[0].tokenizer).tokenize)
    paragraphs = [*dict.fromkeys(question.text for question in asked)]
    asked = asked[:: max(1, len(asked) // most) if most else 1]
    places = {text: place for place, text in enumerate(paragraphs)}
    wanted = np.array([places[question.text] for question in asked])
    questions = [" ".join(question.question) for question in asked]
    print(f"\n{len(questions):,} questions, {len(paragraphs):,} paragraphs\n")

    by_words = bm25(paragraphs, questions)
    ranks: dict[str, Ranks] = {} if by_words is None else {"BM25": ranked(by_words)}
    for config in configs:
        contexts = embed(model, config, as_passages(config, paragraphs))
        queries = embed(model, config, as_passages(config, questions))
        for way in WAYS:
            whitening = estimate([contexts], dim=contexts.shape[1], way=way)
            scores = whitening.apply(queries) @ whitening.apply(contexts).T
            ranks[named(config, way)] = ranked(scores)
        if by_words is not None:
            both = standard(by_words) + WEIGHT * standard(scores)  # the last way is zca
            ranks[f"BM25 and {named(config, WAYS[-1])}"] = ranked(both)
    return [
        {
            "by": name,
            **{
                f"recall@{k}": round(float((own[range(len(wanted)), wanted] < k).mean()), 4)
                for k in (1, K)
            },
        }
        for name, own in ranks.items()
    ]


def measure_stsb(
    model: elmokit.Embedder, configs: list[IndexConfig], path: Path
) -> list[dict[str, object]]:
    """How much the likeness of two sentences by each way agrees with what people said."""
    pairs = read_stsb(path, get_tokenizer(configs[0].tokenizer).tokenize)
    first, second = ([texts[n] for texts in (p.texts for p in pairs)] for n in (0, 1))
    gold = [pair.score for pair in pairs]
    print(f"\n{len(pairs):,} pairs\n")
    rows: list[dict[str, object]] = []

    def add(name: str, scores: npt.NDArray[np.floating]) -> None:
        rows.append({"by": name, "Spearman": round(spearman(gold, scores), 4)})

    by_words = bm25(first, second)
    if by_words is not None:  # how well the one finds the other, both ways
        add("BM25", np.diag(by_words) + np.diag(bm25(second, first)))
    for config in configs:
        one, other = (embed(model, config, as_passages(config, side)) for side in (first, second))
        for way in WAYS:
            whitening = estimate([one, other], dim=one.shape[1], way=way)
            add(named(config, way), (whitening.apply(one) * whitening.apply(other)).sum(1))
    return rows


def named(config: IndexConfig, way: str) -> str:
    return f"layers {config.layers}, pooling {config.pooling}, {way}"


def embed(model: elmokit.Embedder, config: IndexConfig, passages: Iterator[Passage]) -> Vectors:
    """The vectors of passages, before any whitening."""
    parts = []
    while some := [*islice(passages, PASSAGES_AT_ONCE)]:
        parts.append(embed_passages(config, model, some)[1])
    return np.concatenate(parts)


def as_passages(config: IndexConfig, texts: Sequence[str]) -> Iterator[Passage]:
    for text in texts:
        sentences = tuple(map(tuple, config.tokenize(text)))
        yield Passage("", 0, 0, len(text), text, sentences)


def bm25(paragraphs: list[str], questions: list[str]) -> Vectors | None:
    """The scores of paragraphs by the words they share with questions."""
    try:
        import bm25s
    except ImportError:
        print("BM25 is left out: pip install bm25s\n")
        return None
    index = bm25s.BM25()
    index.index(
        bm25s.tokenize(paragraphs, stopwords="en", show_progress=False), show_progress=False
    )
    split = bm25s.tokenize(questions, stopwords="en", return_ids=False, show_progress=False)
    return np.stack([index.get_scores(words) for words in split])


def ranked(scores: npt.NDArray[np.floating]) -> Ranks:
    """The place of each paragraph when the best comes first; of equals, the earlier paragraph."""
    order = np.argsort(-scores, 1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(scores.shape[1])[None], 1)
    return ranks


def standard(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """The scores of each question's paragraphs with mean 0 and variance 1."""
    centred = scores - scores.mean(1, keepdims=True)
    return centred / (centred.std(1, keepdims=True) + 1e-9)


def print_table(rows: list[dict[str, object]]) -> None:
    names = [*rows[0]]
    print("| " + " | ".join(names) + " |")
    print("|" + " --- |" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row[name]) for name in names) + " |")


if __name__ == "__main__":
    main()
