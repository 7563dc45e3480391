"""An index of vectors that elmo embed wrote, in a folder and in a database alike."""

from itertools import islice

import numpy as np
import pytest

from elmokit.bulk import embed_corpus
from elmokit.errors import InputError
from elmokit.search import Index
from elmokit.search.shard_vectors import ShardVectors

LINES = ["He will play the violin .", "", "The children play in the street .", "It rained $ 5 ."]
MORE = [f"Line {number} of {number * number % 17} more ." for number in range(40)]


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in LINES))
    (tmp_path / "b.txt").write_text("".join(line + "\n" for line in MORE))
    return [tmp_path / "a.txt", tmp_path / "b.txt"]


def embed(model, corpus, out, **options):
    embed_corpus(corpus, out, model=model.source, rows_per_shard=10, workers=1, **options)
    return out


def test_rows_are_found_as_those_of_an_index_built_from_text(model, corpus, tmp_path, location):
    shards = embed(model, corpus, tmp_path / "shards", layers="mean", pooling="mean")
    files = [str(path) for path in corpus]
    model.pretrained.__dict__["tokenizer"] = "spaces"
    options = {"layers": "mean", "pooling": "mean", "unit": "paragraphs", "vector_per": "passage"}
    with (
        Index.build_from_shards(location("index"), shards, model) as index,
        Index.build(location("other"), files, model, **options) as other,
    ):
        assert len(index) == len(other) == 43  # a blank line has no words
        for query in (LINES[2], "play the violin"):
            for mode in ("semantic", "hybrid"):
                hits = index.search(query, k=5, mode=mode)
                expected = other.search(query, k=5, mode=mode)
                assert [hit.passage for hit in hits] == [hit.passage for hit in expected]
                found = [hit.score for hit in hits]
                np.testing.assert_allclose(found, [hit.score for hit in expected], atol=1e-3)
        (hit,) = index.search("Line 7 of 15 more .", k=1, mode="semantic")
        passage = hit.passage
        assert (passage.file, passage.line, passage.text) == (files[1], 8, MORE[7])


def test_words_are_found_without_their_endings(model, tmp_path):
    (tmp_path / "a.txt").write_text("The bridges fell .\nA painter slept .\n")
    shards = embed(model, tmp_path / "a.txt", tmp_path / "shards", layers="mean", pooling="mean")
    with Index.build_from_shards(tmp_path / "index", shards, model) as index:
        assert index.store.lexical_part.stemmer == "english"  # of the model's tokenizer, moses
        assert [hit.passage.line for hit in index.search("bridge", mode="lexical")] == [1]
    with Index.build_from_shards(tmp_path / "none", shards, model, stemmer="none") as index:
        assert index.search("bridge", mode="lexical") == []


def test_words_of_rows_are_found_in_context(model, corpus, tmp_path, location):
    shards = embed(model, corpus, tmp_path / "shards", layers="top")
    with Index.build_from_shards(location("words"), shards, model) as index:
        assert index.config.unit == "words"
        hits = index.search_word("play", LINES[2], k=5)
        assert [hit.passage.text for hit in hits] == [LINES[2], LINES[0]]
        assert hits[0].passage.word_index == 2
        assert hits[0].score == pytest.approx(1, abs=2e-3)


def test_an_interrupted_build_goes_on(model, corpus, tmp_path, location, monkeypatch):
    shards = embed(model, corpus, tmp_path / "shards", layers="mean", pooling="mean")
    all_parts = ShardVectors.parts_after

    def three_parts(self, done):
        yield from islice(all_parts(self, done), 3)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ShardVectors, "parts_after", three_parts)
        with pytest.raises(KeyboardInterrupt):
            Index.build_from_shards(location("index"), shards, model)
    with pytest.raises(InputError, match="was started with"):
        Index.build_from_shards(location("index"), shards, model, whitening="none")
    with (
        Index.build_from_shards(location("index"), shards, model) as index,
        Index.build_from_shards(location("other"), shards, model) as whole,
    ):
        assert len(index) == len(whole) == 43
        assert index.search(LINES[0], k=9) == whole.search(LINES[0], k=9)


def test_vectors_that_no_query_can_be_compared_with_are_refused(model, corpus, tmp_path):
    shards = embed(model, corpus, tmp_path / "all", pooling="mean")
    with pytest.raises(InputError, match="all: has the layers 'all', expected those of an index"):
        Index.build_from_shards(tmp_path / "index", shards, model)
    (shards / "part-00000000.parquet").unlink()
    with pytest.raises(InputError, match="1 of 5 shards are not there yet; run the command"):
        Index.build_from_shards(tmp_path / "index", shards, model)
