import ctypes
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit.memory import give_back, set_aside

STATUS = Path("/proc/self/status")


def resident_mb(kind="RssAnon"):
    return int(STATUS.read_text().split(f"{kind}:")[1].split()[0]) / 1024


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


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux, which tells what is in memory")
def test_weights_of_a_mapped_file_leave_memory_and_come_back(tmp_path):
    drawn = torch.rand(16, 2**20)  # 64 MB
    save_file({"drawn": drawn}, tmp_path / "w.safetensors")
    mapped = load_file(tmp_path / "w.safetensors")["drawn"]
    assert torch.equal(mapped, drawn)  # all of it was read
    before, own = resident_mb("RssFile"), resident_mb()
    set_aside([mapped, drawn])
    if resident_mb("RssFile") == before:
        pytest.skip("this kernel does not let pages go when it is asked to")
    assert before - resident_mb("RssFile") > 60
    assert abs(own - resident_mb()) < 8  # what no file holds stays
    assert torch.equal(mapped, drawn)
