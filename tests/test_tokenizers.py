import lzma
import re
import time

import pytest

from elmokit.errors import ConfigError
from elmokit.tokenizers import get_tokenizer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I didn't go.", ["I", "didn", "'t", "go", "."]),
        ("“Plain” quotes", ['"', "Plain", '"', "quotes"]),
        ("it’s 3,000 [sic] & <b>", ["it", "'s", "3,000", "[", "sic", "]", "&", "<", "b", ">"]),
        ("U.S. dogs' wait-and-see", ["U.S.", "dogs", "'", "wait-and-see"]),
        ("", []),
    ],
)
def test_moses_cuts_words_as_the_billion_word_corpus_did(text, words):
    assert get_tokenizer("moses").tokenize(text) == words


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He left. She stayed.", ["He left.", "She stayed."]),
        (
            "Dr. J. Smith saw the U.S. in May. He won.",
            ["Dr. J. Smith saw the U.S. in May.", "He won."],
        ),
        ('She said "No." Then she left!', ['She said "No."', "Then she left!"]),
        ('"Why?" he asked. (Nobody knew.)', ['"Why?" he asked.', "(Nobody knew.)"]),
        ("It was No. 5. No. It was not.", ["It was No. 5.", "No.", "It was not."]),
        ("It cost 3.5 million. 2 men paid...", ["It cost 3.5 million.", "2 men paid..."]),
        ("one line\ngoes on\n\na paragraph", ["one line goes on", "a paragraph"]),
        ("他走了。你好吗？很好！", ["他走了。", "你好吗？", "很好！"]),
        ("e.g. this", ["e.g. this"]),
        ("  \n\n ", []),
    ],
)
def test_sentences_end_where_a_reader_would_say(text, sentences):
    assert get_tokenizer("moses").split_sentences(text) == sentences


def test_no_character_is_lost_between_sentences(shared):
    with lzma.open(shared / "data/lm/en/wikipedia_a.valid.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read(300_000)
    sentences = get_tokenizer("moses").split_sentences(text)
    assert len(sentences) > 1000
    assert re.sub(r"\s", "", "".join(sentences)) == re.sub(r"\s", "", text)


def test_a_long_run_of_stops_takes_no_time():
    started = time.perf_counter()
    assert len(get_tokenizer("moses").split_sentences("." * 200_000 + " A" + "!" * 200_000)) == 2
    assert time.perf_counter() - started < 5


def test_scripts_without_capitals_have_sentences_too():
    assert len(get_tokenizer("moses").split_sentences("هل جاء؟ نعم. جاء أمس.")) == 3
    assert len(get_tokenizer("moses").split_sentences("वह आया। वह गया।")) == 2


def test_spaces_are_plain_spaces():
    way = get_tokenizer("spaces")
    assert way.tokenize("a  b\tc\u00a0d\u3000e") == ["a", "b", "c\u00a0d\u3000e"]
    assert way.split_sentences("a b\n\nc\u2028d\n") == ["a b", "c\u2028d"]


def test_characters_are_words_of_their_own():
    way = get_tokenizer("characters")
    assert way.tokenize("SEQ WENCE") == list("SEQWENCE")
    assert way.split_sentences("MK\nLV\n") == ["MK", "LV"]


def test_a_letter_after_an_apostrophe_is_no_initial():
    text = "He didn't. She did. 'J. Smith' wrote it."
    assert get_tokenizer("moses").split_sentences(text) == [
        "He didn't.",
        "She did.",
        "'J. Smith' wrote it.",
    ]


def test_other_languages_have_their_own_abbreviations():
    text = "Das ist z.B. Dr. Meier. Er kam am 3. Mai."
    assert get_tokenizer("moses-de").split_sentences(text)[0] == "Das ist z.B. Dr. Meier."


def test_an_unknown_way_is_refused():
    with pytest.raises(ConfigError, match="no tokenizer is called 'nltk', expected 'moses'"):
        get_tokenizer("nltk")
