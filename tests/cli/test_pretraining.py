"""Commands that pretrain a language model."""

import gzip
import lzma
import subprocess
import sys

import pytest

import elmokit
from random_models import make_corpus
from typed import failed, succeeded

SENTENCES = [f"the {a} cat sat on the {b} mat .".split() for a in "abc" for b in "defg"] * 3
SMALL = """
preset = "tiny"
projection_size = 8
cell_size = 12
filters = [[1, 6], [2, 6]]
batch_size = 4
sequence_length = 5
num_sampled = 6
steps = 6
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    make_corpus(tmp_path / "data", SENTENCES, valid=SENTENCES[:3])
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pretrain(elmo, directory):
    def run(*arguments, config="small.toml"):
        return elmo("pretrain", "data", "--config", config, "--out", "run", *arguments)

    return run


def test_a_dry_run_estimates_and_leaves_nothing(pretrain, directory):
    output = succeeded(pretrain("--dry-run", "--batch-size", "6"))
    for part in ("parameters: encoder", "memory:", "steps: 6 of 30 words", "tokens/s", "time: "):
        assert part in output
    assert "less than one in an epoch" in succeeded(pretrain("--dry-run", "--batch-size", "600"))
    assert sorted(path.name for path in directory.iterdir()) == ["data", "small.toml"]


def test_a_run_reports_progress_and_saves_a_model(pretrain, directory):
    _, output, code = pretrain("--log-interval=2", "--epochs", "1")
    assert code == 0, output
    assert "sampled loss forward" in output
    assert "perplexity (full softmax)" in output
    assert elmokit.load(directory / "run").embed([["the", "cat"]])[0].shape == (3, 2, 16)
    _, output, _ = pretrain("--epochs", "1", "--log-interval=2")
    assert output == "resuming after step 6 of 6\n"
    for dry_run in ([], ["--dry-run"]):
        failed(
            pretrain("--steps", "5", *dry_run), "run: this run has done 6 steps, more than the 5"
        )


def test_mistakes_are_one_line(pretrain):
    failed(pretrain("--init-from", "nowhere"), "nowhere: no such file or folder")
    failed(pretrain("--epochs", "0", "--steps", "0"), "0")
    failed(pretrain("--steps", "-1", config="tiny"), "elmo: --steps -1: steps is -1, expected 0 or")
    failed(pretrain("--filters", "3", config="tiny"), "filters.0 is 3, expected a list")
    failed(pretrain("--batch-size"), "requires an argument", code=2)
    failed(pretrain("--batch-size", "many"), "'--batch-size'", code=2)
    failed(pretrain("--optimizer", "adam"), "did you mean adamw?", code=2)
    failed(pretrain("batch-size"), "unexpected extra argument", code=2)


def test_settings_of_every_kind_are_options(pretrain):
    printed = succeeded(
        pretrain(
            "--settings", "--tie-weights", "--no-skip-connections", "--input", "words",
            "--cutoffs", "10,20", "--filters", "[[1, 8]]", "--learning-rate", "0.5",
        )
    )  # fmt: skip
    for line in (
        "tie_weights = true", "skip_connections = false", 'input = "words"', "cutoffs = [10, 20]",
        "filters = [[1, 8]]", "learning_rate = 0.5",
    ):  # fmt: skip
        assert line in printed


def test_settings_are_printed_as_a_file_that_can_be_given(pretrain, directory):
    printed = succeeded(pretrain("--settings", "--batch-size", "12"))
    (directory / "printed.toml").write_text(printed)
    assert "batch_size = 12  # sequences per step" in printed
    assert succeeded(pretrain("--settings", config="printed.toml")) == printed


LINES = "The cat sat. It slept.\nA dog sat.\n"


@pytest.fixture
def texts(tmp_path, monkeypatch):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text(LINES)
    (tmp_path / "texts/b.txt.gz").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "texts/c.txt.xz").write_bytes(lzma.compress(LINES.encode()))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "texts"


def test_prepare_reads_folders_and_stdin_in_two_processes(texts):
    # In a process of its own: this one has threads, and would be forked.
    arguments = ["texts", "-", "--out", "corpus", "--workers", "2", "--no-valid"]
    done = subprocess.run(
        [sys.executable, "-m", "elmokit", "prepare", *arguments],
        input=LINES.encode(), capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(
        b"corpus: 12 sentences, 44 words, 8 of them different; the 8 of the vocabulary "
    )
    assert done.stderr == b""
    corpus = elmokit.Corpus.open("corpus")
    assert corpus.sentences == 12
    assert corpus.lexicon[3:5] == [".", "sat"]


def test_prepare_lists_the_lines_that_cannot_be_used(elmo, texts):
    (texts / "bad.txt").write_bytes(b"fine\n\xff\xfe\n")
    done = elmo("prepare", "texts/*.txt", "--out", "corpus", "--workers", 1)
    failed(
        done, "1 of the text's lines or files cannot be used (1 not UTF-8), all listed in corpus"
    )
    assert "texts/bad.txt" in (texts.parent / "corpus" / "bad_lines.tsv").read_text()
