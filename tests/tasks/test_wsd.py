"""A word's sense is that whose uses are nearest; the first one, where nothing is known."""

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.tasks.datasets.example_records import SenseInstance, SenseTaggedSentence
from elmokit.tasks.wsd import SenseVectors, entry_of, evaluate_wsd, read_first_senses

MONEY, RIVER, LOAN = "bank%1:14:00::", "bank%1:17:01::", "loan%1:21:00::"


def sensed(words, place, *keys, pos="NN"):
    words = tuple(words.split())
    instance = SenseInstance("x", place, place, words[place], pos, keys)
    return SenseTaggedSentence("s", words, (instance,))


USES = [
    sensed("money in the bank", 3, MONEY),
    sensed("cash in the bank", 3, MONEY),
    sensed("grass on a bank .", 3, RIVER),
    sensed("trees on a bank .", 3, RIVER),
    sensed("trees on a bank !", 3, RIVER),
]
INDEX = f"{RIVER} 09213565 1 25\n{MONEY} 08420278 2 20\n{LOAN} 13398953 1 9\n"


def test_the_nearest_sense_is_chosen_and_the_first_where_nothing_is_known(model, tmp_path):
    (tmp_path / "index.sense").write_text(INDEX)
    first = read_first_senses(tmp_path / "index.sense")
    vectors = SenseVectors(model).fit(USES)
    found = evaluate_wsd(vectors, first, [*USES, sensed("a loan", 1, LOAN)], frequency_weight=0)
    assert (found.instances, found.unknown) == (6, 1)
    assert found.first_sense == 4 / 6  # three rivers and the loan
    assert found.most_frequent == 4 / 6
    assert found.layers[0] == found.first_sense or found.layers[0] == 3 / 6  # one vector for all
    assert found.layers[1:] == [1.0, 1.0]
    assert vectors.predict([sensed("a loan", 1, LOAN)]) == [[None] * 3]


def test_a_common_sense_is_nearer_the_more_that_counts(model):
    vectors = SenseVectors(model).fit(USES)
    asked = [sensed("money in the bank", 3, MONEY)]
    assert vectors.predict(asked, frequency_weight=0)[0][1:] == [MONEY, MONEY]
    assert vectors.predict(asked, frequency_weight=100.0) == [[RIVER] * 3]  # three uses against two
    with pytest.raises(InputError, match="frequency_weight is inf, expected"):
        vectors.predict(asked, frequency_weight=float("inf"))
    with pytest.raises(InputError, match=r"frequency_weight is -1\.0, expected"):
        vectors.predict(asked, frequency_weight=-1.0)


def test_first_senses_are_those_of_wordnet(tmp_path):
    (tmp_path / "index.sense").write_text(INDEX)
    wordnet = read_first_senses(tmp_path / "index.sense")
    assert wordnet[entry_of(USES[0].instances[0])] == RIVER
    assert entry_of(sensed("bank", 0, MONEY, pos="VERB").instances[0]) not in wordnet
    with pytest.raises(InputError, match="wordnet-sense-index"):
        read_first_senses(tmp_path / "none")
    for wrong in ("bank", "say%2:32:00:: 01009240 ² 400", f"say%2:32:00:: 01 {'1' * 5000} 4"):
        (tmp_path / "index.sense").write_text(wrong + "\n")
        with pytest.raises(FormatError, match=r"line 1: not a line of WordNet's index.sense"):
            read_first_senses(tmp_path / "index.sense")
    (tmp_path / "index.sense").write_bytes(b"\xff\n")
    with pytest.raises(InputError, match=r"index.sense, line 1: not UTF-8"):
        read_first_senses(tmp_path / "index.sense")


@pytest.mark.parametrize(
    ("pos", "kind"),
    [("NN", "n"), ("NNP", "n"), ("NOUN", "n"), ("VB", "v"), ("VERB", "v"), ("JJ", "a"),
     ("ADJ", "a"), ("RB", "r"), ("ADV", "r"), ("IN", "")],
)  # fmt: skip
def test_kinds_of_words_are_the_same_in_all_files(pos, kind):
    assert entry_of(SenseInstance("x", 0, 0, "Well", pos, ())) == ("well", kind)


def test_no_instance_is_refused(model):
    with pytest.raises(InputError, match="no instance is given"):
        evaluate_wsd(SenseVectors(model), {}, [])


def test_sense_vectors_are_kept_between_calls(model, tmp_path, monkeypatch):
    queries = [sensed("money in the bank", 3, MONEY), sensed("a loan", 1, LOAN)]
    expected = SenseVectors(model).fit(USES).predict(queries)
    SenseVectors(model).fit(USES, cache=tmp_path)
    assert len([*tmp_path.iterdir()]) == 1
    with monkeypatch.context() as patched:
        patched.setattr(SenseVectors, "_instance_vectors", None)  # no vector is computed again
        cached = SenseVectors(model).fit(iter(USES), cache=tmp_path)
    assert cached.predict(queries) == expected
    assert cached.most_frequent(USES[0].instances[0]) == RIVER
    SenseVectors(model).fit(USES[1:], cache=tmp_path)  # another text
    assert len([*tmp_path.iterdir()]) == 2


def test_a_damaged_cache_is_computed_again(model, tmp_path):
    SenseVectors(model).fit(USES, cache=tmp_path)
    for damaged in tmp_path.iterdir():
        content = damaged.read_bytes()
        for junk in (b"", content[:-1], b"junk"):
            damaged.write_bytes(junk)
            vectors = SenseVectors(model).fit(USES, cache=tmp_path)
            assert vectors.most_frequent(USES[0].instances[0]) == RIVER
            assert damaged.read_bytes() == content
