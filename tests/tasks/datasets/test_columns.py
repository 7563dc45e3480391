import gzip
import lzma

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.tasks.datasets.columns import read_columns
from elmokit.tasks.datasets.example_records import TaggedSentence
from elmokit.tasks.datasets.schemes import convert_tags

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
        ("", "holds no example"),
        ("\n \n-DOCSTART- O\n", "holds no example"),
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
def test_the_published_files_are_read_completely(name, scheme, sentences, labelled):
    examples = read_columns(labelled / name, spans=True)
    assert len(examples) == sentences
    ill_formed = sum(convert_tags(example.tags, scheme) != example.tags for example in examples)
    assert ill_formed <= 0.002 * sentences  # a few mistakes of the annotators
