"""Exported models: how exact, how large, how fast, beside elmokit.

    python benchmarks/onnx_export.py [--models english small] [--sentences 200] [--prose FILE.xz]

Runs onnxruntime in Python and, if `npm install` was run in packages/elmokit-js, onnxruntime-web in
Node and, if it is installed with playwright, in Chromium. All use one thread, Chromium also two.
Times are of the CPU, the best of three runs, so that other processes disturb them little; those of
Chromium are of the clock. Sentences are Wikipedia's, sorted by length and cut into batches of 1,024
words.

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
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Thread
from urllib.parse import quote, unquote

import numpy as np
import onnxruntime

import elmokit
from elmokit.batching import token_batches
from elmokit.model.bilm import LanguageModel
from elmokit.pretraining.settings import PRESETS

ROOT = Path(__file__).parents[1]
PROSE = ROOT.parent / "shared" / "data" / "lm" / "en" / "wikipedia_a.valid.txt.xz"
JAVASCRIPT = ROOT / "packages" / "elmokit-js"
TOKENS_PER_BATCH = 1024
REPEATS = 3
NODE_SCRIPT = """
import { readFile } from "node:fs/promises";
import { load } from "%s/elmokit.js";
const [path, sentencesPath, tokensPerBatch, repeats] = process.argv.slice(2);
const sentences = JSON.parse(await readFile(sentencesPath));
const options = { threads: 1, tokensPerBatch: Number(tokensPerBatch) };
const model = await load(await readFile(path), options);
let best = Infinity;
for (let repeat = 0; repeat < repeats; repeat++) {
  const before = process.cpuUsage();
  await model.embed(sentences);
  const { user, system } = process.cpuUsage(before);
  best = Math.min(best, (user + system) / 1e6);
}
console.log(JSON.stringify({ seconds: best }));
process.exit();
"""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
IN_CHROMIUM = """async ([model, sentences, tokensPerBatch, repeats, threads]) => {
    const began = performance.now();
    const { loadInWorker } = await import("/elmokit-js/elmokit.js");
    const options = { runtime: "/runtime/ort.wasm.min.mjs", threads, tokensPerBatch };
    const loaded = await loadInWorker(model, options);
    await loaded.embed([["I", "ate", "an", "apple"]]);
    const first = (performance.now() - began) / 1000;
    let best = Infinity;
    for (let repeat = 0; repeat < repeats; repeat++) {
        const start = performance.now();
        await loaded.embed(sentences);
        best = Math.min(best, (performance.now() - start) / 1000);
    }
    return { seconds: best, first };
}"""


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
    lengths = [len(sentence) + 2 for sentence in sentences]
    batches = [
        [sentences[index] for index in indices]
        for indices in token_batches(lengths, TOKENS_PER_BATCH)
    ]
    expected = [vectors for batch in batches for vectors in model.embed(batch)]

    def embed() -> None:
        model.session._cache.clear()  # as onnxruntime, which has no cache of words
        model.embed(sentences)

    speed = {"elmokit": words / seconds(embed)}
    sizes, difference, cosine, first_vector = {}, 0.0, 1.0, {}
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
            for threads in (1, 2):
                if found_there := run_chromium(path, sentences, threads=threads):
                    name_of_runner = f"Chromium's WebAssembly, {kind}, threads: {threads}"
                    speed[name_of_runner] = words / found_there["seconds"]
                    first_vector[name_of_runner] = found_there["first"]
    return {
        "model": name, "megabytes": sizes, "largest_difference": difference,
        "worst_cosine_of_int8": cosine, "words_per_second": speed,
        "seconds_to_first_vector": first_vector,
    }  # fmt: skip


def open_model(name: str) -> elmokit.Embedder:
    if name == "english":
        return elmokit.load(threads=1, tokens_per_batch=TOKENS_PER_BATCH)
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(PRESETS[name].bilm(1))))
    return elmokit.Embedder(
        pretrained, elmokit.LoadOptions(threads=1, tokens_per_batch=TOKENS_PER_BATCH)
    )


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
    arguments = [path, folder / "sentences.json", TOKENS_PER_BATCH, REPEATS]
    done = subprocess.run(
        [node, script, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def run_chromium(
    path: Path, sentences: list[list[str]], *, threads: int
) -> dict[str, float] | None:
    """Seconds to embed, and to the first vector after a page was opened with nothing cached."""
    runtime = JAVASCRIPT / "node_modules" / "onnxruntime-web" / "dist"
    if CHROMIUM is None or find_spec("playwright") is None or not runtime.is_dir():
        return None
    from playwright.sync_api import sync_playwright

    folders = {"elmokit-js": JAVASCRIPT, "runtime": runtime, "model": path.parent}
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(IsolatedPages, folders))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.set_default_timeout(0)
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            address = f"/model/{quote(path.name)}"
            values = [address, sentences, TOKENS_PER_BATCH, REPEATS, threads]
            found: dict[str, float] = page.evaluate(IN_CHROMIUM, values)
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    return found


class IsolatedPages(SimpleHTTPRequestHandler):
    """Files of several folders on a page that may use threads."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def __init__(self, folders: dict[str, Path], *arguments: object) -> None:
        self.folders = folders
        super().__init__(*arguments)

    def do_GET(self) -> None:
        if self.path.split("/")[1] in self.folders:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!DOCTYPE html><title>elmokit-js</title>")

    def translate_path(self, path: str) -> str:
        folder, _, name = unquote(path).lstrip("/").partition("/")
        return str(self.folders[folder] / name)

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


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
    print("\n| model | what runs it | words per second | of elmokit | first vector |")
    print("| --- | --- | --- | --- | --- |")
    for result in results:
        for runner, speed in result["words_per_second"].items():
            ratio = speed / result["words_per_second"]["elmokit"]
            first = result["seconds_to_first_vector"].get(runner)
            shown = "" if first is None else f"{first:.1f} s"
            print(f"| {result['model']} | {runner} | {speed:,.0f} | {ratio:.2f} | {shown} |")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
