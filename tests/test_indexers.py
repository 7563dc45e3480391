import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.vocab import CharacterIndexer, Vocabulary, WordIndexer


def padded(ids, width=50):
    return ids + [261] * (width - len(ids))


@pytest.mark.parametrize(
    ("word", "row"),
    [
        ("The", [259, 85, 105, 102, 260]),
        ("\u0100t", [259, 197, 129, 117, 260]),
        ("", [259, 260]),
        ("<S>", [259, 257, 260]),
        ("</S>", [259, 258, 260]),
        ("<UNK>", [259, *(byte + 1 for byte in b"<UNK>"), 260]),
    ],
)
def test_a_word_has_the_row_that_the_ancestors_gave_it(word, row):
    rows, cut = CharacterIndexer(50).encode([word])
    assert rows.tolist() == [padded(row)]
    assert cut == 0


@pytest.mark.parametrize(
    ("word", "row"),
    [
        # bilm-tf's own tests, each id plus one
        ("th", [259, 117, 105, 260, 261]),
        ("thhhhh", [259, 117, 105, 105, 260]),
        ("\u0100t", [259, 197, 129, 117, 260]),
    ],
)
def test_a_narrow_row_matches_bilm_tf(word, row):
    assert CharacterIndexer(5).encode([word])[0].tolist() == [row]


def test_a_cut_may_split_a_character_and_is_counted():
    rows, cut = CharacterIndexer(5).encode(["ab€", "abc", "abcd"])
    assert rows[0].tolist() == [259, 98, 99, 0xE2 + 1, 260]
    assert cut == 2


def test_half_a_surrogate_pair_is_left_out():
    assert CharacterIndexer(6).encode(["a\ud800b"])[0].tolist() == [[259, 98, 99, 260, 261, 261]]


@given(st.lists(st.text(max_size=60)), st.integers(3, 60))
def test_many_words_are_spelled_as_each_alone(words, width):
    alphabet = CharacterIndexer(width)
    rows, cut = alphabet.encode(words)
    assert rows.shape == (len(words), width)
    for word, row in zip(words, rows, strict=True):
        assert alphabet.encode([word])[0].tolist() == [row.tolist()]
    assert cut == sum(len(word.encode("utf-8", "ignore")) > width - 2 for word in words)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=11))
def test_a_row_spells_its_word(word):
    alphabet = CharacterIndexer(50)
    assert alphabet.decode(alphabet.encode([word])[0][0]) == word


def test_boundaries_spell_themselves():
    alphabet = CharacterIndexer(50)
    rows, _ = alphabet.encode(["<S>", "</S>"])
    assert [alphabet.decode(row) for row in rows] == ["<S>", "</S>"]


def test_a_word_level_row_is_the_line_plus_one():
    alphabet = WordIndexer(Vocabulary(["<S>", "</S>", "<UNK>", "cat"]))
    rows, cut = alphabet.encode(["cat", "dog", "<S>"])
    np.testing.assert_array_equal(rows, [[4], [3], [1]])
    assert cut == 0


def test_an_unknown_word_is_refused_where_nothing_stands_for_it():
    alphabet = WordIndexer(Vocabulary(["<S>", "</S>", "cat"]))
    with pytest.raises(InputError, match="'dog' is not in the vocabulary, which has no <UNK>"):
        alphabet.encode(["cat", "dog"])


def test_a_word_level_model_needs_boundaries():
    with pytest.raises(InputError, match="the vocabulary has no </S>"):
        WordIndexer(Vocabulary(["<S>", "cat"]))
