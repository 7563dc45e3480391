"""Searching by words and by meaning, in a folder, in a database and in memory alike."""

import sqlite3

import numpy as np
import pytest

from elmokit.errors import FormatError, InputError
from elmokit.files import TextFile
from elmokit.search import Index, read_index_info
from elmokit.search.index_build import fit_lexical_part
from elmokit.search.lexical import bm25
from elmokit.search.passage_vectors import embed_passages
from elmokit.search.passages import read_passages
from elmokit.search.pg_connection import PostgresAddress
from elmokit.search.ranking import BM25_WEIGHT, COSINE_WEIGHT, WORD_MATCH_WEIGHT
from elmokit.search.sample_index import MemoryStore

ART = [
    "A painter painted the sea. The sea was calm, and the painting is in a museum.",
    "Museums lend paintings of rivers.",
    "The river froze.",
]
NATURE = ["Rivers flow into the sea.", "Otters swim in rivers and otters eat fish.", "- - -"]
QUERY = "Which painters paint rivers?"


@pytest.fixture
def texts(tmp_path):
    """Two files of paragraphs."""
    for name, lines in (("art", ART), ("nature", NATURE)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return [str(tmp_path / f"{name}.txt") for name in ("art", "nature")]


@pytest.fixture
def index(model, texts, location):
    with Index.build(location("index"), texts, model, unit="paragraphs") as built:
        yield built


def lines_of(hits):
    return [hit.passage.text for hit in hits]


def test_it_is_hybrid_unless_something_else_is_asked_for(index):
    assert index.mode == "hybrid"
    assert index.search(QUERY) == index.search(QUERY, mode="hybrid")
    with pytest.raises(InputError, match="mode is 'bm25', expected one of hybrid, semantic, lex"):
        index.search(QUERY, mode="bm25")


def test_a_lexical_search_is_bm25_of_all_passages(index):
    hits = index.search(QUERY, mode="lexical")
    passages = [index.terms(index.config.words(line)) for line in ART + NATURE]
    length = sum(map(len, passages)) / len(passages)
    statistics = index.store.term_statistics(["painter", "paint", "river"])
    assert (statistics.passages, statistics.average_length) == (6, length)
    assert statistics.frequencies == {"painter": 1, "paint": 2, "river": 4}
    weights = {term: statistics.weight(term) for term in statistics.frequencies}
    scores = [bm25(passage, weights, average_length=length) for passage in passages]
    best = [n for n in np.argsort(-np.array(scores), kind="stable") if scores[n]]
    assert lines_of(hits) == [(ART + NATURE)[n] for n in best]
    assert [hit.score for hit in hits] == pytest.approx([scores[n] for n in best])
    assert all(hit.bm25 == hit.score and hit.cosine is None for hit in hits)
    assert lines_of(index.search(QUERY, k=2, mode="lexical")) == lines_of(hits)[:2]


def test_a_semantic_search_has_the_cosine_of_the_nearest_sentence(index):
    hits = index.search(QUERY, mode="semantic")
    assert sorted(lines_of(hits)) == sorted(ART + NATURE)
    for hit in hits:
        sentences = index.config.tokenize(hit.passage.text)
        cosines = [index.encode(" ".join(words)) @ index.encode(QUERY) for words in sentences]
        assert hit.score == hit.cosine == pytest.approx(max(cosines), abs=5e-3)
        assert hit.bm25 is hit.word_match is None
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert index.search(QUERY, k=2, mode="semantic") == hits[:2]


def test_a_hybrid_score_is_the_weighted_sum_of_its_parts(index):
    hits = index.search(QUERY)
    lexical = {hit.passage.id: hit.score for hit in index.search(QUERY, mode="lexical")}
    semantic = {hit.passage.id: hit.score for hit in index.search(QUERY, mode="semantic")}
    assert sorted(lines_of(hits)) == sorted(ART + NATURE)
    assert pytest.approx(1) == BM25_WEIGHT + WORD_MATCH_WEIGHT + COSINE_WEIGHT
    for hit in hits:
        assert hit.bm25 == pytest.approx(lexical.get(hit.passage.id, 0))
        assert hit.cosine == pytest.approx(semantic[hit.passage.id], abs=1e-6)
        assert 0 <= hit.word_match <= 1.000001
        parts = BM25_WEIGHT * hit.bm25 + COSINE_WEIGHT * hit.cosine
        assert hit.score == pytest.approx(parts + WORD_MATCH_WEIGHT * hit.word_match)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    (same,) = index.search("Rivers flow into the sea.", k=1)
    assert same.word_match == pytest.approx(1)
    assert same.passage.text == "Rivers flow into the sea."


def test_a_query_without_content_words_matches_all_its_words(index):
    hits = index.search("into the", k=1, mode="lexical")
    assert lines_of(hits) == ["Rivers flow into the sea."]
    assert index.search("into the", k=1)[0].word_match > 0
    assert index.search("?!", mode="lexical") == []
    assert len(index.search("?!")) == 6
    with pytest.raises(InputError, match="has no word"):
        index.search(" ", mode="lexical")


@pytest.mark.parametrize("k", [0, -1])
def test_fewer_than_one_passage_is_refused(index, k):
    for mode in ("hybrid", "semantic", "lexical"):
        with pytest.raises(InputError, match=f"k is {k}, expected 1 passage or more"):
            index.search(QUERY, k, mode=mode)


def test_an_index_that_another_process_upgraded_is_to_be_opened_again(index, model, location):
    with Index.open(location("index"), model) as other:
        other.upgrade(stemmer="none")
    for mode in ("hybrid", "lexical"):
        with pytest.raises(FormatError, match="made again since it was opened; open it again"):
            index.search(QUERY, mode=mode)
    index.search(QUERY, mode="semantic")


def test_a_word_that_is_repeated_counts_as_often(index):
    once, twice, four_times = (
        {hit.passage.id: hit.word_match for hit in index.search(text)}
        for text in ("otters rivers", "otters otters rivers", "otters rivers " * 2000)
    )
    assert four_times == pytest.approx(once, abs=1e-5)
    assert twice != pytest.approx(once, abs=1e-3)


def test_every_term_of_a_long_query_counts(index):
    words = " ".join(f"word{n}" for n in range(300))
    (hit,) = index.search(f"{words} otters", mode="lexical")
    assert hit.passage.text.startswith("Otters")
    assert 0 < hit.score < 0.01


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
def test_files_are_filtered_by_name_and_by_glob(index, texts, mode):
    def found(*files):
        return {*lines_of(index.search("A river, the sea", mode=mode, files=files))}

    everything = found()
    assert found(texts[0]) == everything & {*ART}
    assert found("*nature*") == everything & {*NATURE}
    assert found("*nature.txt", "*art.txt") == found("*") == everything
    assert index.search("river", 1, mode=mode, files=texts[0]) == index.search(
        "river", 1, mode=mode, files=[texts[0]]
    )
    with pytest.raises(InputError, match=r"no file of the index matches \*\.pdf, no\.txt"):
        found("*.pdf", "no.txt")


def test_a_file_whose_name_is_a_glob_is_found_by_its_name(index, tmp_path):
    path = tmp_path / "a [draft].txt"
    path.write_text("Whales sing.\n")
    index.add([str(path)])
    assert lines_of(index.search("whales", files=[str(path)])) == ["Whales sing."]


def test_a_filter_is_applied_before_the_best_are_chosen(index, model, tmp_path):
    (tmp_path / "many.txt").write_text("".join(f"River {n}.\n" for n in range(150)))
    index.add([str(tmp_path / "many.txt")])
    for mode in ("hybrid", "semantic", "lexical"):
        hits = index.search("River", k=3, mode=mode, files=["*nature.txt"])
        assert {hit.passage.file for hit in hits} == {str(tmp_path / "nature.txt")}
        assert len(hits) == (2 if mode == "lexical" else 3)


def test_both_parts_follow_when_passages_are_added_and_deleted(index, model, location, tmp_path):
    before = index.search("otters in the sea", k=9), index.search("whales", mode="lexical")
    (tmp_path / "new.txt").write_text("Whales and whales swim in the sea.\nA whale sings.\n")
    index.add([str(tmp_path / "new.txt")])
    assert index.store.term_statistics(["whale", "sea"]).frequencies == {"whale": 2, "sea": 3}
    assert len(index.search("whales", mode="lexical")) == 2
    assert index.search("Whales swim", k=1)[0].bm25 > 0
    with Index.open(location("index"), model) as opened:
        assert opened.mode == "hybrid"
        assert len(opened.search("whales", mode="lexical")) == 2
        opened.delete(opened.passages_of(str(tmp_path / "new.txt")))
    after = index.search("otters in the sea", k=9), index.search("whales", mode="lexical")
    for one, other in zip(before, after, strict=True):
        assert lines_of(one) == lines_of(other)
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-6)
    assert index.store.term_statistics(["whale", "sea"]).frequencies.get("whale", 0) == 0


def test_a_failed_add_leaves_both_parts_unchanged(index, model, tmp_path):
    model.tokens_per_batch = 1
    (tmp_path / "bad.txt").write_bytes(b"Whales sing.\n" * 5 + b"\xff\n")
    with pytest.raises(InputError, match="line 6: not UTF-8"):
        index.add([str(tmp_path / "bad.txt")])
    assert index.search("whales", mode="lexical") == []
    statistics = index.store.term_statistics(["whale"])
    assert (statistics.passages, statistics.frequencies.get("whale", 0)) == (6, 0)


def test_a_paragraph_may_have_one_vector_only(model, texts, location):
    build = Index.build(location("i"), texts, model, unit="paragraphs", vector_per="passage")
    with build as index:
        assert index.store.counts().vectors == len(index) == 6
        assert len(index.search(QUERY, mode="semantic")) == 6
    with Index.build(location("j"), texts, model, unit="paragraphs") as index:
        assert index.config.vector_per == "sentence"
        assert (index.store.counts().vectors, len(index)) == (7, 6)


def test_passages_with_many_sentences_do_not_hide_others(model, location, tmp_path):
    (tmp_path / "t.txt").write_text("The sea. " * 200 + "\nThe seas.\nA sea of sand.\nOtters.\n")
    with Index.build(location("i"), [str(tmp_path / "t.txt")], model, unit="paragraphs") as index:
        assert len(index.search("The sea.", k=4, mode="semantic")) == 4


def test_a_stemmer_can_be_chosen(model, texts, location):
    with Index.build(location("i"), texts, model, stemmer="none") as index:
        assert len(index.search("rivers", mode="lexical")) == 3
    assert read_index_info(location("i")).stemmer == "none"
    with pytest.raises(InputError, match="no stemmer is called 'klingon'"):
        Index.build(location("j"), texts, model, stemmer="klingon")
    with pytest.raises(InputError, match="an index of words has no lexical part"):
        Index.build(location("j"), texts, model, unit="words", stemmer="english")


def test_an_index_of_words_has_no_lexical_part(model, texts, location):
    with Index.build(location("w"), texts, model, unit="words") as index:
        assert (index.mode, index.store.lexical_part) == ("semantic", None)
        with pytest.raises(InputError, match="an index of words; give a word"):
            index.search("river", mode="lexical")
        with pytest.raises(InputError, match="an index of words, which has no lexical part"):
            index.upgrade()
        hits = index.search_word("river", "The river froze.", files=["*art.txt"])
        assert [hit.passage.text for hit in hits] == ["The river froze."]
        others = index.search_word("river", "The river froze.", 50, any_word=True, files=texts[1:])
        assert {hit.passage.file for hit in others} == {texts[1]}


@pytest.fixture
def as_0_2_left_it(request, location):
    """A function that removes the lexical part of an index."""

    def remove(name):
        tables = "lexical_part", "passage_terms", "terms", "frequencies"
        if isinstance(location(name), str):
            schema = PostgresAddress.from_url(location(name)).schema
            for table in tables:
                request.getfixturevalue("postgres").run(f"DROP TABLE IF EXISTS {schema}.{table}")
        else:
            connection = sqlite3.connect(location(name) / "passages.sqlite")
            for table in tables:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            connection.close()

    return remove


def test_an_index_of_0_2_is_searched_by_meaning_until_it_is_upgraded(
    index, model, location, as_0_2_left_it, tmp_path
):
    before = index.search(QUERY), index.search(QUERY, mode="semantic")
    as_0_2_left_it("index")
    (tmp_path / "new.txt").write_text("Whales sing.\n")
    with Index.open(location("index"), model) as old:
        assert old.mode == "semantic"
        assert old.search(QUERY) == before[1]
        for mode in ("hybrid", "lexical"):
            with pytest.raises(InputError, match=r"no lexical part for mode .*\(elmo index upgrad"):
                old.search(QUERY, mode=mode)
        old.add([str(tmp_path / "new.txt")])
        old.delete(old.passages_of(str(tmp_path / "new.txt")))
        assert read_index_info(location("index")).stemmer is None
        old.upgrade()
        assert old.mode == "hybrid"
    with Index.open(location("index"), model) as upgraded:
        assert lines_of(upgraded.search(QUERY)) == lines_of(before[0])
        scores = [hit.score for hit in upgraded.search(QUERY)]
        assert scores == pytest.approx([hit.score for hit in before[0]], abs=1e-6)
        upgraded.add([str(tmp_path / "new.txt")])
        assert lines_of(upgraded.search("whales", mode="lexical")) == ["Whales sing."]
        upgraded.upgrade(stemmer="none")  # again, with another
        assert upgraded.search("whale", mode="lexical") == []
    assert read_index_info(location("index")).stemmer == "none"


@pytest.mark.parametrize(
    "change", ["DELETE FROM {} WHERE id = 1", "UPDATE {} SET id = 7 WHERE id = 1"]
)
def test_an_index_that_an_earlier_version_changed_is_searched_by_meaning(
    index, model, location, request, change
):
    if isinstance(location("index"), str):
        schema = PostgresAddress.from_url(location("index")).schema
        request.getfixturevalue("postgres").run(change.format(f"{schema}.passages"))
    else:
        connection = sqlite3.connect(location("index") / "passages.sqlite")
        connection.execute(change.format("passages"))
        connection.commit()
        connection.close()
    with Index.open(location("index"), model) as opened:
        assert opened.mode == "semantic"
        opened.upgrade()
        assert opened.mode == "hybrid"
        assert opened.store.term_statistics(["painter"]).passages == len(opened)
        assert len(opened.search("painting", mode="lexical")) == len(opened) - 4


def test_a_store_in_memory_has_the_same_scores(index, model, texts):
    config, whitening = index.config, index.whitening
    files = [TextFile(text) for text in texts]
    passages = [*read_passages(files, tokenizer=config.tokenizer, unit=config.unit)]
    sources, vectors = embed_passages(config, model, passages)
    lines = (passage.text for passage in passages)
    part = fit_lexical_part(model, config, lines, stemmer="english")
    store = MemoryStore("memory", config, whitening, part)
    store.add(passages, sources, whitening.transform(vectors))
    memory = Index(store, model)
    for mode in ("hybrid", "semantic", "lexical"):
        for files in ([], ["*art.txt"]):
            one, other = (each.search(QUERY, mode=mode, files=files) for each in (index, memory))
            assert lines_of(one) == lines_of(other)
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=2e-3)
    memory.upgrade(stemmer="none")
    assert len(memory.search("rivers", mode="lexical")) == 3


def test_a_whitening_of_words_of_another_size_is_refused(index, model):
    part = index.store.lexical_part
    wrong = type(part)("english", type(part.word_whitening)(np.zeros(3), np.eye(3)))
    with pytest.raises(FormatError, match="vectors of 3 numbers, expected 6; build the index"):
        index._use_lexical_part(wrong)
