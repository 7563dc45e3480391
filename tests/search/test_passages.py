import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.files import find_files
from elmokit.search.passages import read_passages

TEXT = "  It  rained.\tWe left early! \n\n   \nOne “more” line, didn't it? 他走了。我们笑了。\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("passages")


def passages_of(folder, text=TEXT, *, tokenizer="moses", unit="sentences"):
    path = folder / "text.txt"
    path.write_bytes(text.encode())
    return [*read_passages(find_files([str(path)]), tokenizer=tokenizer, unit=unit)]


@pytest.mark.parametrize("unit", ["sentences", "paragraphs", "words"])
@pytest.mark.parametrize("tokenizer", ["moses", "spaces", "characters"])
def test_offsets_give_the_passage(tmp_path, unit, tokenizer):
    lines = TEXT.split("\n")
    for passage in passages_of(tmp_path, tokenizer=tokenizer, unit=unit):
        assert lines[passage.line - 1][passage.start : passage.end] == passage.text
        assert passage.text == passage.text.strip()


@given(st.text(), st.sampled_from(["moses", "spaces", "characters"]))
def test_offsets_are_right_in_any_text(folder, text, tokenizer):
    text = text.replace("\n", " ")
    for passage in passages_of(folder, text, tokenizer=tokenizer):
        assert passage.text == text.removeprefix("\ufeff")[passage.start : passage.end]
        assert passage.words


def test_lines_are_paragraphs_and_are_split_into_sentences(tmp_path):
    sentences = [passage.text for passage in passages_of(tmp_path)]
    assert sentences[:2] == ["It  rained.", "We left early!"]
    assert sentences[-2:] == ["他走了。", "我们笑了。"]
    paragraphs = passages_of(tmp_path, unit="paragraphs")
    assert [passage.line for passage in paragraphs] == [1, 4]
    assert paragraphs[0].sentences == (("It", "rained", "."), ("We", "left", "early", "!"))


def test_compressed_files_are_read_and_bad_bytes_reported(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"One two.\n"))
    (passage,) = read_passages(find_files([str(path)]), tokenizer="spaces", unit="sentences")
    assert passage.words == ("One", "two.")
    path.write_bytes(b"good\n\xff\n")
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        [*read_passages(find_files([str(path)]), tokenizer="spaces", unit="sentences")]
