import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.batching import (
    Batch,
    check_sentences,
    index_words,
    minibatches,
    token_batches,
    token_windows,
)
from elmokit.character_ids import CharacterIndexer
from elmokit.errors import InputError

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
    _, words = index_words([["</S>", "x", "<S>"]])
    assert words.tolist() == [[1, 2, 3, 1, 2]]


def test_boundaries_are_added_on_request_only():
    rows = [["<S>", "x"], [], ["x", "y", "</S>"]]
    types, words = index_words(rows, boundaries=False)
    assert types == ["<S>", "</S>", "x", "y"]
    assert words.tolist() == [[1, 3, 0], [0, 0, 0], [3, 4, 2]]


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
        (["a", 3], r"sentence 7, word 1 is an int \(3\), expected a string"),
        (["a", float("nan")], r"sentence 7, word 1 is a float \(nan\), expected a string"),
        (["a", None], "sentence 7, word 1 is None, expected a string"),
        ([b"a"], "sentence 7, word 0 is a bytes"),
        ([["a"]], "sentence 7, word 0 is a list"),
        (None, "sentence 7 is None, expected a list of words"),
    ],
)
def test_a_word_that_is_no_string_is_named_by_its_place(sentence, message):
    with pytest.raises(TypeError, match=message):
        [*check_sentences([["fine"]] * 7 + [sentence])]


class ArrowArray:
    """Like pyarrow's arrays, whose elements are not strings."""

    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter([object() for _ in self.values])

    def to_pylist(self):
        return self.values


def test_arrow_arrays_are_taken_as_lists():
    sentences = ArrowArray([["I", "ate"], ArrowArray(["an", "apple"])])
    assert [*check_sentences(sentences)] == [["I", "ate"], ["an", "apple"]]


def test_a_number_for_sentences_is_refused():
    with pytest.raises(TypeError, match=r"sentences is an int \(3\), expected lists of words"):
        next(check_sentences(3))


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 60), st.integers(1, 9))
def test_batches_stay_within_their_budget_and_hold_every_item_once(lengths, tokens, max_items):
    batches = [*token_batches(lengths, tokens, max_items=max_items)]
    assert sorted(index for batch in batches for index in batch) == [*range(len(lengths))]
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or longest * len(batch) <= tokens
        assert len(batch) <= max_items
    longest_of_each = [max(lengths[index] for index in batch) for batch in batches]
    assert longest_of_each == sorted(longest_of_each, reverse=True)


def test_windows_are_taken_as_they_are_needed():
    taken = []

    def items():
        for number in range(100):
            taken.append(number)
            yield "word" * 3

    windows = token_windows(items(), 10, len)
    assert len(next(windows)) == 2  # 14 tokens each, of 20
    assert len(taken) == 2


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


LENGTHS = st.lists(st.integers(1, 30), max_size=60)


@given(LENGTHS, st.integers(1, 50), st.sampled_from([None, (0, 0), (3, 0)]))
def test_every_item_is_in_one_minibatch(lengths, words, seed):
    batches = minibatches(lengths, words=words, seed=seed)
    assert sorted(index for batch in batches for index in batch) == [*range(len(lengths))]
    assert all(len(b) == 1 or max(lengths[i] for i in b) * len(b) <= words for b in batches)
    assert batches == minibatches(lengths, words=words, seed=seed)


def test_minibatches_of_each_seed_have_their_own_order():
    first, second = (minibatches([1] * 50, words=5, seed=(0, epoch)) for epoch in (0, 1))
    assert first != second
