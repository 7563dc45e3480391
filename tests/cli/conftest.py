import io
import sys

import pytest

import elmokit
from elmokit.cli import main
from random_models import make_folder
from typed import TEXT


@pytest.fixture
def elmo(capfd, monkeypatch):
    """Run the command in this process: its output, its error messages and its exit code."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["elmo", *map(str, arguments)])
        buffer = io.BufferedReader(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer))
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capfd.readouterr()
        return out, err, exit_.value.code

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A model with a softmax."""
    return make_folder(tmp_path_factory.mktemp("model"), softmax_words=9, size=1.5)


@pytest.fixture(scope="session")
def loaded(folder):
    """The same model, loaded."""
    return elmokit.load(folder)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path
