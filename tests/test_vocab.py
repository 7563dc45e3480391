import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.character_ids import CharacterIndexer, WordIndexer
from elmokit.errors import FormatError, InputError
from elmokit.vocab import Vocabulary, read_vocabulary, write_vocabulary


def test_ids_are_line_numbers(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("<S>\n</S>\r\n<UNK>\n!!!MAXTERMID\ncat \n\u00a0\n".encode())
    vocabulary = read_vocabulary(path)
    assert list(vocabulary) == ["<S>", "</S>", "<UNK>", "cat", "\u00a0"]
    assert vocabulary.ids(["cat", "dog", "\u00a0"]).tolist() == [3, 2, 4]
    assert vocabulary[3] == "cat"
    assert "dog" not in vocabulary


def test_without_unknown_an_unknown_word_has_no_id():
    assert Vocabulary(["a", "b"]).ids(["b", "c"]).tolist() == [1, -1]


def test_a_repeated_word_has_its_later_id_and_is_reported(tmp_path, caplog):
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\na\n")
    with caplog.at_level(logging.WARNING):
        assert read_vocabulary(path).ids(["a"]).tolist() == [2]
    assert "1 lines repeat a word" in caplog.text


def test_a_written_vocabulary_is_read_again(tmp_path):
    words = ["<S>", "</S>", "<UNK>", "naïve", "数学", "\u2028", ""]
    write_vocabulary(Vocabulary(words), tmp_path / "vocab.txt")
    assert list(read_vocabulary(tmp_path / "vocab.txt")) == words


@pytest.mark.parametrize("word", ["c ", "d\ne", "!!!MAXTERMID"])
def test_a_word_that_no_line_can_hold_is_refused(tmp_path, word):
    with pytest.raises(InputError, match=r"word 1 of the vocabulary, .* cannot be written"):
        write_vocabulary(Vocabulary(["a", word]), tmp_path / "vocab.txt")


def test_invalid_utf8_is_reported_with_its_line(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\n</S>\nna\xefve\n")
    with pytest.raises(FormatError, match=r"vocab\.txt, line 3: not UTF-8"):
        read_vocabulary(path)


def test_a_boundary_is_never_truncated():
    rows, num_truncated = CharacterIndexer(4).encode(["<S>", "</S>", "cat"])
    assert rows.tolist() == [[259, 257, 260, 261], [259, 258, 260, 261], [259, 100, 98, 260]]
    assert num_truncated == 1


def padded(ids, max_characters=50):
    return ids + [261] * (max_characters - len(ids))


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
def test_words_have_the_ids_of_bilm_tf_and_allennlp(word, row):
    rows, truncated = CharacterIndexer(50).encode([word])
    assert rows.tolist() == [padded(row)]
    assert truncated == 0


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


def test_truncation_may_split_a_character_and_is_counted():
    rows, truncated = CharacterIndexer(5).encode(["ab€", "abc", "abcd"])
    assert rows[0].tolist() == [259, 98, 99, 0xE2 + 1, 260]
    assert truncated == 2


def test_half_a_surrogate_pair_is_left_out():
    assert CharacterIndexer(6).encode(["a\ud800b"])[0].tolist() == [[259, 98, 99, 260, 261, 261]]


@given(st.lists(st.text(max_size=60)), st.integers(3, 60))
def test_words_are_encoded_together_as_alone(words, max_characters):
    indexer = CharacterIndexer(max_characters)
    rows, truncated = indexer.encode(words)
    assert rows.shape == (len(words), max_characters)
    for word, row in zip(words, rows, strict=True):
        assert indexer.encode([word])[0].tolist() == [row.tolist()]
    assert truncated == sum(
        len(word.encode("utf-8", "ignore")) > max_characters - 2 for word in words
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=11))
def test_decoding_inverts_encoding(word):
    indexer = CharacterIndexer(50)
    assert indexer.decode(indexer.encode([word])[0][0]) == word


def test_boundaries_are_decoded():
    indexer = CharacterIndexer(50)
    rows, _ = indexer.encode(["<S>", "</S>"])
    assert [indexer.decode(row) for row in rows] == ["<S>", "</S>"]


def test_a_word_index_is_the_line_plus_one():
    indexer = WordIndexer(Vocabulary(["<S>", "</S>", "<UNK>", "cat"]))
    rows, truncated = indexer.encode(["cat", "dog", "<S>"])
    np.testing.assert_array_equal(rows, [[4], [3], [1]])
    assert truncated == 0


def test_an_unknown_word_is_refused_without_unk():
    indexer = WordIndexer(Vocabulary(["<S>", "</S>", "cat"]))
    with pytest.raises(InputError, match="'dog' is not in the vocabulary, which has no <UNK>"):
        indexer.encode(["cat", "dog"])


def test_a_word_level_model_needs_boundaries():
    with pytest.raises(InputError, match="the vocabulary has no </S>"):
        WordIndexer(Vocabulary(["<S>", "cat"]))
