"""elmo pretrain, as a person would type it."""

import pytest

import elmokit
from made import make_corpus
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


def test_a_dry_run_estimates_the_run_and_leaves_no_files(pretrain, directory):
    output = succeeded(pretrain("--dry-run", "--batch-size", "6"))
    for part in ("parameters: encoder", "memory:", "steps: 6 of 30 words", "tokens/s", "time: "):
        assert part in output
    assert sorted(path.name for path in directory.iterdir()) == ["data", "small.toml"]


def test_a_run_reports_progress_and_saves_a_model(pretrain, directory):
    _, output, code = pretrain("--log-interval=2", "--epochs", "1")
    assert code == 0, output
    assert "sampled loss forward" in output
    assert "perplexity (full softmax)" in output
    assert elmokit.load(directory / "run").embed([["the", "cat"]])[0].shape == (3, 2, 16)
    _, output, _ = pretrain("--epochs", "1", "--log-interval=2")
    assert output == "resuming after step 6 of 6\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-szie", "6"], "no setting 'batch_szie'"),
        (["--batch-size"], "--batch-size needs a value"),
        (["--batch-size", "many"], "batch_size: "),
        (["batch-size"], "neither an option nor the value of one"),
        (["--init-from", "nowhere"], "nowhere: no such file or folder"),
    ],
)
def test_a_mistake_is_one_line(pretrain, arguments, message):
    failed(pretrain(*arguments), message)


def test_settings_are_printed_as_a_file_that_can_be_given(pretrain, directory):
    printed = succeeded(pretrain("--settings", "--batch-size", "12"))
    (directory / "printed.toml").write_text(printed)
    assert "batch_size = 12  # sequences per step" in printed
    assert succeeded(pretrain("--settings", config="printed.toml")) == printed
