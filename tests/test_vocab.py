import logging

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.vocab import Vocabulary, read_vocabulary, write_vocabulary


def test_words_have_the_number_of_their_line(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("<S>\n</S>\r\n<UNK>\n!!!MAXTERMID\ncat \n\u00a0\n".encode())
    vocabulary = read_vocabulary(path)
    assert list(vocabulary) == ["<S>", "</S>", "<UNK>", "cat", "\u00a0"]
    assert vocabulary.ids(["cat", "dog", "\u00a0"]).tolist() == [3, 2, 4]
    assert vocabulary[3] == "cat"
    assert "dog" not in vocabulary


def test_without_unknown_an_unknown_word_has_no_id():
    assert Vocabulary(["a", "b"]).ids(["b", "c"]).tolist() == [1, -1]


def test_of_two_equal_lines_the_later_counts_and_is_reported(tmp_path, caplog):
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\na\n")
    with caplog.at_level(logging.WARNING):
        assert read_vocabulary(path).ids(["a"]).tolist() == [2]
    assert "1 lines repeat a word" in caplog.text


def test_what_is_written_is_read_again(tmp_path):
    words = ["<S>", "</S>", "<UNK>", "naïve", "数学", "\u2028", ""]
    write_vocabulary(Vocabulary(words), tmp_path / "vocab.txt")
    assert list(read_vocabulary(tmp_path / "vocab.txt")) == words


@pytest.mark.parametrize("word", ["c ", "d\ne", "!!!MAXTERMID"])
def test_a_word_that_would_not_be_read_again_is_not_written(tmp_path, word):
    with pytest.raises(InputError, match=r"word 1 of the vocabulary, .* cannot be written"):
        write_vocabulary(Vocabulary(["a", word]), tmp_path / "vocab.txt")


def test_bad_utf8_is_named_by_its_line(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\n</S>\nna\xefve\n")
    with pytest.raises(FormatError, match=r"vocab\.txt, line 3: not UTF-8"):
        read_vocabulary(path)
