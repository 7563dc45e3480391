"""Exported models: how exact, how large, how fast, beside elmokit.

    python benchmarks/onnx_export.py [--models english small] [--sentences 200] [--prose FILE.xz]

Runs onnxruntime in Python and, if `npm install` was run in packages/elmokit-js, onnxruntime-web in
Node. All use one thread; times are of the CPU, the best of three runs, so that other processes
disturb them little. Sentences are Wikipedia's, 32 per call.

Prints tables for people, and a line of JSON for machines at the end.
"""

import argparse
import json
import lzma
import os
import shutil
import subprocess
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime

import elmokit
from elmokit.model.bilm import LanguageModel
from elmokit.pretraining.settings import PRESETS

ROOT = Path(__file__).parents[1]
PROSE = ROOT.parent / "shared" / "data" / "lm" / "en" / "wikipedia_a.valid.txt.xz"
JAVASCRIPT = ROOT / "packages" / "elmokit-js"
SENTENCES_PER_CALL = 32
REPEATS = 3
NODE_SCRIPT = """
import { readFile } from "node:fs/promises";
import { load } from "%s/elmokit.js";
const [path, sentencesPath, perCall, repeats] = process.argv.slice(2);
const sentences = JSON.parse(await readFile(sentencesPath));
const began = performance.now();
const model = await load(await readFile(path), { threads: 1, tokensPerBatch: 1e9 });
const loading = (performance.now() - began) / 1000;
let best = Infinity;
for (let repeat = 0; repeat < repeats; repeat++) {
  const before = process.cpuUsage();
  for (let start = 0; start < sentences.length; start += Number(perCall)) {
    await model.embed(sentences.slice(start, start + Number(perCall)));
  }
  const { user, system } = process.cpuUsage(before);
  best = Math.min(best, (user + system) / 1e6);
}
console.log(JSON.stringify({ seconds: best, loading }));
process.exit();
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["english"], help="english, small …")
    parser.add_argument("--sentences", type=int, default=200, help="how many to embed")
    parser.add_argument("--prose", type=Path, default=PROSE, help="a .xz file, a sentence a line")
    arguments = parser.parse_args()
    sentences = read_sentences(arguments.prose, arguments.sentences)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            results.append(measure(name, sentences, Path(folder)))
    print_tables(results)
    print(json.dumps({"results": results, "onnxruntime": onnxruntime.__version__}))


def measure(name: str, sentences: list[list[str]], folder: Path) -> dict[str, object]:
    model = open_model(name)
    words = sum(map(len, sentences))
    expected = model.embed(sentences)
    batches = [
        sentences[start : start + SENTENCES_PER_CALL]
        for start in range(0, len(sentences), SENTENCES_PER_CALL)
    ]

    def embed() -> None:
        model.session._cache.clear()  # as onnxruntime, which has no cache of words
        for batch in batches:
            model.embed(batch)

    speed = {"elmokit": words / seconds(embed)}
    sizes, difference, cosine, loading = {}, 0.0, 1.0, {}
    (folder / "sentences.json").write_text(json.dumps(sentences))
    softmaxes = (False, True) if model.pretrained.model.softmax is not None else (False,)
    for int8 in (False, True):
        for softmax in softmaxes:
            kind = ("int8" if int8 else "float32") + (" + softmax" if softmax else "")
            path = folder / f"{name} {kind}.onnx"
            elmokit.export_onnx(model, path, int8=int8, softmax=softmax)
            sizes[kind] = path.stat().st_size / 1e6
            if softmax:
                continue
            session = open_session(path)
            feeds = [make_feeds(model, batch) for batch in batches]
            layers = [session.run(["layers"], feed)[0] for feed in feeds]
            found = [layer[:, row] for layer in layers for row in range(layer.shape[1])]
            if int8:
                cosine = worst_cosine(found, expected)
            else:
                difference = largest_difference(found, expected)

            def run(session: onnxruntime.InferenceSession = session) -> None:
                for batch in batches:
                    session.run(["layers"], make_feeds(model, batch))

            speed[f"onnxruntime, {kind}"] = words / seconds(run)
            if node := run_node(path, folder):
                speed[f"Node's WebAssembly, {kind}"] = words / node["seconds"]
                loading[kind] = node["loading"]
    return {
        "model": name, "megabytes": sizes, "largest_difference": difference,
        "worst_cosine_of_int8": cosine, "words_per_second": speed, "seconds_to_load": loading,
    }  # fmt: skip


def open_model(name: str) -> elmokit.Embedder:
    if name == "english":
        return elmokit.load(threads=1)
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(PRESETS[name].bilm(1))))
    return elmokit.Embedder(pretrained, elmokit.LoadOptions(threads=1))


def open_session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def make_feeds(model: elmokit.Embedder, sentences: list[list[str]]) -> dict[str, np.ndarray]:
    batch = elmokit.Batch.from_sentences(sentences, model.pretrained.indexer)
    return {"chars": batch.chars.numpy(), "words": batch.words.numpy()}


def seconds(function: object) -> float:
    """The CPU time of a call, the best of several."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        function()
        best = min(best, time.process_time() - began)
    return best


def run_node(path: Path, folder: Path) -> dict[str, float] | None:
    node = shutil.which("node")
    if node is None or not (JAVASCRIPT / "node_modules" / "onnxruntime-web").is_dir():
        return None
    script = folder / "embed.mjs"
    script.write_text(NODE_SCRIPT % JAVASCRIPT.as_posix())
    arguments = [path, folder / "sentences.json", SENTENCES_PER_CALL, REPEATS]
    done = subprocess.run(
        [node, script, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def largest_difference(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    pairs = zip(found, expected, strict=True)
    return float(max(np.abs(f[:, 1 : e.shape[1] + 1] - e).max() for f, e in pairs))


def worst_cosine(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    worst = 1.0
    for f, e in zip(found, expected, strict=True):
        rows = f[:, 1 : e.shape[1] + 1]
        lengths = np.linalg.norm(rows, axis=-1) * np.linalg.norm(e, axis=-1)
        worst = min(worst, float(((rows * e).sum(-1) / lengths).min()))
    return worst


def read_sentences(path: Path, count: int) -> list[list[str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [*islice((words for line in file if (words := line.split())), count)]


def print_tables(results: list[dict[str, object]]) -> None:
    print("| model | largest difference, float32 | smallest cosine, int8 | MB |")
    print("| --- | --- | --- | --- |")
    for result in results:
        sizes = ", ".join(f"{kind} {size:.1f}" for kind, size in result["megabytes"].items())
        print(
            f"| {result['model']} | {result['largest_difference']:.1e} | "
            f"{result['worst_cosine_of_int8']:.5f} | {sizes} |"
        )
    print("\n| model | what runs it | words per second of CPU | of elmokit |")
    print("| --- | --- | --- | --- |")
    for result in results:
        for runner, speed in result["words_per_second"].items():
            ratio = speed / result["words_per_second"]["elmokit"]
            print(f"| {result['model']} | {runner} | {speed:,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
