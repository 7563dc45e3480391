import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.coreference import read_gap
from elmokit.tasks.task_registry import TASKS
from elmokit.tokenizers import get_tokenizer

HEADER = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL"
ROW = ("x-1", "Ann Lee met Bo. She left.", "She", "16", "Ann Lee", "0", "TRUE", "Bo", "12", "FALSE")


def table(**changed):
    names = HEADER.split()
    cells = {**dict(zip(names, [*ROW, "http://x"], strict=True)), **changed}
    return "\t".join(names) + "\n" + "\t".join(cells.values()) + "\n"


def test_names_and_pronouns_are_words(write):
    example = read_gap(write(table()), get_tokenizer("moses").tokenize)[0]
    assert example.sentences == (("Ann", "Lee", "met", "Bo", "."), ("She", "left", "."))
    assert (example.pronoun, example.a, example.b) == ((5, 5), (0, 1), (3, 3))
    assert (example.id, example.is_a, example.is_b) == ("x-1", True, False)


def test_sentences_are_split_as_for_a_document_of_raw_text(write):
    """Moses ends no sentence before a lower-case letter, which a rule for ! alone would."""
    text = "Ann of Yahoo! met Bo. She left."
    gap = table(Text=text, A="Ann", **{"Pronoun-offset": "22", "B-offset": "18"})
    (example,) = read_gap(write(gap), get_tokenizer("moses").tokenize)
    document = TASKS["coreference"].text.parse(text, get_tokenizer("moses").tokenize)
    assert example.sentences == document.sentences
    assert [len(words) for words in example.sentences] == [7, 3]


def test_a_name_and_its_pronoun_may_share_a_word(write):
    text = "Bo left Ann--she wept."
    gap = table(
        Text=text,
        Pronoun="she",
        A="Ann",
        **{"Pronoun-offset": "13", "A-offset": "8", "B-offset": "0"},
    )
    (example,) = read_gap(write(gap), get_tokenizer("moses").tokenize)
    assert (example.pronoun, example.a, example.b) == ((2, 2), (2, 2), (0, 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no example"),
        ("ID\tText\n", "line 1: 'ID\\\\tText', expected GAP's header"),
        (table(URL="a\tb"), "line 2: 12 columns between tabs, expected GAP's 11"),
        (table(**{"A-coref": "yes"}), "line 2: A-coref 'yes', expected TRUE or FALSE"),
        (table(**{"B-coref": "TRUE"}), "line 2: A-coref and B-coref are both TRUE"),
        (table(**{"A-offset": "3"}), "line 2: A-offset '3', expected where 'Ann Lee' begins"),
        (table(**{"A-offset": "x"}), "line 2: A-offset 'x', expected where"),
        (table(**{"A-offset": "9" * 5000}), "line 2: A-offset '9999"),
        (table() + table().partition("\n")[2], "line 3: ID 'x-1' is there twice, expected once"),
        (table(Text=" "), "line 2: the words of the text cannot be found"),
    ],
)
def test_malformed_gap_is_refused_with_its_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_gap(write(text), str.split)


@pytest.mark.parametrize(("part", "pronouns"), [("development", 2_000), ("validation", 454)])
def test_the_published_files_are_read_completely(part, pronouns, labelled):
    tokenize = get_tokenizer("moses").tokenize if part == "validation" else str.split
    assert len(read_gap(labelled / f"coref_gap/gap-{part}.tsv.xz", tokenize)) == pronouns
