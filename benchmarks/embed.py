"""Speed of embedding with models of the published sizes, beside AllenNLP and simple_elmo.

    python benchmarks/embed.py [--sizes small original] [--file 5000] [--plot docs/speed.svg]
    python benchmarks/embed.py --busy [--sizes english small original]

With `--busy`, every operation is measured on the quiet machine and beside as many niced processes
that spin as half the CPUs, in turns; the command fails if one takes more than 2.2 times as long.

Prints a table for people, and a line of JSON for machines at the end. `README.md` says how to
install the packages to compare with.
"""

import argparse
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import numpy as np
import torch

import elmokit
from elmokit import formats
from elmokit.model.bilm import LanguageModel
from elmokit.pretraining.settings import PRESETS
from elmokit.search.index import Index
from elmokit.tokenizers import get_tokenizer

HERE = Path(__file__).parent
PROSE = HERE.parents[1] / "shared" / "data" / "lm" / "en" / "wikipedia_a.valid.txt.xz"
PEERS = {
    name: HERE / "peers" / name / "bin" / "python"
    for name in ("allennlp", "simple_elmo")
    if (HERE / "peers" / name / "bin" / "python").exists()
}
PRECISIONS = ("float32", "half", "int8")
SENTENCES_PER_CALL = (1, 8, 32, 64)
REPEATS = 3
BUSY_ROUNDS, BUSY_ROUNDS_OF_LONG = 5, 2  # long: more than two seconds
MAX_BUSY_RATIO = 2.2
SHORT = [
    "The old man sat on the bank of the river, and nobody knew why.",
    "She opened an account there.",
    "Work is good!",
    "It rained all day in the mountains, so they stayed at home.",
]
LOADING = """
import sys, time
import torch
started = time.perf_counter()
import elmokit
elmokit.load(sys.argv[1], precision=sys.argv[2])
print(time.perf_counter() - started)
"""

SIZES = ("small", "medium", "original", "english")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", default=["small", "original"], choices=SIZES)
    parser.add_argument(
        "--file", type=int, default=0,
        help="also a file of so many sentences (with --busy: 5,000; 500 for the Original)",
    )  # fmt: skip
    parser.add_argument("--plot", type=Path, help="draw the table as an SVG file")
    parser.add_argument("--busy", action="store_true", help="quiet against a busy machine")
    parser.add_argument("--measure-file", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure_file:
        measure_file(*chosen.measure_file)
        return

    sentences = prose(64)
    source = PROSE.name if PROSE.exists() else "LICENSE"
    print(f"{len(sentences)} sentences of {source}, {count_tokens(sentences)} tokens; ", end="")
    print(f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, ", end="")
    print(f"float32 product {gemm_peak() / 1e9:.0f} GFLOP/s")
    results = []
    if chosen.busy:
        for size in chosen.sizes:
            with tempfile.TemporaryDirectory() as folder:
                results += measure_busy(size, sentences, Path(folder), chosen.file)
        print(json.dumps({"tokens": count_tokens(sentences), "results": results}))
        slow = [f"{r['size']} {r['operation']}" for r in results if r["ratio"] > MAX_BUSY_RATIO]
        if slow:
            sys.exit(f"more than {MAX_BUSY_RATIO} times the quiet time: {', '.join(slow)}")
        return
    for size in chosen.sizes:
        with tempfile.TemporaryDirectory() as folder:
            results += measure_size(size, sentences, Path(folder, "model"), chosen.file)
    if chosen.plot:
        draw(results, chosen.plot)
    print(json.dumps({"tokens": count_tokens(sentences), "results": results}))


def measure_size(size: str, sentences: list, folder: Path, file_sentences: int) -> list[dict]:
    """A row for each number of sentences a call and each precision."""
    pretrained = make_pretrained(size)
    formats.save(pretrained, folder, format="bilm-tf")
    formats.save(pretrained, folder.parent / "native")
    models = {p: elmokit.Embedder(pretrained, elmokit.LoadOptions(precision=p)) for p in PRECISIONS}
    exact = models["float32"].embed(sentences)
    with ExitStack() as stack:
        peers = {n: stack.enter_context(Peer(n, folder, sentences)) for n in PEERS}
        if "allennlp" in peers:
            difference = np.abs(exact[0][2] - np.array(peers["allennlp"].first)).max()
            largest = max(1.0, np.abs(exact[0][2]).max())
            assert difference < 2e-6 * largest, f"AllenNLP's vectors differ by {difference}"
        for precision, model in models.items():
            vectors = model.embed(sentences)
            print(f"\n{size} {precision}: {describe_difference(vectors, exact)}")
            print(
                f"{size} {precision}: {describe_alone(pretrained, precision, sentences, vectors)}"
            )
        rows = measure_speeds(size, pretrained, models, sentences, peers)
    for precision in PRECISIONS:
        rows.append(run_load(size, precision, folder, folder.parent / "native"))
        if file_sentences:
            rows.append(run_file(size, precision, folder.parent / "native", file_sentences))
    return rows


def make_pretrained(size: str) -> elmokit.Pretrained:
    """The English model without its softmax, or random weights of a published size."""
    torch.manual_seed(0)
    bilm = formats.load().model.bilm if size == "english" else elmokit.BiLM(PRESETS[size].bilm(1))
    return elmokit.Pretrained(LanguageModel(bilm))


def measure_busy(size: str, sentences: list, folder: Path, file_sentences: int) -> list[dict]:
    """A row for each operation: its median seconds, quiet and busy, and their ratio."""
    pretrained = make_pretrained(size)
    english = formats.load() if size == "english" else None
    operations = file_operations(size, pretrained, folder, file_sentences)
    for precision in PRECISIONS:
        model = elmokit.Embedder(pretrained, elmokit.LoadOptions(precision=precision))
        for count in SENTENCES_PER_CALL:
            some = sentences[: max(count, 16)]
            operations[f"{precision} warm {count}"] = partial(one_pass, model, some, count)
        operations[f"{precision} cold 64"] = lambda precision=precision: one_pass(
            elmokit.Embedder(pretrained, elmokit.LoadOptions(precision=precision)),
            sentences,
            len(sentences),
        )
    if english is not None:
        model = elmokit.Embedder(english)
        operations["encode 200 short"] = partial(model.encode, SHORT * 50)
        operations["encode 50, 1 a call"] = lambda: [model.encode([t]) for t in SHORT * 12]
        operations["perplexity 64"] = partial(model.perplexity, sentences)
        operations["next words"] = partial(model.next_words, SHORT[0])
    print(f"\n{size}, seconds: the median (and the longest) of {BUSY_ROUNDS} rounds", end="")
    print(f", or of {BUSY_ROUNDS_OF_LONG} where one takes more than two seconds")
    print(f"{'':28} {'quiet':>16} {'busy':>16}   ratio")
    rows = []
    for name, operation in operations.items():
        rounds = BUSY_ROUNDS if seconds_of(operation) < 2 else BUSY_ROUNDS_OF_LONG
        quiet, busy = [], []
        for _ in range(rounds):
            quiet.append(seconds_of(operation))
            with spinning(max(1, (os.cpu_count() or 1) // 2)):
                busy.append(seconds_of(operation))
        row = {
            "size": size, "operation": name, "quiet": median(quiet), "busy": median(busy),
            "ratio": median(busy) / median(quiet),
        }  # fmt: skip
        print(
            f"{name:28} {row['quiet']:8.3f} ({max(quiet):.3f}) {row['busy']:8.3f} "
            f"({max(busy):.3f}) {row['ratio']:7.2f}",
            flush=True,
        )
        rows.append(row)
    return rows


def file_operations(
    size: str, pretrained: elmokit.Pretrained, folder: Path, file_sentences: int
) -> dict[str, Callable[[], object]]:
    """Loading the model, embedding a file, and building an index of a file, in a new folder."""
    count = file_sentences or (500 if size == "original" else 5000)
    lines = [" ".join(sentence) for sentence in prose(count)]
    text, vectors, index = folder / "text.txt", folder / "vectors.hdf5", folder / "index"
    text.write_text("".join(f"{line}\n" for line in lines[: count // 5]), encoding="utf-8")
    formats.save(pretrained, folder / "model")
    model = elmokit.Embedder(pretrained)

    def embed_file() -> None:
        vectors.unlink(missing_ok=True)
        elmokit.embed_file(model, lines, vectors, layers="mean", show_progress_bar=False)

    def build_index(kind: str) -> None:
        shutil.rmtree(index, ignore_errors=True)
        Index.build(index, [str(text)], model, kind=kind, show_progress_bar=False).close()

    return {
        **{
            f"load {precision}": partial(elmokit.load, folder / "model", precision=precision)
            for precision in PRECISIONS
        },
        f"a file of {count:,}": embed_file,
        **{
            f"an index of {count // 5:,}, {kind}": partial(build_index, kind)
            for kind in ("flat", "hnsw", "ivf")
        },
    }


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many niced processes that only compute, meanwhile.

    Each is in a session of its own, as in another terminal: Linux shares CPUs among sessions
    first, whatever their processes' niceness, so that each takes half a CPU.
    """
    command = ["nice", sys.executable, "-c", "while True: pass"]
    spinners = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        time.sleep(0.3)  # until they run
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def seconds_of(operation: Callable[[], object]) -> float:
    started = time.perf_counter()
    operation()
    return time.perf_counter() - started


def measure_speeds(size: str, pretrained, models: dict, sentences: list, peers: dict) -> list[dict]:
    """Tokens a second of every contender, the best of rounds in which each has its turn.

    A noisy machine then is noisy for all of them.
    """
    config = pretrained.model.bilm.config
    # Of the LSTMs, for a token.
    flops = 2 * 2 * config.num_layers * 9 * config.projection_size * config.cell_size
    contenders = {
        **{name: peer.speed for name, peer in peers.items()},
        **{p: partial(two_passes, model, sentences) for p, model in models.items()},
        **{
            f"cold {p}": lambda count, p=p: one_pass(
                elmokit.Embedder(pretrained, elmokit.LoadOptions(precision=p)), sentences, count
            )
            for p in PRECISIONS
        },
        "peak": lambda _: gemm_peak(),
    }
    print(f"\n{size:9} sentences          cold     warm  of wall", *(f"{n:>18}" for n in peers))
    rows = []
    for count in SENTENCES_PER_CALL:
        rounds = [{name: run(count) for name, run in contenders.items()} for _ in range(REPEATS)]
        best = {name: max(speeds[name] for speeds in rounds) for name in contenders}
        for precision in PRECISIONS:
            cold, warm = best[f"cold {precision}"], best[precision]
            row = {
                "size": size, "precision": precision, "sentences_per_call": count,
                "cold": cold, "warm": warm, "of_wall": warm * flops / best["peak"],
            }  # fmt: skip
            line = f"{'':8} {count:8}  {precision:8} {cold:6.0f} {warm:8.0f} {row['of_wall']:8.2f}"
            for name in peers:
                row |= {name: best[name], f"{name}_ratio": warm / best[name]}
                line += f" {best[name]:8.0f} ({warm / best[name]:5.1f} x)"
            print(line, flush=True)
            rows.append(row)
    return rows


def two_passes(model: elmokit.Embedder, sentences: list, count: int) -> float:
    """The better of two passes: the first has to find its memory again."""
    return max(one_pass(model, sentences, count) for _ in range(2))


def one_pass(model: elmokit.Embedder, sentences: list, count: int) -> float:
    """Tokens a second of all sentences, so many a call."""
    started = time.perf_counter()
    for start in range(0, len(sentences), count):
        model.embed(sentences[start : start + count])
    return count_tokens(sentences) / (time.perf_counter() - started)


def describe_difference(vectors: list, exact: list) -> str:
    """How far the vectors of a precision are from those of float32, in the top layer."""
    ours, theirs = (np.concatenate([array[-1] for array in arrays]) for arrays in (vectors, exact))
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosine = ((ours * theirs).sum(1) / norms).min()
    size = np.sqrt(np.square(theirs).mean())
    difference = np.abs(ours - theirs)
    return (
        f"differs from float32 by {difference.max():.1e} at most, {difference.mean():.1e} on "
        f"average (vectors of size {size:.2f}); worst cosine {cosine:.6f}"
    )


def describe_alone(pretrained, precision: str, sentences: list, together: list) -> str:
    """How far sentences embedded alone are from the same ones embedded together."""
    model = elmokit.Embedder(pretrained, elmokit.LoadOptions(precision=precision))
    alone = [model.embed([sentence])[0] for sentence in sentences[:16]]
    difference = max(np.abs(a - b).max() for a, b in zip(alone, together, strict=False))
    return f"alone differs from in a batch of {len(sentences)} by {difference:.1e} at most"


def run_load(size: str, precision: str, *folders: Path) -> dict:
    """Seconds from `import torch` to a model ready to embed, best of several fresh processes."""
    best = []
    for folder in folders:
        command = [sys.executable, "-c", LOADING, folder, precision]
        runs = [
            float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            for _ in range(REPEATS)
        ]
        best.append(min(runs))
    print(f"{'':8} {precision:8} opens in {best[0]:.2f} s (HDF5), {best[1]:.2f} s (safetensors)")
    return {
        "size": size, "precision": precision, "sentences_per_call": "load",
        "hdf5_seconds": best[0], "safetensors_seconds": best[1],
    }  # fmt: skip


def run_file(size: str, precision: str, folder: Path, count: int) -> dict:
    """A whole file in a process of its own, for its memory."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure-file", folder, precision, str(count)],
        check=True,
        stdout=subprocess.PIPE,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    weights = (folder / "model.safetensors").stat().st_size / 2**20
    print(
        f"{'':8} {precision:8} a file of {count:,}: {result['warm']:.0f} tokens/s, "
        f"peak {result['peak_mb']:.0f} MB (weights {weights:.0f} MB)"
    )
    return {"size": size, "precision": precision, "sentences_per_call": "file", **result}


def measure_file(folder: str, precision: str, count: str) -> None:
    model = elmokit.load(folder, precision=precision)
    sentences = prose(int(count))
    started = time.perf_counter()
    for _ in model.embed_stream(sentences):
        pass
    seconds = time.perf_counter() - started
    print(json.dumps({"warm": count_tokens(sentences) / seconds, "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """The most memory of this program; getrusage would count the process that started it too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


class Peer:
    """Another package in a process of its own, with the same files and sentences."""

    def __init__(self, name: str, folder: Path, sentences: list) -> None:
        listed = folder.parent / "sentences.json"
        listed.write_text(json.dumps(sentences), encoding="utf-8")
        files = [folder / "options.json", folder / "weights.hdf5", listed]
        self._process = subprocess.Popen(
            [PEERS[name], HERE / f"{name}_peer.py", *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.first = self._answer()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def speed(self, count: int) -> float:
        """Tokens a second, so many sentences a call."""
        assert self._process.stdin is not None
        print(count, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self):
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def prose(count: int) -> list[list[str]]:
    """English sentences of 5 to 45 words: Wikipedia's, or the licence's where that is not here."""
    if PROSE.exists():
        with lzma.open(PROSE, "rt", encoding="utf-8") as file:
            text = file.read(100_000 if count < 500 else 2_000_000)
    else:
        text = (HERE.parent / "LICENSE").read_text(encoding="utf-8")
    tokenizer = get_tokenizer("moses")
    tokenized = (tokenizer.tokenize(sentence) for sentence in tokenizer.split_sentences(text))
    return [*islice(cycle(words for words in tokenized if 5 <= len(words) <= 45), count)]


def count_tokens(sentences: list[list[str]]) -> int:
    return sum(map(len, sentences))


def gemm_peak() -> float:
    """The float32 operations a second that a large product reaches, now."""
    left, right = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - started)
    return 2 * 2048**3 / best


def draw(results: list[dict], path: Path) -> None:
    """Lines: tokens a second, warm, over the number of sentences a call, in logarithms."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    sizes = list(dict.fromkeys(row["size"] for row in results))
    figure, panels = pyplot.subplots(1, len(sizes), figsize=(5 * len(sizes), 3.4), squeeze=False)
    for panel, size in zip(panels[0], sizes, strict=True):
        rows = [r for r in results if r["size"] == size and "of_wall" in r]
        bars = {p: [r["warm"] for r in rows if r["precision"] == p] for p in PRECISIONS}
        for name in PEERS:
            bars[name] = [r[name] for r in rows if r["precision"] == "float32"]
        for name, heights in bars.items():
            ours = name in PRECISIONS
            panel.plot(
                SENTENCES_PER_CALL,
                heights,
                marker="o",
                linestyle="-" if ours else "--",
                label=f"elmokit {name}" if ours else {"allennlp": "AllenNLP"}.get(name, name),
            )
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(SENTENCES_PER_CALL, SENTENCES_PER_CALL)
        panel.yaxis.set_major_formatter("{x:,.0f}")
        panel.grid(axis="y", which="both", alpha=0.25)
        panel.set_xlabel("sentences a call")
        panel.set_ylabel("tokens a second")
        panel.set_title(size.capitalize())
    panels[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
