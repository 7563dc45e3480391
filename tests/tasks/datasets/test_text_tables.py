import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.example_records import LabelledText, TextPair
from elmokit.tasks.datasets.text_tables import read_labelled, read_pairs
from elmokit.tokenizers import get_tokenizer


def test_a_line_break_in_a_text_becomes_a_space(write):
    path = write('neg\tBad.<br /><br />"Very" <bad>\n\npos\tGood\n')
    assert read_labelled(path, str.split) == [
        LabelledText(("Bad.", '"Very"', "<bad>"), "neg", 'Bad.  "Very" <bad>'),
        LabelledText(("Good",), "pos", "Good"),
    ]


def test_texts_are_tokenized_as_asked(write):
    words = get_tokenizer("characters").tokenize
    assert read_labelled(write("pos\t很 好\n"), words)[0].words == ("很", "好")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no example"),
        ("pos fine\n", "line 1: 1 columns between tabs, expected 2"),
        ("pos\tfine\nneg\ta\tb\n", "line 2: 3 columns between tabs, expected 2"),
        ("\tfine\n", "line 1: no label"),
        ("pos\t<br />\n", "line 1: a text without a word"),
    ],
)
def test_malformed_lines_are_refused_with_their_number(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_labelled(write(text), str.split)


def test_a_pair_has_a_label(write):
    pair = TextPair(("a", "man"), ("a", "cat"), "2", ("a man", "a cat"))
    assert read_pairs(write("a man\ta cat\t2\n"), str.split) == [pair]
    assert read_pairs(write("a\ta\t-\na man\ta cat\t2\n"), str.split) == [pair]  # SNLI's "-"
    with pytest.raises(FormatError, match="holds no example"):
        read_pairs(write("a man\ta cat\t-\n"), str.split)
    with pytest.raises(FormatError, match="line 1: 2 columns between tabs, expected 3"):
        read_pairs(write("a man\ta cat\n"), str.split)


def test_the_published_files_are_read_completely(labelled):
    characters = get_tokenizer("characters").tokenize

    def examples(read, name, *arguments):
        return len(read(labelled / name, *arguments))

    for part, imdb, chinese, snli in [
        ("train", 6_000, 8_000, 8_858),
        ("dev", 1_000, 1_000, 984),
    ]:
        imdb_file, chinese_file = (
            f"{name}/{part}.tsv.xz" for name in ("sentiment_imdb", "zh_sentiment")
        )
        assert examples(read_labelled, imdb_file, str.split) == imdb
        assert examples(read_labelled, chinese_file, characters) == chinese
        assert examples(read_pairs, f"entailment_snli/{part}.tsv.xz", str.split) == snli
