import numpy as np
import pytest
import torch

from elmokit.batching import Batch, check_sentences, place_words
from elmokit.errors import InputError
from elmokit.vocab import CharacterIndexer

ALPHABET = CharacterIndexer(50)


def test_each_distinct_word_stands_once():
    batch = Batch.from_sentences([["a", "b", "a"], ["b"], []], ALPHABET)
    assert batch.chars.shape == (5, 50)
    assert batch.words.tolist() == [[1, 3, 4, 3, 2], [1, 4, 2, 0, 0], [1, 2, 0, 0, 0]]
    assert batch.lengths.tolist() == [5, 3, 2]
    assert batch.mask.sum() == 10
    assert not batch.chars[0].any()
    assert [ALPHABET.decode(row) for row in batch.chars[1:]] == ["<S>", "</S>", "a", "b"]


def test_boundaries_in_the_text_are_boundaries():
    assert place_words([["</S>", "x", "<S>"]]).words.tolist() == [[1, 2, 3, 1, 2]]


def test_rows_that_are_not_marked_hold_what_they_hold():
    placed = place_words([["<S>", "x"], [], ["x", "y", "</S>"]], marked=False)
    assert placed.types == ["<S>", "</S>", "x", "y"]
    assert placed.words.tolist() == [[1, 3, 0], [0, 0, 0], [3, 4, 2]]


def test_no_sentences_make_an_empty_batch():
    assert Batch.from_sentences([], ALPHABET).words.shape == (0, 2)


def test_character_ids_make_the_same_batch():
    sentences = [["The", "first", "sentence"], ["Second", "."], []]
    ids = np.zeros((3, 3, 50), np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)], _ = ALPHABET.encode(sentence)
    expected = Batch.from_sentences(sentences, ALPHABET)
    batch = Batch.from_ids(torch.from_numpy(ids), ALPHABET)
    assert not batch.chars[0].any()
    assert torch.equal(batch.chars[batch.words], expected.chars[expected.words])


def test_padding_before_a_word_is_refused():
    ids = torch.zeros(1, 2, 50, dtype=torch.long)
    ids[0, 1] = 5
    with pytest.raises(ValueError, match="a padding word stands before a real one"):
        Batch.from_ids(ids, ALPHABET)


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (["a", 3], r"sentence 7, word 1 is a int \(3\), expected a string"),
        (["a", float("nan")], r"sentence 7, word 1 is a float \(nan\), expected a string"),
        (["a", None], "sentence 7, word 1 is a NoneType"),
        ([b"a"], "sentence 7, word 0 is a bytes"),
        ([["a"]], "sentence 7, word 0 is a list"),
        (None, r"sentence 7 is a NoneType \(None\), expected a list of words"),
    ],
)
def test_a_word_that_is_no_string_is_named_by_its_place(sentence, message):
    with pytest.raises(TypeError, match=message):
        [*check_sentences([["fine"]] * 7 + [sentence])]


def test_a_sentence_as_one_string_warns_and_is_split():
    with pytest.warns(UserWarning, match="sentence 0 is one string, not a list of words"):
        assert [*check_sentences(["I ate an apple"])] == [["I", "ate", "an", "apple"]]


def test_a_sentence_in_one_word_warns_and_stays_one_word():
    with pytest.warns(UserWarning, match="sentence 0 is one word with spaces in it"):
        assert [*check_sentences([["I ate an apple"]])] == [["I ate an apple"]]


def test_a_stream_of_doubts_warns_once():
    with pytest.warns(UserWarning, match="sentence 1 is one string") as warned:
        assert len([*check_sentences([["fine"], "a b", "c d", ["e f"]])]) == 4
    assert len(warned) == 1


def test_ids_outside_the_alphabet_are_refused():
    with pytest.raises(InputError, match="ids from 0 to 262, expected 0 to 261"):
        Batch.from_ids(torch.tensor([[[262] + [0] * 49]]), ALPHABET)
