"""A small index of the sentences that ship with the package, for a service without its own."""

from dataclasses import replace
from pathlib import Path

from elmokit.embedder import Embedder
from elmokit.files import TextFile
from elmokit.search.index import Index
from elmokit.search.passage_vectors import IndexConfig, embed_passages, start_state
from elmokit.search.passages import read_passages
from elmokit.search.store import MemoryStore
from elmokit.whitening import Whitening

_SENTENCES = Path(__file__).with_name("sample.txt")


def sample_index(embedder: Embedder) -> Index:
    """An index in memory of 138 short sentences about many things."""
    config = IndexConfig(
        model=embedder.pretrained.fingerprint(),
        tokenizer=embedder.pretrained.tokenizer,
        unit="sentences",
        layers="top",
        pooling="mean" if embedder.pretrained.vocabulary is None else "idf",
        whitening="centre",  # too few sentences to estimate a covariance matrix
        kind="flat",
        state=start_state(embedder),
    )
    files = [TextFile(str(_SENTENCES))]
    passages = [
        replace(passage, file=_SENTENCES.name)  # a service does not show where it is installed
        for passage in read_passages(files, tokenizer=config.tokenizer, unit=config.unit)
    ]
    sources, vectors = embed_passages(config, embedder, passages)
    whitening = Whitening.fit_batches([vectors], dim=config.dim(embedder), method=config.whitening)
    store = MemoryStore("the sample", config, whitening)
    store.add(passages, sources, whitening.transform(vectors))
    return Index(store, embedder)
