import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.datasets.alignment import align
from elmokit.tokenizers import get_tokenizer


def aligned_texts(words, text):
    return [text[start:end] for start, end in align(words, text)]


@given(st.lists(st.text("ab“é 1", min_size=1).filter(str.strip), max_size=20), st.text(" \n\u00a0"))
def test_unchanged_words_are_aligned(words, space):
    text = space + (space or " ").join(words) + space
    assert [aligned.split() for aligned in aligned_texts(words, text)] == [
        word.split() for word in words
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("said “No.” Then he", ["said", "“", "No", ".", "”", "Then", "he"]),
        ("wait… what", ["wait", "…", "what"]),
        ("1914–18 it’s 5 € „so“", ["1914–18", "it", "’s", "5", "€", "„", "so", "“"]),
        ('the "Super Bowl", he', ["the", '"', "Super", "Bowl", '"', ",", "he"]),
    ],
)
def test_words_that_moses_changed_are_aligned(text, expected):
    assert aligned_texts(get_tokenizer("moses").tokenize(text), text) == expected


def test_a_word_that_was_added_has_no_characters():
    words = ["<s>", "one", "two", "three", "</s>"]
    assert aligned_texts(words, "one two three") == ["", "one", "two", "three", ""]


def test_characters_that_were_left_out_belong_to_no_word():
    assert aligned_texts(["one", "two", "three"], "one \u200b\u200btwo three") == [
        "one",
        "two",
        "three",
    ]


def test_words_of_another_text_are_not_aligned():
    assert align(["quite", "another", "text"] * 20, "the cat sat on the mat " * 20) is None
    assert align(["one", " "], "one") is None
