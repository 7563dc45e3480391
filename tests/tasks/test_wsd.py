"""Word senses: the nearest sense vector, or WordNet's first sense for unknown words."""

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.tasks.datasets.example_records import SenseInstance, SenseTaggedSentence
from elmokit.tasks.wsd import SenseVectors, entry_of, evaluate_wsd, read_first_senses

MONEY, RIVER, LOAN = "bank%1:14:00::", "bank%1:17:01::", "loan%1:21:00::"


def sentence_with_sense(words, position, *keys, pos="NN"):
    words = tuple(words.split())
    instance = SenseInstance("x", position, position, words[position], pos, keys)
    return SenseTaggedSentence("s", words, (instance,))


SENTENCES = [
    sentence_with_sense("money in the bank", 3, MONEY),
    sentence_with_sense("cash in the bank", 3, MONEY),
    sentence_with_sense("grass on a bank .", 3, RIVER),
    sentence_with_sense("trees on a bank .", 3, RIVER),
    sentence_with_sense("trees on a bank !", 3, RIVER),
]
INDEX = f"{RIVER} 09213565 1 25\n{MONEY} 08420278 2 20\n{LOAN} 13398953 1 9\n"


def test_the_nearest_sense_is_predicted_or_else_the_first(model, tmp_path):
    (tmp_path / "index.sense").write_text(INDEX)
    first = read_first_senses(tmp_path / "index.sense")
    vectors = SenseVectors(model).fit(SENTENCES)
    scores = evaluate_wsd(
        vectors, first, [*SENTENCES, sentence_with_sense("a loan", 1, LOAN)], frequency_weight=0
    )
    assert (scores.instances, scores.unknown) == (6, 1)
    assert scores.first_sense == 4 / 6  # three times RIVER, and the loan
    assert scores.most_frequent == 4 / 6
    assert (
        scores.layers[0] == scores.first_sense or scores.layers[0] == 3 / 6
    )  # one vector for all senses
    assert scores.layers[1:] == [1.0, 1.0]
    assert vectors.predict([sentence_with_sense("a loan", 1, LOAN)]) == [[None] * 3]


def test_frequent_senses_are_preferred_by_their_weight(model):
    vectors = SenseVectors(model).fit(SENTENCES)
    queries = [sentence_with_sense("money in the bank", 3, MONEY)]
    assert vectors.predict(queries, frequency_weight=0)[0][1:] == [MONEY, MONEY]
    assert vectors.predict(queries, frequency_weight=100.0) == [
        [RIVER] * 3
    ]  # three occurrences, not two
    with pytest.raises(InputError, match="frequency_weight is inf, expected"):
        vectors.predict(queries, frequency_weight=float("inf"))
    with pytest.raises(InputError, match=r"frequency_weight is -1\.0, expected"):
        vectors.predict(queries, frequency_weight=-1.0)


def test_first_senses_are_those_of_wordnet(tmp_path):
    (tmp_path / "index.sense").write_text(INDEX)
    wordnet = read_first_senses(tmp_path / "index.sense")
    assert wordnet[entry_of(SENTENCES[0].instances[0])] == RIVER
    assert entry_of(sentence_with_sense("bank", 0, MONEY, pos="VERB").instances[0]) not in wordnet
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
    ("pos", "wordnet_pos"),
    [("NN", "n"), ("NNP", "n"), ("NOUN", "n"), ("VB", "v"), ("VERB", "v"), ("JJ", "a"),
     ("ADJ", "a"), ("RB", "r"), ("ADV", "r"), ("IN", "")],
)  # fmt: skip
def test_part_of_speech_tags_are_mapped_to_those_of_wordnet(pos, wordnet_pos):
    assert entry_of(SenseInstance("x", 0, 0, "Well", pos, ())) == ("well", wordnet_pos)


def test_no_instance_is_refused(model):
    with pytest.raises(InputError, match="no instance is given"):
        evaluate_wsd(SenseVectors(model), {}, [])


def test_sense_vectors_are_kept_between_calls(model, tmp_path, monkeypatch):
    queries = [
        sentence_with_sense("money in the bank", 3, MONEY),
        sentence_with_sense("a loan", 1, LOAN),
    ]
    expected = SenseVectors(model).fit(SENTENCES).predict(queries)
    SenseVectors(model).fit(SENTENCES, cache=tmp_path)
    assert len([*tmp_path.iterdir()]) == 1
    with monkeypatch.context() as patched:
        patched.setattr(SenseVectors, "_instance_vectors", None)  # no vector is computed again
        cached = SenseVectors(model).fit(iter(SENTENCES), cache=tmp_path)
    assert cached.predict(queries) == expected
    assert cached.most_frequent(SENTENCES[0].instances[0]) == RIVER
    SenseVectors(model).fit(SENTENCES[1:], cache=tmp_path)  # another text
    assert len([*tmp_path.iterdir()]) == 2


def test_a_damaged_cache_is_computed_again(model, tmp_path):
    SenseVectors(model).fit(SENTENCES, cache=tmp_path)
    for damaged in tmp_path.iterdir():
        content = damaged.read_bytes()
        for junk in (b"", content[:-1], b"junk"):
            damaged.write_bytes(junk)
            vectors = SenseVectors(model).fit(SENTENCES, cache=tmp_path)
            assert vectors.most_frequent(SENTENCES[0].instances[0]) == RIVER
            assert damaged.read_bytes() == content
