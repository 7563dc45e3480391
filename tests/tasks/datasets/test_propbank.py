import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.example_records import PredicateRoles
from elmokit.tasks.datasets.propbank import read_propbank


def table(*rows):
    return "".join("\t".join(row.split()) + "\n" for row in rows)


TEXT = table(
    "0 I PRP - - (ARG0*) *",
    "1 will MD - - (ARGM-MOD*) *",
    "2 try VB try try.01 (V*) *",
    "3 to TO - - (ARG1* *",
    "4 go VB go go.02 *) (V*)",
)


def test_every_predicate_is_an_example(write):
    words = ("I", "will", "try", "to", "go")
    assert read_propbank(write(TEXT + "\n" + table("0 Hello UH - -"))) == [
        PredicateRoles(words, 2, "try.01", ("B-ARG0", "B-ARGM-MOD", "B-V", "B-ARG1", "I-ARG1")),
        PredicateRoles(words, 4, "go.02", ("O", "O", "O", "O", "B-V")),
    ]


def test_a_frame_may_stand_beside_the_last_word_of_a_predicate(write):
    rows = "0 x NN - - (V*)", "1 - HYPH - - *", "2 rays NNS xray xray.01 (C-V*)"
    assert read_propbank(write(table(*rows)))[0].predicate == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0 Hello UH - -"], "holds no example"),
        (["0 go VB go go.02"], "line 1: 5 columns between tabs, expected 5 and one for each of"),
        (["0 a", "1 go VB go go.02 (V*)"], "line 1: 2 columns"),
        (["0 go VB go go.02 (V*)", "2 on RP - - *"], "line 2: the word has number '2', expected 1"),
        (["7 go VB go go.02 (V*)"], "line 1: the word has number '7', expected 0 or 1"),
        (["0 go VB go go.02 (V*", "1 on RP - - *"], r"line 1: \(V\* is not closed"),
        (["0 go VB go go.02 (V*)", "1 on RP - - *)"], r"line 2: '\*\)' closes a span"),
        (["0 go VB go go.02 (V*", "1 on RP - - (A*)"], r"line 2: '\(A\*\)' opens a span within"),
        (["0 go VB go go.02 V"], r"line 1: 'V', expected \*"),
        (["0 go VB go go.02 *", "1 on RP - - (V*)"], "line 1: 'go' is a predicate, but has 'O'"),
    ],
)
def test_malformed_propbank_is_refused_with_its_line(rows, message, write):
    with pytest.raises(FormatError, match=message):
        read_propbank(write(table(*rows)))


@pytest.mark.parametrize(
    ("part", "predicates"), [("train", 40_435), ("dev", 4_913), ("test", 4_795)]
)
def test_the_published_files_are_read_completely(part, predicates, labelled):
    assert len(read_propbank(labelled / f"srl_ewt/{part}.conll.xz")) == predicates
