import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.example_records import LabelledText, TextPair
from elmokit.tasks.datasets.text_tables import read_labelled, read_pairs, read_trees
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


TREE = r"(3 (2 It) (4 (4 works) (2 -LRB-)))" + "\n\n" + r"(1 and\/or)" + "\n"


def test_the_root_labels_the_sentence(write):
    assert read_trees(write(TREE)) == [
        LabelledText(
            ("It", "works", "("),
            "3",
            phrases=((0, 0, "2"), (1, 2, "4"), (1, 1, "4"), (2, 2, "2")),
        ),
        LabelledText(("and/or",), "1"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(3 (2 It) (4 works)\n", "line 1: 1 brackets are not closed"),
        ("(3 It)\n(3 It))\n", r"line 2: '\)' after the end of the tree"),
        ("(3 It) (2 is)\n", r"line 1: '\(' after the end of the tree"),
        ("It works\n", "line 1: 'It' before a tree"),
        ("(5 It)\n", "line 1: label '5', expected one of 0, 1, 2, 3, 4"),
        ("(3 )\n", "line 1: a phrase .* without a word"),
        ("((2 It))\n", "line 1: a phrase without a label"),
    ],
)
def test_a_malformed_tree_is_refused_with_its_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_trees(write(text))


def test_a_no_break_space_belongs_to_its_word(write):
    assert read_trees(write("(2 (2 8\u00a01\\/2) (2 Women))"))[0].words == ("8\u00a01/2", "Women")


def test_a_deep_tree_is_read(write):
    assert read_trees(write("(1 " * 5000 + "a" + ")" * 5000))[0].words == ("a",)


@pytest.mark.parametrize(("part", "sentences"), [("train", 8_544), ("dev", 1_101)])
def test_the_published_trees_are_read_completely(part, sentences, labelled):
    assert len(read_trees(labelled / f"sentiment_sst5/{part}.txt.xz")) == sentences
