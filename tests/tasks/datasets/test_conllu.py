import io
import sys
from pathlib import Path

import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.columns import read_conllu
from elmokit.tasks.datasets.example_records import TaggedSentence
from elmokit.tasks.task_registry import TASKS


def row(*cells):
    return "\t".join([*cells, *"_" * (10 - len(cells))]) + "\n"


TEXT = (
    "# newdoc\n# text = I don't\n"
    + row("1", "I", "I", "PRON", "PRP")
    + row("2-3", "don't")
    + row("2", "do", "do", "AUX", "VBP")
    + row("3", "n't", "not", "PART", "RB")
    + row("3.1", "go", "go", "VERB", "VB")
    + "\n# text = #\n"
    + row("1", "#", "#", "SYM", "NN")
)


def test_words_are_the_syntactic_ones(write):
    path = write(TEXT)
    words = ("I", "do", "n't")
    assert read_conllu(path)[0] == TaggedSentence(words, ("PRON", "AUX", "PART"))
    assert read_conllu(path)[1] == TaggedSentence(("#",), ("SYM",))


@pytest.mark.parametrize("text", [TEXT, "I PRON\ndo AUX\nn't PART\n\n# SYM\n"])
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
        ("# only a comment\n", "holds no example"),
        ("1 I I PRON PRP _ _ _ _ _\n", "line 1: 1 columns between tabs, expected the 10"),
        (row("1", "I", "I", "PRON") + row("1", "go", "go", "VERB"), "line 2: ID '1', expected 2"),
        (row("1", "I", "I", "PRN"), "line 1: label 'PRN', expected one of ADJ, ADP"),
        (row("1", "I", "I", "_", "PRP"), "line 1: upos is not given .* expected a tag in column 4"),
        (row("1", "", "I", "PRON"), "line 1: an empty word"),
    ],
)
def test_malformed_conllu_is_refused_with_its_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_conllu(write(text))


@pytest.mark.parametrize(("part", "sentences"), [("train", 12_544), ("dev", 2_001)])
def test_the_published_files_are_read_completely(part, sentences, labelled):
    assert len(read_conllu(labelled / f"pos_ud_ewt/{part}.conllu.xz")) == sentences
