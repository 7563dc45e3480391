import io
import sys

import pytest

from elmokit.cli import main


@pytest.fixture
def elmo(capfd, monkeypatch):
    """Run the command in this process: its output, its complaints and its exit code."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["elmo", *map(str, arguments)])
        given = io.BufferedReader(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code
            if isinstance(code, str):  # what the interpreter would do with it
                sys.stderr.write(code + "\n")
                code = 1
        out, err = capfd.readouterr()
        return out, err, code or 0

    return run
