"""The benchmark of compiled layers."""

import json
import sys
from pathlib import Path

import pytest

from random_models import make_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kernels(script):
    return script("kernels")


@pytest.mark.full
@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_a_version_answers_with_the_seconds_of_passes(kernels, tmp_path, kernel):
    if kernel == "numba":
        pytest.importorskip("numba")
    folder = make_folder(tmp_path)
    files = json.dumps([str(folder / name) for name in ("options.json", "weights.hdf5")])
    sentences = tmp_path / "sentences.json"
    sentences.write_text(json.dumps([["a", "cat"], ["the", "dog", "ran"]]))
    with kernels.Contender(
        "elmokit_peer.py", files, sentences, kernel, "", python=Path(sys.executable), version=ROOT
    ) as contender:
        for precision in kernels.PRECISIONS:
            assert contender.first[precision]["cosine"] > 0.99
            seconds = contender.seconds(precision, 1, 2)
            assert len(seconds) >= 2
            assert min(seconds) > 0
        assert contender.first["float32"]["same_bits_alone"]


def test_the_table_shows_factors_to_the_peer_and_to_before(kernels, capsys):
    rows = [
        {
            "size": "small", "sentences": count, "precision": precision, "quiet": 1200.0,
            "before": 600.0, "allennlp": 100.0, "busy": 800.0, "allennlp_busy": None,
        }
        for count in kernels.SENTENCES_PER_CALL
        for precision in kernels.PRECISIONS
    ]  # fmt: skip
    kernels.print_speeds("small", rows)
    quiet, busy = capsys.readouterr().out.strip().split("\n\n")
    cells = ["1,200 (12.0 ×, 2.0 ×)"] * 3
    assert f"| Small | 1 | 100 | {' | '.join(cells)} |" in quiet
    assert f"| Small | 64 | – | {' | '.join(['800 (–, 1.50)'] * 3)} |" in busy
