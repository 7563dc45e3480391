"""Content words, terms, and BM25 as another implementation computes it."""

import random

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.search.lexical import (
    LENGTH_SHARE,
    NO_STEMMER,
    SATURATION,
    TermStatistics,
    bm25,
    default_stemmer,
    get_stemmer,
    is_content_word,
    stop_words_of,
)
from elmokit.vocab import Vocabulary


@pytest.mark.parametrize(
    ("word", "terms"),
    [
        ("Paintings", ["paint"]),
        ("well-being", ["well", "be"]),
        ("U.S.", ["u", "s"]),
        ("10,000", ["10", "000"]),
        ("don't", ["don", "t"]),
        ("snake_case", ["snake", "case"]),
        ("ﬁlm", ["film"]),
        ("ＮＦＬ", ["nfl"]),
        ("STRASSE", ["strass"]),
        ("हिन्दी", ["हिन्दी"]),
        ("北京", ["北京"]),
        ("--", []),
        ("$", []),
        ("\u0301", []),
        ("a\0b", ["a", "b"]),
        ("x" * 5000, ["x" * 100]),
    ],
)
def test_a_word_is_terms_in_lower_case_without_punctuation_and_endings(word, terms):
    assert get_stemmer("english").terms([word]) == terms
    assert get_stemmer("english").terms([word, "and", word]) == [*terms, "and", *terms]


def test_a_term_has_no_character_that_separates_terms_where_they_are_stored():
    words = ["".join(map(chr, range(start, start + 64))) for start in range(0, 0xD800, 64)]
    for term in get_stemmer(NO_STEMMER).terms(words):
        assert not {*term} & {*' "\0\t\n_-'}
        assert term == term.casefold()


def test_the_stemmer_is_that_of_the_tokenizers_language():
    assert default_stemmer("moses") == "english"
    assert default_stemmer("moses-de") == "german"
    assert get_stemmer("german").terms(["Häuser", "Haus"]) == ["haus", "haus"]
    for tokenizer in ("moses-xx", "spaces", "jieba", "icu", "characters"):
        assert default_stemmer(tokenizer) == NO_STEMMER
    assert get_stemmer(NO_STEMMER).terms(["Paintings"]) == ["paintings"]


def test_an_unknown_stemmer_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="no stemmer is called 'klingon', expected none or one of"):
        get_stemmer("klingon")


def test_bm25_is_that_of_bm25s_as_a_share_of_the_weights():
    bm25s = pytest.importorskip("bm25s", reason="needs bm25s, which is not installed")
    rng = random.Random(0)
    passages = [rng.choices("abcdefgh", k=rng.randint(1, 30)) for _ in range(50)]
    frequencies = {term: sum(term in passage for passage in passages) for term in "abcdefgh"}
    length = sum(map(len, passages)) / len(passages)
    statistics = TermStatistics(len(passages), length, frequencies)
    index = bm25s.BM25(k1=SATURATION, b=LENGTH_SHARE, method="lucene")
    index.index(passages, show_progress=False)
    for query in ("a", "bd", "aceg", "abcdefgh"):
        weights = {term: statistics.weight(term) for term in query}
        scores = [bm25(passage, weights, average_length=length) for passage in passages]
        expected = index.get_scores([*query]) * (SATURATION + 1) / sum(weights.values())
        np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_a_passage_of_average_length_with_every_term_once_has_the_score_1():
    weights = {"a": 3.0, "b": 1.0}
    assert bm25(["b", "c", "a"], weights, average_length=3) == pytest.approx(1)
    assert bm25(["a", "c", "d"], weights, average_length=3) == pytest.approx(0.75)
    assert bm25(["c"], weights, average_length=3) == 0
    assert bm25(["a"], {}, average_length=3) == 0


def test_a_rare_term_weighs_more_and_a_frequent_one_never_less_than_nothing():
    statistics = TermStatistics(100, 9.0, {"the": 100, "bank": 10})
    assert 0 < statistics.weight("the") < statistics.weight("bank") < statistics.weight("unknown")


@pytest.mark.parametrize("word", ["the", "The", "WAS", "n't", "don’t", "'s", ".", "--", "''"])
def test_stop_words_and_punctuation_are_no_content_words(word):
    assert not is_content_word(word)


@pytest.mark.parametrize(
    "word", ["US", "IT", "WHO", "bank", "1915", "Willow", "银行", "well-being"]
)
def test_other_words_are_content_words(word):
    assert is_content_word(word)


def test_the_most_frequent_words_of_a_vocabulary_are_no_content_words():
    vocabulary = Vocabulary([*(f"der{n}" for n in range(50)), "Bank", "fluss"])
    assert not is_content_word("Der49", vocabulary)
    assert is_content_word("fluss", vocabulary)
    assert is_content_word("unbekannt", vocabulary)
    assert is_content_word("der0", Vocabulary(["der0", "fluss"]))  # too small to tell


def test_english_stop_words_are_those_of_english_text_only():
    assert is_content_word("die", stop_words=stop_words_of("moses-de"))
    assert is_content_word("not", stop_words=stop_words_of("moses-de"))
    for tokenizer in ("moses", "moses-en", "spaces"):
        assert not is_content_word("not", stop_words=stop_words_of(tokenizer))


def test_a_word_whose_stem_is_empty_has_no_term():
    terms = get_stemmer("arabic").terms(["ال", "كتاب", "و"])
    assert terms
    assert all(terms)
