import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.example_records import LabelledText
from elmokit.tasks.datasets.text_tables import read_trees

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
        ("\n", "holds no example"),
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
def test_the_published_files_are_read_completely(part, sentences, labelled):
    assert len(read_trees(labelled / f"sentiment_sst5/{part}.txt.xz")) == sentences
