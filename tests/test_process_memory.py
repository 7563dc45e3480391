import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import elmokit
from elmokit import formats
from elmokit.model.bilm import LanguageModel
from elmokit.process_memory import drop_mapped_pages, trim_malloc
from random_models import SIZES

STATUS = Path("/proc/self/status")


def resident_mb(kind="RssAnon"):
    return int(STATUS.read_text().split(f"{kind}:")[1].split()[0]) / 1024


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="needs glibc, which can return freed memory",
)
def test_freed_memory_is_returned_to_the_system():
    blocks = [
        bytes([k % 256]) * 60_000 for k in range(1600)
    ]  # 96 MB, each below malloc's own limit
    remaining = blocks[::64]
    del blocks
    before = resident_mb()
    trim_malloc()
    assert before - resident_mb() > 60
    assert [block[0] for block in remaining] == [k % 256 for k in range(0, 1600, 64)]


def mapped_weights(folder):
    """64 MB of weights, and the same mapped from a file, all of them read."""
    weights = torch.rand(16, 2**20)
    save_file({"weights": weights}, folder / "w.safetensors")
    mapped = load_file(folder / "w.safetensors")["weights"]
    assert torch.equal(mapped, weights)
    return weights, mapped


needs_linux = pytest.mark.skipif(not STATUS.exists(), reason="needs /proc")


@needs_linux
def test_mapped_weights_are_freed_and_read_again(tmp_path):
    weights, mapped = mapped_weights(tmp_path)
    before = resident_mb("RssFile")
    drop_mapped_pages([mapped, weights])
    assert before - resident_mb("RssFile") > 60
    assert torch.equal(mapped, weights)


@needs_linux
def test_mapped_weights_that_were_written_to_stay(tmp_path):
    weights, mapped = mapped_weights(tmp_path)
    mapped[3, 5] = weights[3, 5] = 7.0
    drop_mapped_pages([mapped])
    assert torch.equal(mapped, weights)


@needs_linux
def test_an_embedder_holds_its_weights_once(tmp_path):
    config = replace(
        SIZES["small"], num_layers=2, cell_size=4096, projection_size=256
    )  # 76 MB of weights
    formats.save(elmokit.Pretrained(LanguageModel(elmokit.BiLM(config))), tmp_path / "model")
    english = elmokit.load()  # maps the compiler, too, unless compiled code is in the cache
    before = resident_mb("RssFile")
    model = elmokit.load(tmp_path / "model")
    encoder_mb = sum(weight.nbytes for weight in model.bilm.encoder.parameters()) / 2**20
    # The encoder's pages stay: all weights have been read, to check that they are finite.
    assert resident_mb("RssFile") - before < encoder_mb + 10
    assert english.dim == 448
    assert np.isfinite(model.embed([["a", "word"]])[0]).all()
