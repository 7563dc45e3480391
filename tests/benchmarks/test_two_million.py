import lzma
import sys

import pytest

pytestmark = pytest.mark.full


@pytest.fixture
def two_million(script):
    return script("two_million")


def test_sentences_end_before_a_capital_or_a_number(two_million):
    paragraphs = ['He ran (fast.) 7 men saw it. "No!" she said.\n', "\n", "One e.g. two.\n"]
    assert [" ".join(words) for words in two_million.split_sentences(paragraphs)] == [
        "He ran ( fast .",  # closing quotes and brackets are lost, as in the published figures
        "7 men saw it .",
        '" No ! " she said .',
        "One e . g . two .",
    ]


def test_taking_words_ends_with_a_whole_sentence(two_million):
    sentences = iter([["a", "b"], ["c", "d"], ["e"], ["f"]])
    assert two_million.take(sentences, 3) == [["a", "b"], ["c", "d"]]
    assert two_million.take(sentences, 1) == [["e"]]


def test_words_are_ordered_by_frequency(two_million):
    assert two_million.most_frequent([["b", "a", "c"], ["c", "a", "c"]]) == ["c", "a", "b"]


def test_another_text_is_refused(two_million, tmp_path, monkeypatch):
    source = tmp_path / "other.xz"
    with lzma.open(source, "wt", encoding="utf-8") as file:
        file.write("A word. " * 1000)
    monkeypatch.setattr(two_million, "TRAINING_WORDS", 100)
    monkeypatch.setattr(two_million, "VALIDATION_WORDS", 10)
    monkeypatch.setattr(sys, "argv", ["two_million", str(tmp_path / "to"), "--source", str(source)])
    with pytest.raises(SystemExit, match=r"other\.xz: 102 words, expected 2,000,018"):
        two_million.main()
