import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.tasks.datasets.columns import read_columns, read_conllu, read_propbank
from elmokit.tasks.datasets.example_records import PredicateRoles, TaggedSentence
from elmokit.tasks.datasets.schemes import convert_tags
from elmokit.tasks.task_registry import TASKS

NER = """-DOCSTART- -X- O O

U.N. NNP I-NP I-ORG
official NN I-NP O


-DOCSTART- -X- O O
Paris NNP I-NP I-LOC
"""


def test_a_document_start_is_no_sentence(write):
    assert read_columns(write(NER)) == [
        TaggedSentence(("U.N.", "official"), ("I-ORG", "O")),
        TaggedSentence(("Paris",), ("I-LOC",)),
    ]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_compressed_file_is_read_as_a_plain_one(compress, write):
    assert read_columns(write(compress(NER.encode()), "a")) == read_columns(write(NER, "b"))


def test_a_no_break_space_belongs_to_its_word(write):
    assert read_columns(write("1\u00a0000 O\r\n\u3000 O\r\n"))[0].words == ("1\u00a0000", "\u3000")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\n\nb\n", "line 3: 1 columns, expected 2 as in the first sentence"),
        ("a O\nb X O\n", "line 2: 3 columns, expected 2"),
        ("a\nb\n", "line 1: 1 column, expected a word first and its tag last"),
    ],
)
def test_malformed_columns_are_refused_with_their_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_columns(write(text))


def test_bytes_that_are_not_utf8_are_refused_with_their_line(write):
    with pytest.raises(InputError, match=r"file.txt, line 2: not UTF-8 \(byte 0xe9 at column 4\)"):
        read_columns(write(b"a O\ncaf\xe9 O\n"))


def test_a_truncated_file_is_refused(write):
    with pytest.raises(FormatError, match="was the file cut short"):
        read_columns(write(lzma.compress(NER.encode() * 1000)[:-40]))


def test_tags_that_are_of_no_scheme_are_refused_with_their_line(write):
    path = write("a B-X\nb VB\n")
    assert read_columns(path)[0].tags == ("B-X", "VB")
    with pytest.raises(FormatError, match="line 2: tag 'VB', expected O or one of B, I, M, E and"):
        read_columns(path, spans=True)


@pytest.mark.parametrize(
    ("name", "scheme", "sentences"),
    [
        ("ner_conll2003/train.conll.xz", "iob1", 14_041),
        ("ner_conll2003/dev.conll.xz", "iob1", 3_250),
        ("chunking_conll2000/train.conll.xz", "iob2", 8_936),
        ("zh_ner_resume/train.char.bmes", "bmes", 3_821),
        ("zh_ner_resume/dev.char.bmes", "bmes", 463),
    ],
)
def test_the_published_conll_files_are_read_completely(name, scheme, sentences, labelled):
    examples = read_columns(labelled / name, spans=True)
    assert len(examples) == sentences
    ill_formed = sum(convert_tags(example.tags, scheme) != example.tags for example in examples)
    assert ill_formed <= 0.002 * sentences  # a few mistakes of the annotators


def conllu_row(*cells):
    return "\t".join([*cells, *"_" * (10 - len(cells))]) + "\n"


CONLLU = (
    "# newdoc\n# text = I don't\n"
    + conllu_row("1", "I", "I", "PRON", "PRP")
    + conllu_row("2-3", "don't")
    + conllu_row("2", "do", "do", "AUX", "VBP")
    + conllu_row("3", "n't", "not", "PART", "RB")
    + conllu_row("3.1", "go", "go", "VERB", "VB")
    + "\n# text = #\n"
    + conllu_row("1", "#", "#", "SYM", "NN")
)


def test_words_are_the_syntactic_ones(write):
    path = write(CONLLU)
    words = ("I", "do", "n't")
    assert read_conllu(path)[0] == TaggedSentence(words, ("PRON", "AUX", "PART"))
    assert read_conllu(path)[1] == TaggedSentence(("#",), ("SYM",))


@pytest.mark.parametrize("text", [CONLLU, "I PRON\ndo AUX\nn't PART\n\n# SYM\n"])
def test_standard_input_is_read_once(text, monkeypatch):
    """The format is recognized by the first line."""
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode())))
    )
    first, second = TASKS["pos"].read(Path("-"))
    assert first == TaggedSentence(("I", "do", "n't"), ("PRON", "AUX", "PART"))
    assert second == TaggedSentence(("#",), ("SYM",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 I I PRON PRP _ _ _ _ _\n", "line 1: 1 columns between tabs, expected the 10"),
        (
            conllu_row("1", "I", "I", "PRON") + conllu_row("1", "go", "go", "VERB"),
            "line 2: ID '1', expected 2",
        ),
        (conllu_row("1", "I", "I", "PRN"), "line 1: label 'PRN', expected one of ADJ, ADP"),
        (
            conllu_row("1", "I", "I", "_", "PRP"),
            "line 1: upos is not given .* expected a tag in column 4",
        ),
        (conllu_row("1", "", "I", "PRON"), "line 1: an empty word"),
    ],
)
def test_malformed_conllu_is_refused_with_its_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_conllu(write(text))


@pytest.mark.parametrize(("part", "sentences"), [("train", 12_544), ("dev", 2_001)])
def test_the_published_conllu_files_are_read_completely(part, sentences, labelled):
    assert len(read_conllu(labelled / f"pos_ud_ewt/{part}.conllu.xz")) == sentences


def table(*rows):
    return "".join("\t".join(row.split()) + "\n" for row in rows)


PROPBANK = table(
    "0 I PRP - - (ARG0*) *",
    "1 will MD - - (ARGM-MOD*) *",
    "2 try VB try try.01 (V*) *",
    "3 to TO - - (ARG1* *",
    "4 go VB go go.02 *) (V*)",
)


def test_every_predicate_is_an_example(write):
    words = ("I", "will", "try", "to", "go")
    assert read_propbank(write(PROPBANK + "\n" + table("0 Hello UH - -"))) == [
        PredicateRoles(words, 2, "try.01", ("B-ARG0", "B-ARGM-MOD", "B-V", "B-ARG1", "I-ARG1")),
        PredicateRoles(words, 4, "go.02", ("O", "O", "O", "O", "B-V")),
    ]


def test_a_frame_may_stand_beside_the_last_word_of_a_predicate(write):
    rows = "0 x NN - - (V*)", "1 - HYPH - - *", "2 rays NNS xray xray.01 (C-V*)"
    assert read_propbank(write(table(*rows)))[0].predicate == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
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
def test_the_published_propbank_files_are_read_completely(part, predicates, labelled):
    assert len(read_propbank(labelled / f"srl_ewt/{part}.conll.xz")) == predicates
