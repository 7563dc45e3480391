"""Random models of the published sizes become tokens per second, beside AllenNLP where installed.

    make bench                                  # or: python benchmarks/embed.py [--sizes small]

A table for people, one JSON line last for machines. `README.md` says how to install AllenNLP.
"""

import argparse
import json
import lzma
import subprocess
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import torch

import elmokit
from elmokit import formats
from elmokit.config import SIZES
from elmokit.model.language_model import LanguageModel
from elmokit.text.split import splitter

HERE = Path(__file__).parent
ALLENNLP = HERE / "peers" / "allennlp" / "bin" / "python"
PROSE = HERE.parents[1] / "shared" / "data" / "lm" / "en" / "wikipedia_a.valid.txt.xz"
SENTENCES_PER_CALL = (1, 32, 64)
REPEATS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=["small", "original"], choices=SIZES)
    chosen = parser.parse_args().sizes
    sentences = prose(64)
    tokens = sum(map(len, sentences))
    print(f"{len(sentences)} sentences, {tokens} tokens, {torch.get_num_threads()} threads")
    print(f"float32 matrix product: {gemm_peak() / 1e9:.0f} GFLOP/s\n")
    print(f"{'model':9} {'sentences':>9} {'cold':>8} {'warm':>8} {'AllenNLP':>9} {'ratio':>6}")

    results = []
    for size in chosen:
        with tempfile.TemporaryDirectory() as folder:
            results += measure(size, sentences, Path(folder, "model"))
    print(json.dumps({"tokens": tokens, "gemm_flops": gemm_peak(), "results": results}))


def measure(size: str, sentences: list[list[str]], folder: Path) -> list[dict[str, object]]:
    """A row for each number of sentences a call."""
    torch.manual_seed(0)
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(SIZES[size])))
    formats.save(pretrained, folder, format="bilm-tf")
    peer = run_allennlp(folder, sentences)
    model = elmokit.load(folder)
    if peer:
        (ours,) = model.embed(sentences[:1], layers="top")
        difference = float(np.abs(ours[0] - np.array(peer["first"])).max())
        assert difference < 2e-6, f"AllenNLP's vectors differ by {difference}"

    rows = []
    for count in SENTENCES_PER_CALL:
        cold = speed(folder, sentences, count, warm=False)
        warm = speed(folder, sentences, count, warm=True)
        theirs = peer["tokens_per_second"][str(count)] if peer else None
        ratio = warm / theirs if theirs else None
        print(
            f"{size:9} {count:9} {cold:8.0f} {warm:8.0f} "
            f"{theirs or float('nan'):9.0f} {ratio or float('nan'):6.1f}"
        )
        rows.append(
            {
                "size": size, "sentences_per_call": count, "cold": cold, "warm": warm,
                "allennlp": theirs, "ratio": ratio,
            }
        )  # fmt: skip
    return rows


def speed(folder: Path, sentences: list[list[str]], count: int, *, warm: bool) -> float:
    """Tokens a second, best of several; warm: the words have been met before."""
    calls = [sentences[k : k + count] for k in range(0, len(sentences), count)]
    best = float("inf")
    model = elmokit.load(folder)
    for _ in range(REPEATS + warm):
        if not warm:
            model = elmokit.Embedder(model.pretrained)
        started = time.perf_counter()
        for call in calls:
            model.embed(call)
        best = min(best, time.perf_counter() - started)
    return sum(map(len, sentences)) / best


def run_allennlp(folder: Path, sentences: list[list[str]]) -> dict | None:
    """What AllenNLP's own modules do with the same files and sentences."""
    if not ALLENNLP.exists():
        return None
    listed = folder.parent / "sentences.json"
    listed.write_text(json.dumps(sentences), encoding="utf-8")
    files = [folder / "options.json", folder / "weights.hdf5", listed]
    done = subprocess.run(
        [ALLENNLP, HERE / "allennlp_peer.py", *files, *map(str, SENTENCES_PER_CALL)],
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(done.stdout.splitlines()[-1])


def prose(count: int) -> list[list[str]]:
    """English sentences of 5 to 45 words: Wikipedia's, or the licence's where that is not here."""
    if PROSE.exists():
        with lzma.open(PROSE, "rt", encoding="utf-8") as file:
            text = file.read(100_000)
    else:
        text = (HERE.parent / "LICENSE").read_text(encoding="utf-8")
    way = splitter("moses")
    words = (way.words(sentence) for sentence in way.sentences(text))
    found = [sentence for sentence in words if 5 <= len(sentence) <= 45]
    return [*islice(cycle(found), count)]


def gemm_peak() -> float:
    """The float32 operations a second that a large product reaches."""
    left, right = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - started)
    return 2 * 2048**3 / best


if __name__ == "__main__":
    main()
