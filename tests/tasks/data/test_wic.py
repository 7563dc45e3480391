import pytest

from elmokit.errors import FormatError
from elmokit.tasks.data.example import InContext
from elmokit.tasks.data.wic import read_wic

LINE = "go\tV\t1-0\tMessages go .\tGo there\n"


def test_a_word_stands_in_two_sentences(write):
    assert read_wic(write(LINE, "data"), write("F\n", "gold")) == [
        InContext("go", "V", ("Messages", "go", "."), ("Go", "there"), (1, 0), same=False)
    ]


@pytest.mark.parametrize(
    ("data", "gold", "says"),
    [
        ("", "", "data: holds no example"),
        (LINE + LINE, "F\n", r"data, line 2: no line for it in .*gold \(2 lines of data, 1 of"),
        (LINE, "F\nT\n", "gold, line 2: no line for it in .*data"),
        (LINE, "yes\n", "gold, line 1: 'yes', expected T or F"),
        ("go\tV\t1-0\tMessages go .\n", "T\n", "data, line 1: 4 columns between tabs, expected 5"),
        (LINE.replace("V", "X"), "T\n", "data, line 1: word 'go' with part of speech 'X'"),
        (LINE.replace("1-0", "1"), "T\n", "data, line 1: places '1', expected two numbers"),
        (
            LINE.replace("1-0", "1-" + "0" * 5000),
            "T\n",
            "data, line 1: places '1-00.*', expected two",
        ),
        (LINE.replace("1-0", "3-0"), "T\n", "data, line 1: place 3 in a sentence of 3 words"),
    ],
)
def test_what_is_not_wic_is_refused_with_its_line(data, gold, says, write):
    with pytest.raises(FormatError, match=says):
        read_wic(write(data, "data"), write(gold, "gold"))


@pytest.mark.parametrize(("part", "examples"), [("train", 5_428), ("dev", 638)])
def test_the_published_files_are_read_whole(part, examples, labelled):
    folder = labelled / "wic"
    assert len(read_wic(folder / f"{part}.data.txt", folder / f"{part}.gold.txt")) == examples
