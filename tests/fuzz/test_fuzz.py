import subprocess
import sys
from pathlib import Path

import pytest
from targets import TARGETS

FUZZ = Path(__file__).with_name("fuzz.py")


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_ends_in_a_result_or_in_an_error_of_ours(name):
    command = [sys.executable, str(FUZZ), name, "--executions", "300", "--minutes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert '"findings": 0' in done.stdout


@pytest.mark.full
def test_what_must_not_happen_is_found(tmp_path):
    """The harness itself: each of these readers breaks one promise."""
    program = tmp_path / "broken.py"
    program.write_text(BROKEN.format(fuzz=str(FUZZ)))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    expected = "ValueError at", "outside the folder", "os.system", "more than 1 sec", "MemoryError"
    for found in expected:
        assert found in done.stdout, done.stdout + done.stderr


BROKEN = """
import os, sys
from pathlib import Path
sys.path.insert(0, str(Path({fuzz!r}).parent))
import fuzz
import targets
fuzz.SECONDS = 1

def make(folder):
    (folder / "a.txt").write_text("valid")

calls = 0

def read(folder):
    global calls
    calls += 1
    if calls == 2:
        raise ValueError("an error that is not ours")
    if calls == 3:
        Path("outside.txt").write_text("x")
    if calls == 4:
        os.system("true")
    if calls == 5:
        while True:
            pass
    if calls == 6:
        bytearray(2**31)

targets.target("broken", make=make)(read)
fuzz.run_target("broken", seed=0, first=0, executions=8, seconds=60, findings=None)
"""
