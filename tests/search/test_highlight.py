"""Content words of found passages are highlighted where they say what the query says."""

import pytest

import elmokit
from elmokit.search.highlight import highlight, is_content_word
from elmokit.search.index import Index
from elmokit.search.sample_index import sample_index
from elmokit.vocab import Vocabulary

LINES = ["A bank lent money , twice .", "The bank of a river .", "- - -", "Nothing of the kind ."]


@pytest.fixture(params=["sentences", "paragraphs"])
def index(request, model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    unit = request.param
    with Index.build(tmp_path / "index", [str(text)], model, unit=unit, layers="top") as index:
        yield index


def highlighted(index, query):
    """The passages found for a query, as words, and the positions of the highlighted ones."""
    hits = index.search(query, k=4)
    passages = [index.config.tokenize(hit.passage.text) for hit in hits]
    words = [[word for sentence in passage for word in sentence] for passage in passages]
    scores = [hit.score for hit in hits]
    positions = highlight(index, query, index.encode(query), passages, scores)
    return [*zip(words, positions, strict=True)]


def test_content_words_close_to_the_query_and_one_of_its_words_are_highlighted(index, model):
    query = "a bank money ?"
    results = highlighted(index, query)
    query_vectors = index.whitening.transform(model.embed([query.split()], layers="top")[0][0][1:3])
    scores = [hit.score for hit in index.search(query, k=4)]
    for (words, positions), score in zip(results, scores, strict=True):
        vectors = index.whitening.transform(model.embed([words], layers="top")[0][0])
        expected = [
            n
            for n, (word, vector) in enumerate(zip(words, vectors, strict=True))
            if is_content_word(word)
            and (
                (
                    max(query_vectors @ vector) >= 0.6
                    and index.encode(query) @ vector >= 0.75 * score
                )
                or (word == "bank" and query_vectors[0] @ vector >= 0.5)
                or (word == "money" and query_vectors[1] @ vector >= 0.5)
            )
        ]
        assert positions == expected
    assert any(positions for _, positions in results)


# Queries to which the sample has good results, with the highlighted words of the first of them;
# and queries to which it has none.
GOOD = {
    "parliament and president": [{"president", "minister"}, {"parliament"}, set()],
    "a dentist pulled my tooth": [{"dentist", "pulled", "tooth"}, set(), set()],
    "a train to the city": [set(), {"train"}, set()],
    "a painter of landscapes": [{"painter"}, set()],
    "The soup needs more pepper and a little lemon.": [
        {"soup", "needs", "pepper", "little", "lemon"}, set(), {"needs", "little"},
    ],
}  # fmt: skip
POOR = ["zebra", "dinosaurs", "he is very angry", "blockchain mining fees"]


@pytest.fixture(scope="module")
def sample():
    return sample_index(elmokit.load(threads=1))


@pytest.mark.parametrize("query", GOOD)
def test_words_of_good_results_are_highlighted_in_the_english_sample(sample, query):
    results = highlighted(sample, query)[: len(GOOD[query])]
    assert [{words[n] for n in positions} for words, positions in results] == GOOD[query]


@pytest.mark.parametrize("query", POOR)
def test_nothing_is_highlighted_in_poor_results_of_the_english_sample(sample, query):
    assert not any(positions for _, positions in highlighted(sample, query))


@pytest.mark.parametrize("query", ["?", "What is it ?"])
def test_a_query_without_content_words_highlights_nothing(index, query):
    assert not any(positions for _, positions in highlighted(index, query))


@pytest.mark.parametrize("word", ["the", "The", "WAS", "n't", "don’t", "'s", ".", "--", "''"])
def test_stop_words_and_punctuation_are_no_content_words(word):
    assert not is_content_word(word)


@pytest.mark.parametrize("word", ["bank", "1915", "Willow", "银行", "well-being"])
def test_other_words_are_content_words(word):
    assert is_content_word(word)


def test_the_most_frequent_words_of_a_vocabulary_are_no_content_words():
    vocabulary = Vocabulary([*(f"der{n}" for n in range(50)), "Bank", "fluss"])
    assert not is_content_word("Der49", vocabulary)
    assert is_content_word("fluss", vocabulary)
    assert is_content_word("unbekannt", vocabulary)
    assert is_content_word("der0", Vocabulary(["der0", "fluss"]))  # too small to tell
