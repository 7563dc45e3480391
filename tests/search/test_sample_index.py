"""The index of the sample sentences is in memory, and changed as any index is."""

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.search.passage_vectors import IndexConfig
from elmokit.search.passages import Passage, VectorSource
from elmokit.search.sample_index import MemoryStore, sample_index
from elmokit.search.store import Counts
from elmokit.whitening import Whitening


@pytest.fixture
def index(model):
    return sample_index(model)


def test_the_sample_is_searched_exactly(index):
    hits = index.search("A bat hung upside down from the beam of the barn.", 200, mode="semantic")
    assert len(hits) == len(index) == 138
    assert hits[0].score == pytest.approx(1, abs=1e-5)
    assert (hits[0].passage.file, hits[0].passage.line) == ("sample.txt", 45)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_a_failed_add_leaves_a_store_in_memory_unchanged(index, tmp_path):
    before = index.search("a violin", k=5)
    (tmp_path / "bad.txt").write_bytes(b"A good line.\n\xff\n")
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        index.add([str(tmp_path / "bad.txt")])
    assert index.search("a violin", k=5) == before
    (tmp_path / "new.txt").write_bytes(b"A good line.\n")
    index.add([str(tmp_path / "new.txt")])
    (passage,) = (hit.passage for hit in index.search("A good line.", k=1))
    assert (passage.id, passage.text) == (139, "A good line.")
    assert index.passages_of(passage.file) == [139]
    index.delete([139])
    with pytest.raises(InputError, match="no passage has the id 139"):
        index.delete([139])
    assert len(index) == 138


def test_occurrences_of_a_word_are_found_in_memory_too():
    config = IndexConfig("m", "spaces", "words", "mean", "mean", "none", "flat")
    store = MemoryStore("s", config, Whitening.fit_batches([], dim=2, method="none"))
    vectors = store.whitening.transform(np.array([[1.0, 0], [0, 1], [1, 1]]))
    passage = Passage("f", 1, 0, 9, "play Play it", (("play", "Play", "it"),))
    store.add(
        [passage], [VectorSource(0, word, n) for n, word in enumerate(passage.words)], vectors
    )
    assert store.counts() == Counts(1, 3, 1)
    hits = store.nearest_occurrences("PLAY", vectors[1], 9)
    assert [(hit.passage.word, hit.passage.word_index) for hit in hits] == [
        ("Play", 1),
        ("play", 0),
    ]
    assert store.nearest_occurrences("sing", vectors[1], 9) == []
