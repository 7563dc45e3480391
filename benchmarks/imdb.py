"""Sentiment of film reviews by logistic regression: TF-IDF, ELMo vectors, and both side by side.

    python benchmarks/imdb.py train.tsv dev.tsv

Each line of a file is a label, a tab and a review; files may be compressed. The strength of the
regularisation, and the layers and the pooling of ELMo, are chosen by cross-validation on the first
file; the model runs once over each review.
"""

import argparse
import time
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline

from elmokit.integrations.sklearn import ElmoVectorizer
from elmokit.tasks.datasets.lines import numbered_lines

STRENGTHS = [1, 10, 100]  # of the inverse regularisation; all vectors have length 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--texts", type=int, help="reviews to read from each file")
    parser.add_argument("--model", help="a name or a folder; else the English model")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    train, dev = (read(path)[: arguments.texts] for path in (arguments.train, arguments.dev))
    elmo = ElmoVectorizer(
        arguments.model, whitening="zca", threads=arguments.threads, cache_bytes=2**30
    )
    tfidf = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    both = FeatureUnion([("tfidf", tfidf), ("elmo", elmo)])
    grid = {"layers": ["mean", "concat"], "pooling": ["mean", "max"]}
    print(f"{len(train)} reviews to train on, {len(dev)} held out\n")
    print("| vectors | chosen | cross-validation | held out | seconds |")
    print("| --- | --- | --- | --- | --- |")
    measure("TF-IDF", tfidf, train, dev)
    elmo.set_params(**measure("ELMo", elmo, train, dev, grid))
    measure("both", both, train, dev)


def measure(name, vectorizer, train, dev, grid=None):
    """Print a line of the table; the settings of the vectorizer that were chosen."""
    started = time.perf_counter()
    pipeline = Pipeline([("vectors", vectorizer), ("regression", LogisticRegression(max_iter=500))])
    settings = {f"vectors__{name}": values for name, values in (grid or {}).items()}
    search = GridSearchCV(pipeline, {**settings, "regression__C": STRENGTHS}, cv=3)
    search.fit(*zip(*train, strict=True))
    accuracy = search.score(*zip(*dev, strict=True))
    chosen = {name.split("__")[1]: value for name, value in search.best_params_.items()}
    print(
        f"| {name} | {', '.join(f'{key} {value}' for key, value in chosen.items())} "
        f"| {search.best_score_:.3f} | {accuracy:.3f} | {time.perf_counter() - started:.0f} |",
        flush=True,
    )
    return {name: chosen[name] for name in grid or {}}


def read(path):
    """(review, label) of each line."""
    rows = [line.text.split("\t", 1) for line in numbered_lines(path)]
    return [(review, label) for label, review in rows]


if __name__ == "__main__":
    main()
