import ctypes
from pathlib import Path

import pytest

from elmokit.memory import give_back

STATUS = Path("/proc/self/status")


def resident_mb():
    return int(STATUS.read_text().split("RssAnon:")[1].split()[0]) / 1024


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="needs glibc, which can be asked for what it keeps",
)
def test_gaps_between_what_stays_are_given_back():
    blocks = [
        bytes([k % 256]) * 60_000 for k in range(1600)
    ]  # 96 MB, each below malloc's own limit
    kept = blocks[::64]
    del blocks
    before = resident_mb()
    give_back()
    assert before - resident_mb() > 60
    assert [block[0] for block in kept] == [k % 256 for k in range(0, 1600, 64)]
