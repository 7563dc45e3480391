import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.coreference import read_conll2012
from elmokit.tasks.datasets.example_records import Document


def table(*mentions, sep="\t", end="#end document\n"):
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
    text = table("(0", none, "0)|(1)", None, "(0|(1", "1)", "(0)|0)", sep=sep)
    assert read_conll2012(write(text)) == [
        Document(
            "novel", 2, (("w0", "w1", "w2"), ("w3", "w4", "w5")),
            (((0, 2), (3, 5), (5, 5)), ((2, 2), (3, 4))),
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no example"),
        (table("(0", ""), "line 2: a mention of cluster 0 is not closed in its document"),
        (table("", "0)"), r"line 3: '0\)' closes a mention that was not opened"),
        (table("0"), "line 2: mention '0', expected"),
        (table("(0)|(1)"), "line 2: words 0 to 0 are in cluster 0 and in 1"),
        (table("(x)"), r"line 2: mention '\(x\)', expected"),
        (table("-", end=""), "line 1: #end document is missing"),
        (table("-", end=table("-")), "line 3: a document begins within one"),
        (table(), "line 1: a document without a word"),
        ("#end document\n", "line 1: a document ends, but none has begun"),
        ("novel 0 0 w0 -\n", "line 1: 'novel 0 0 w0 -' in no document"),
        ("#begin document novel\n", "line 1: '#begin document novel', expected"),
        (f"#begin document (a); part {'1' * 5000}\n", "line 1: '#begin document .*, expected"),
        (table("-", "-\t-"), "line 3: 6 columns, expected 5"),
        (table("-", sep=" ").replace(" w0", ""), "line 2: 4 columns, expected 5 or more"),
    ],
)
def test_a_malformed_document_is_refused_with_its_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_conll2012(write(text))


@pytest.mark.parametrize(("part", "documents"), [("train", 80), ("dev", 10)])
def test_the_published_files_are_read_completely(part, documents, labelled):
    read = read_conll2012(labelled / f"coref_litbank/{part}.conll.xz")
    assert len(read) == documents
    for document in read:
        words = sum(map(len, document.sentences))
        mentions = [mention for cluster in document.clusters for mention in cluster]
        assert len({*mentions}) == len(mentions)
        assert all(0 <= first <= last < words for first, last in mentions)
