"""`elmo pretrain` as a person would type it."""

import subprocess
import sys
from pathlib import Path

import pytest

import elmokit
from made import make_corpus

ELMO = Path(sys.executable).with_name("elmo")
SENTENCES = [f"the {a} cat sat on the {b} mat .".split() for a in "abc" for b in "defg"] * 3
SMALL = """
preset = "tiny"
dim = 8
cell_dim = 12
filters = [[1, 6], [2, 6]]
lanes = 4
steps = 5
negatives = 6
updates = 6
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrain")
    make_corpus(folder / "data", SENTENCES, valid=SENTENCES[:3])
    (folder / "small.toml").write_text(SMALL)
    return folder


def run(place, *arguments):
    return subprocess.run(
        [ELMO, "pretrain", "data", "--config", "small.toml", "--out", "run", *arguments],
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_dry_run_says_what_it_would_take_and_leaves_nothing(place):
    done = run(place, "--dry-run", "--lanes", "6")
    assert done.returncode == 0, done.stderr
    for told in ("parameters: encoder", "memory:", "updates: 6 of 30 words", "tokens/s", "hours"):
        assert told in done.stdout
    assert sorted(path.name for path in place.iterdir()) == ["data", "small.toml"]


def test_a_run_is_told_and_its_folder_is_a_model(place):
    done = run(place, "--log-every=2", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert "sampled loss forward" in done.stderr
    assert "perplexity (full softmax)" in done.stderr
    assert elmokit.load(place / "run").embed([["the", "cat"]])[0].shape == (3, 2, 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lanse", "6"], "no setting 'lanse'"),
        (["--lanes"], "--lanes needs a value"),
        (["--lanes", "many"], "lanes: "),
        (["lanes"], "neither an option nor the value of one"),
    ],
)
def test_a_mistake_is_one_line(place, arguments, message):
    done = run(place, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("elmo: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_settings_are_printed_as_a_file_that_can_be_given(place):
    done = run(place, "--settings", "--lanes", "12")
    (place / "printed.toml").write_text(done.stdout)
    assert "lanes = 12  # texts read side by side" in done.stdout
    again = run(place, "--config", "printed.toml", "--settings")
    assert again.stdout == done.stdout
    (place / "printed.toml").unlink()
