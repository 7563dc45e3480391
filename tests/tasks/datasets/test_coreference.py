import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.coreference import read_coreference
from elmokit.tasks.datasets.example_records import Document
from elmokit.tasks.task_registry import TASKS
from elmokit.tokenizers import get_tokenizer


def document(*mentions, sep="\t", end="#end document\n"):
    """A document of words w0, w1, …; None ends a sentence."""
    lines, position = ["#begin document (novel); part 002"], 0
    for mention in mentions:
        lines.append(
            "" if mention is None else sep.join(["novel", "0", "0", f"w{position}", mention])
        )
        position += mention is not None
    return "\n".join(lines) + "\n" + end


@pytest.mark.parametrize(("sep", "none"), [("\t", ""), ("\t", "_"), ("   ", "-")])
def test_mentions_count_words_through_the_document(sep, none, write):
    text = document("(0", none, "0)|(1)", None, "(0|(1", "1)", "(0)|0)", sep=sep)
    assert read_coreference(write(text), str.split) == [
        Document(
            "novel", 2, (("w0", "w1", "w2"), ("w3", "w4", "w5")),
            (((0, 2), (3, 5), (5, 5)), ((2, 2), (3, 4))),
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (document("(0", ""), "line 2: a mention of cluster 0 is not closed in its document"),
        (document("", "0)"), r"line 3: '0\)' closes a mention that was not opened"),
        (document("0"), "line 2: mention '0', expected"),
        (document("(0)|(1)"), "line 2: words 0 to 0 are in cluster 0 and in 1"),
        (document("(x)"), r"line 2: mention '\(x\)', expected"),
        (document("-", end=""), "line 1: #end document is missing"),
        (document("-", end=document("-")), "line 3: a document begins within one"),
        (document(), "line 1: a document without a word"),
        ("#end document\n", "line 1: a document ends, but none has begun"),
        ("novel 0 0 w0 -\n", "line 1: 'novel 0 0 w0 -' in no document"),
        ("#begin document novel\n", "line 1: '#begin document novel', expected"),
        (f"#begin document (a); part {'1' * 5000}\n", "line 1: '#begin document .*, expected"),
        (document("-", "-\t-"), "line 3: 6 columns, expected 5"),
        (document("-", sep=" ").replace(" w0", ""), "line 2: 4 columns, expected 5 or more"),
    ],
)
def test_a_malformed_document_is_refused_with_its_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_coreference(write(text), str.split)


@pytest.mark.parametrize(("part", "documents"), [("train", 80), ("dev", 10)])
def test_the_published_documents_are_read_completely(part, documents, labelled):
    read = read_coreference(labelled / f"coref_litbank/{part}.conll.xz", str.split)
    assert len(read) == documents
    for document in read:
        words = sum(map(len, document.sentences))
        mentions = [mention for cluster in document.clusters for mention in cluster]
        assert len({*mentions}) == len(mentions)
        assert all(0 <= first <= last < words for first, last in mentions)


HEADER = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL"
ROW = ("x-1", "Ann Lee met Bo. She left.", "She", "16", "Ann Lee", "0", "TRUE", "Bo", "12", "FALSE")


def gap_table(**changed):
    names = HEADER.split()
    cells = {**dict(zip(names, [*ROW, "http://x"], strict=True)), **changed}
    return "\t".join(names) + "\n" + "\t".join(cells.values()) + "\n"


def test_names_and_pronouns_are_words(write):
    example = read_coreference(write(gap_table()), get_tokenizer("moses").tokenize)[0]
    assert example.sentences == (("Ann", "Lee", "met", "Bo", "."), ("She", "left", "."))
    assert (example.pronoun, example.a, example.b) == ((5, 5), (0, 1), (3, 3))
    assert (example.id, example.is_a, example.is_b) == ("x-1", True, False)


def test_sentences_are_split_as_for_a_document_of_raw_text(write):
    """Moses ends no sentence before a lower-case letter, which a rule for ! alone would."""
    text = "Ann of Yahoo! met Bo. She left."
    gap = gap_table(Text=text, A="Ann", **{"Pronoun-offset": "22", "B-offset": "18"})
    (example,) = read_coreference(write(gap), get_tokenizer("moses").tokenize)
    document = TASKS["coreference"].text.parse(text, get_tokenizer("moses").tokenize)
    assert example.sentences == document.sentences
    assert [len(words) for words in example.sentences] == [7, 3]


def test_a_name_and_its_pronoun_may_share_a_word(write):
    text = "Bo left Ann--she wept."
    gap = gap_table(
        Text=text,
        Pronoun="she",
        A="Ann",
        **{"Pronoun-offset": "13", "A-offset": "8", "B-offset": "0"},
    )
    (example,) = read_coreference(write(gap), get_tokenizer("moses").tokenize)
    assert (example.pronoun, example.a, example.b) == ((2, 2), (2, 2), (0, 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ID\tText\n", "line 1: 'ID\\\\tText', expected GAP's header"),
        (gap_table(URL="a\tb"), "line 2: 12 columns between tabs, expected GAP's 11"),
        (gap_table(**{"A-coref": "yes"}), "line 2: A-coref 'yes', expected TRUE or FALSE"),
        (gap_table(**{"B-coref": "TRUE"}), "line 2: A-coref and B-coref are both TRUE"),
        (gap_table(**{"A-offset": "3"}), "line 2: A-offset '3', expected where 'Ann Lee' begins"),
        (gap_table(**{"A-offset": "x"}), "line 2: A-offset 'x', expected where"),
        (gap_table(**{"A-offset": "9" * 5000}), "line 2: A-offset '9999"),
        (
            gap_table() + gap_table().partition("\n")[2],
            "line 3: ID 'x-1' is there twice, expected once",
        ),
        (gap_table(Text=" "), "line 2: the words of the text cannot be found"),
    ],
)
def test_malformed_gap_is_refused_with_its_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_coreference(write(text), str.split)


@pytest.mark.parametrize(("part", "pronouns"), [("development", 2_000), ("validation", 454)])
def test_the_published_gap_files_are_read_completely(part, pronouns, labelled):
    tokenize = get_tokenizer("moses").tokenize if part == "validation" else str.split
    assert len(read_coreference(labelled / f"coref_gap/gap-{part}.tsv.xz", tokenize)) == pronouns
