"""Sentences that ship become an index, so that there is something to search."""

from dataclasses import replace
from pathlib import Path

from elmokit.embedder import Embedder
from elmokit.files import TextFile
from elmokit.search.index import Index
from elmokit.search.memory import MemoryStore
from elmokit.search.passages import read_passages
from elmokit.search.recipe import Recipe, read_vectors, state_of
from elmokit.whitening import estimate

_SAMPLE = Path(__file__).with_name("sample.txt")


def index_sample(embedder: Embedder) -> Index:
    """An index in memory of some hundred short sentences about many things."""
    model, split = embedder.pretrained.fingerprint(), embedder.pretrained.tokenizer
    recipe = Recipe(model, split, "sentences", "mean", "mean", "zca", "flat", state_of(embedder))
    files = [TextFile(str(_SAMPLE))]
    passages = [
        replace(passage, file=_SAMPLE.name)  # where it is installed is nobody's business
        for passage in read_passages(files, split=split, unit="sentences")
    ]
    rows, vectors = read_vectors(recipe, embedder, passages)
    whitening = estimate([vectors], dim=recipe.dim(embedder), way="zca")
    store = MemoryStore("the sample", recipe, whitening)
    store.add(passages, rows, whitening.apply(vectors))
    return Index(store, embedder)
