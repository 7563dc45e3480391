"""elmo prepare, as a person would type it."""

import gzip
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

import elmokit

ELMO = [sys.executable, "-c", "from elmokit.cli import main; main()", "prepare"]
TEXT = "The cat sat. It slept.\nA dog sat.\n"


def elmo(*arguments, cwd, stdin=b"", code=0):
    """Run the command: what it wrote to stdout and stderr."""
    done = subprocess.run(
        [*ELMO, *map(str, arguments)], cwd=cwd, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def place(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text(TEXT)
    (tmp_path / "texts/b.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "texts/c.txt.xz").write_bytes(lzma.compress(TEXT.encode()))
    return tmp_path


def test_folders_globs_and_stdin_are_read_by_two_processes(place):
    out, err = elmo(
        "texts", "-", "--out", "corpus", "--workers", 2, "--no-valid",
        cwd=place, stdin=TEXT.encode(),
    )  # fmt: skip
    assert out.startswith("corpus: 12 sentences, 44 words, ")
    assert err == ""
    corpus = elmokit.Corpus.open(place / "corpus")
    assert corpus.sentences == 12
    assert corpus.lexicon[3:5] == [".", "sat"]


def test_a_fault_is_shown_with_its_file_and_line(place):
    Path(place, "texts/bad.txt").write_bytes(b"fine\n\xff\xfe\n")
    _, err = elmo("texts/*.txt", "--out", "corpus", "--workers", 1, cwd=place, code=1)
    assert err.splitlines() == [
        "texts/bad.txt, line 2: not UTF-8 (byte 0xff at column 1)",
        "elmo: 1 of the text's lines or files cannot be used (1 not UTF-8), all listed in "
        "corpus/faults.tsv; mend them, or leave them out with --skip-bad",
    ]
