"""Words of found passages are highlighted that are the query's, or near what it says."""

import pytest

import elmokit
from elmokit.search import Index
from elmokit.search.highlight import highlight
from elmokit.search.lexical import is_content_word
from elmokit.search.sample_index import sample_index

LINES = ["A bank lent money , twice .", "The banks of a river .", "- - -", "Nothing of the kind ."]
LINES += ["Bank clerks rank monkeys , honey and banners .", "A bang ; a bunk , a blank page ."]


@pytest.fixture(params=["sentences", "paragraphs"])
def index(request, model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    unit = request.param
    with Index.build(tmp_path / "index", [str(text)], model, unit=unit, layers="top") as index:
        yield index


def highlighted(index, text, mode=None):
    """For each hit, its words and the positions of those that are highlighted: same, near."""
    query = index.query(text, mode)
    hits = index.rank(index.find(query, 9), 9)
    passages = [index.config.tokenize(hit.passage.text) for hit in hits]
    words = [[word for sentence in passage for word in sentence] for passage in passages]
    marks = highlight(index, query, hits, passages)
    assert marks == highlight(index, query, hits)
    return [(own, mark.same, mark.near) for own, mark in zip(words, marks, strict=True)]


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
def test_words_of_the_query_in_any_form_are_highlighted_in_every_mode(index, mode):
    for words, same, near in highlighted(index, "banking on the moneys ?", mode):
        forms = "bank", "Bank", "banks", "money"
        assert [words[n] for n in same] == [word for word in words if word in forms]
        assert not {*same} & {*near}
        assert mode != "lexical" or not near


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_other_words_close_to_the_query_and_one_of_its_words_are_near(index, model, mode):
    text = "a bank money ?"
    query = index.whitening.transform(model.embed([text.split()], layers="top")[0][0][1:3])
    hits, all_near = index.search(text, k=9, mode=mode), []
    for hit, (words, same, near) in zip(hits, highlighted(index, text, mode), strict=True):
        vectors = index.whitening.transform(model.embed([words], layers="top")[0][0])
        all_near += near
        assert near == [
            n
            for n, (word, vector) in enumerate(zip(words, vectors, strict=True))
            if is_content_word(word)
            and n not in same
            and max(query @ vector) >= 0.6
            and index.encode(text) @ vector >= 0.75 * hit.cosine
        ]
    assert all_near


# Queries to which the sample has good results, with the words of the first of them that are
# highlighted, those of the query and those near it; and queries to which it has none.
NONE = set()
GOOD = {
    "cooking soup with vegetables": [
        ({"soup"}, NONE), ({"cook"}, {"sugar"}), (NONE, {"fish", "wine"}), (NONE, {"cheese"}),
    ],
    "parliament and president": [({"president"}, {"minister"}), ({"parliament"}, NONE)],
    "a match between two teams": [({"team", "match"}, {"goal"}), ({"match"}, NONE)],
    "a dentist pulled my tooth": [({"dentist", "pulled", "tooth"}, NONE), ({"pulls"}, NONE)],
    "borrowing from banks": [({"borrowed", "bank"}, NONE), ({"bank"}, NONE)],
    "a painter of landscapes": [({"painter", "landscape"}, NONE)],
    "The soup needs more pepper and a little lemon.": [
        ({"soup", "needs", "pepper", "little", "lemon"}, NONE), ({"needs", "little"}, NONE),
    ],
}  # fmt: skip
POOR = ["zebra", "dinosaurs", "he is very angry", "blockchain mining fees"]


@pytest.fixture(scope="module")
def sample():
    return sample_index(elmokit.load(threads=1))


@pytest.mark.parametrize("query", GOOD)
def test_words_of_good_results_are_highlighted_in_the_english_sample(sample, query):
    results = highlighted(sample, query)[: len(GOOD[query])]
    marks = [({words[n] for n in same}, {words[n] for n in near}) for words, same, near in results]
    assert marks == GOOD[query]


@pytest.mark.parametrize("query", POOR)
def test_nothing_is_highlighted_in_poor_results_of_the_english_sample(sample, query):
    assert not any(same or near for _, same, near in highlighted(sample, query))


@pytest.mark.parametrize("query", ["?", "What is it ?"])
def test_a_query_without_content_words_highlights_nothing(index, query):
    assert not any(same or near for _, same, near in highlighted(index, query))


def test_without_a_lexical_part_the_words_themselves_are_highlighted(index):
    index._use_lexical_part(None)
    marks = [same for _, same, _ in highlighted(index, "BANK money", "semantic")]
    assert sorted(map(len, marks))[-3:] == [0, 1, 2]
