"""The JavaScript package in Node and in Chromium, against this package's numbers."""

import json
import lzma
import os
import random
import re
import shutil
import subprocess
from difflib import SequenceMatcher
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import elmokit
from elmokit.batching import index_words
from elmokit.character_ids import CharacterIndexer, LexiconIndexer, WordIndexer
from elmokit.model.softmax import Softmax
from elmokit.pooling import HEADS, POOLINGS
from elmokit.tokenizers import get_tokenizer
from elmokit.vocab import Vocabulary
from test_onnx_export import LEXICONS, MODELS, VOCABULARY, make_model, random_sentences

pytest.importorskip("onnx", reason="needs elmokit[onnx]")

PACKAGE = Path(__file__).parents[1] / "packages" / "elmokit-js"
RUNTIME = PACKAGE / "node_modules" / "onnxruntime-web"
NODE = shutil.which("node")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
SENTENCES = [["I", "ate", "an", "apple"], ["word1", "word7", "数学"], [], ["x" * 70, "😀", "word1"]]


@pytest.fixture(scope="module")
def node():
    if NODE is None:
        pytest.skip("needs Node, which is not installed")
    if not RUNTIME.is_dir():
        pytest.skip(f"needs onnxruntime-web: run `npm install` in packages/{PACKAGE.name}")
    return NODE


@pytest.mark.full
def test_node_gives_the_same_ids_vectors_and_predictions(node, tmp_path):
    write_ids(tmp_path)
    write_batches(tmp_path)
    softmax = partial(Softmax, len(VOCABULARY), 6)
    models = {
        "bytes": make_model(softmax=softmax()),
        "forward": make_model(softmax=softmax(), directions=("forward",)),
        "backward": make_model(softmax=softmax(), directions=("backward",)),
        "words": make_model(softmax=softmax(), **MODELS["words"]),
        "lexicons": make_model(**MODELS["lexicons"]),
        "english": elmokit.load(),
    }
    for name, model in models.items():
        write_model(tmp_path, name, model)
    write_int8(tmp_path, models["english"])
    (tmp_path / "models.json").write_text(json.dumps([*models, "int8"]))
    done = run_tests(node, ELMOKIT_EXPECTED=tmp_path)
    skipped, passed = (
        int(re.search(rf"^# {kind} (\d+)$", done, re.MULTILINE)[1]) for kind in ("skipped", "pass")
    )
    assert skipped == 0
    assert passed >= 40


@pytest.mark.full
def test_text_is_split_as_moses_splits_it_as_often_as_the_readme_says(node, tmp_path, shared):
    moses = get_tokenizer("moses")
    packed = shared / "data" / "tasks" / "qa_squad" / "dev.json.xz"
    articles = json.loads(lzma.decompress(packed.read_bytes()))["data"]
    texts = [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]
    sentences = [sentence for text in texts for sentence in moses.split_sentences(text)]
    (tmp_path / "sentences.json").write_text(json.dumps(sentences))
    done = subprocess.run(
        [node, "--input-type=module", "-e", SPLIT, tmp_path / "sentences.json"],
        cwd=PACKAGE, capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected, found = [moses.tokenize(sentence) for sentence in sentences], json.loads(done.stdout)
    same = sum(one == other for one, other in zip(expected, found, strict=True))
    words = sum(
        block.size
        for pair in zip(expected, found, strict=True)
        for block in SequenceMatcher(None, *pair, autojunk=False).get_matching_blocks()
    )
    readme = (PACKAGE / "README.md").read_text("utf-8")
    assert f"{len(sentences):,} sentences" in readme
    assert f"{same / len(sentences):.0%}".replace("%", " %") in readme
    assert f"{words / sum(map(len, expected)):.1%}".replace("%", " %") in readme


SPLIT = """
import { readFileSync } from "node:fs";
import { splitWords } from "./words.js";
const sentences = JSON.parse(readFileSync(process.argv[1], "utf-8"));
console.log(JSON.stringify(sentences.map(splitWords)));
"""


@pytest.mark.full
def test_the_example_of_the_readme_prints_what_it_shows(node, tmp_path):
    readme = (PACKAGE / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (code,) = (text for language, text in blocks if language == "js")
    (printed,) = (text for language, text in blocks if language == "")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "elmokit-js").symlink_to(PACKAGE)
    elmokit.export_onnx(elmokit.load(), tmp_path / "english.onnx", int8=True, softmax=True)
    (tmp_path / "example.mjs").write_text(code)
    done = subprocess.run(
        [node, "example.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == printed, done.stderr


@pytest.mark.full
def test_the_packed_package_has_every_file_that_its_modules_import(node):
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, which is not installed")
    command = [npm, "pack", "--dry-run", "--json"]
    done = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, check=True)
    packed = {file["path"] for file in json.loads(done.stdout)[0]["files"]}
    modules = {path.name for path in PACKAGE.glob("*.js")}
    assert packed == {*modules, "elmokit.d.ts", "package.json", "README.md", "LICENSE"}
    settings = json.loads((PACKAGE / "package.json").read_text())
    assert settings["version"] == elmokit.__version__
    assert [*settings["dependencies"]] == ["onnxruntime-web"]
    for name in modules:
        code = (PACKAGE / name).read_text("utf-8")
        imported = re.findall(r'(?:from|new URL\()\s*"\./([^"]+)"', code)
        assert {*imported} <= packed, name


IN_CHROMIUM = """async ([address, runtime, sentences, text]) => {
    const { loadInWorker, load } = await import("./elmokit-js/elmokit.js");
    const progress = [];
    const onProgress = (step) => progress.push(step);
    const model = await loadInWorker(address, { runtime, onProgress });
    let frames = 0, running = true;
    const count = () => { frames += 1; if (running) requestAnimationFrame(count); };
    requestAnimationFrame(count);
    const many = Array.from({ length: 60 }, () => sentences).flat();
    await model.embed(many);
    running = false;
    const [vectors] = await model.embed(sentences.slice(0, 1));
    const result = {
        info: model.info, frames, progress, vectors: [...vectors.data], words: vectors.words,
        last: [...vectors.vector(2, 1)], encoded: [...(await model.encode([text]))[0]],
        next: await model.nextWords(sentences[0], 5),
    };
    const mistakes = await Promise.allSettled([
        model.embed("one text"), loadInWorker("missing.onnx", { runtime }),
        loadInWorker("index.html", { runtime }), load(address, { runtime: "missing.mjs" }),
    ]);
    await model.release();
    mistakes.push(...(await Promise.allSettled([model.embed(sentences)])));
    return { ...result, mistakes: mistakes.map(({ reason }) => reason.message) };
}"""


@pytest.mark.full
def test_a_worker_computes_in_chromium_under_a_strict_policy(node, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium, which is not installed")
    model = elmokit.load()
    site = tmp_path / "a folder" / "site"
    shutil.copytree(PACKAGE, site / "elmokit-js", ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(RUNTIME / "dist", site / "ort", ignore=shutil.ignore_patterns("*.map"))
    (site / "index.html").write_text("<!DOCTYPE html><title>elmokit-js</title>")
    elmokit.export_onnx(model, site / "english.onnx", softmax=True, int8=True)
    elmokit.export_onnx(model, site / "exact.onnx", softmax=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(StrictPages, directory=tmp_path))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/a%20folder/site/index.html")
            text = "I ate an apple. It was good."
            values = ["exact.onnx", "./ort/ort.wasm.min.mjs", SENTENCES, text]
            found = page.evaluate(IN_CHROMIUM, values)
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    size = (site / "exact.onnx").stat().st_size
    assert found["info"]["fingerprint"] == model.pretrained.fingerprint()
    assert found["progress"][-1] == {"loaded": size, "total": size}
    expected = model.embed(SENTENCES[:1])[0]
    np.testing.assert_allclose(found["vectors"], expected.ravel(), atol=1e-5)
    np.testing.assert_allclose(found["last"], expected[2, 1], atol=1e-5)
    np.testing.assert_allclose(found["encoded"], model.encode(text, layers="mean"), atol=1e-5)
    words = [word.word for word in model.next_words(SENTENCES[0], k=5)]
    assert [prediction["word"] for prediction in found["next"]] == words
    assert found["frames"] > 10  # the page was drawn while the worker computed
    assert [re.sub("http://[^ ]*/", "", mistake) for mistake in found["mistakes"]] == [
        "sentences: expected a list of lists of words",
        "missing.onnx: the server answered 404, expected a model",
        "index.html: not a model for elmokit-js; expected a file that `elmo export` wrote",
        "onnxruntime-web cannot be loaded (Failed to resolve module specifier 'missing.mjs'); "
        "install it, or name its address with the option runtime",
        "the model was released",
    ]


class StrictPages(SimpleHTTPRequestHandler):
    """Files, under a strict content-security policy."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def end_headers(self):
        policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'"
        self.send_header("Content-Security-Policy", policy)
        super().end_headers()

    def log_message(self, *_):
        """Keep quiet."""


def run_tests(node, **environment):
    """The package's tests, which must pass: what they print."""
    done = subprocess.run(
        [node, "--test", "--test-reporter=tap", "test/"],
        cwd=PACKAGE, env=os.environ | {name: str(value) for name, value in environment.items()},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def write_ids(folder):
    """Thousands of random words, with the ids of each kind of model."""
    words = fuzzed_words(5000)
    listed = [word for word in words if not re.search("[\ud800-\udfff]", word)][::3]
    cases = {
        "bytes": (CharacterIndexer(50), {"ids": "bytes", "max_characters": "50"}),
        "short": (CharacterIndexer(6), {"ids": "bytes", "max_characters": "6"}),
        "words": (
            WordIndexer(Vocabulary([*VOCABULARY, *listed, "word3"])),
            {"ids": "words", "vocabulary": json.dumps([*VOCABULARY, *listed, "word3"])},
        ),
        "lexicons": (
            LexiconIndexer(LEXICONS, 20),
            {
                "ids": "lexicons", "max_characters": "20",
                "lexicon_characters": json.dumps([*LEXICONS.characters]),
                "lexicon_words": json.dumps([*LEXICONS.words]),
            },
        ),
    }  # fmt: skip
    expected = []
    for name, (indexer, metadata) in cases.items():
        ids, _ = indexer.encode(words)
        (folder / f"{name}.ids").write_bytes(ids.astype("<i4").tobytes())
        expected.append({"name": name, "metadata": metadata, "words": words, "rows": f"{name}.ids"})
    (folder / "ids.json").write_text(json.dumps(expected))


def fuzzed_words(count):
    """Words of all of Unicode, half of pairs of surrogates, names of JavaScript, boundaries."""
    chance = random.Random(0)
    special = [
        "<S>", "</S>", "<UNK>", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", "", "\0",
        "constructor", "__proto__", "toString", "hasOwnProperty", "\ufeff", "word3", "the",
        "\ud800", "a\udfff", "\ud800x\ud800", "é", "e\u0301", "a" * 48, "a" * 49, "é" * 24,
        "👩‍👩‍👧", "é" * 25, "数" * 16, "😀" * 12, "a" + "😀" * 12,
    ]  # fmt: skip
    ranges = [(32, 127), (0xA0, 0x250), (0x370, 0x600), (0x4E00, 0xA000), (0x1F300, 0x1FA00)]
    ranges += [(0, 0xD800), (0xE000, 0x110000)]
    for _ in range(count - len(special)):
        low, high = chance.choice(ranges)
        length = chance.choice([1, 2, 3, 5, 8, 13, 30, 60])
        special.append("".join(chr(chance.randrange(low, high)) for _ in range(length)))
    return special


def write_batches(folder):
    draw = np.random.default_rng(0)
    batches = [[["<S>", "a", "</S>"]], [[]], [["a"], ["b", "a", "toString", "__proto__"]]]
    batches += [random_sentences(draw) for _ in range(20)]
    expected = []
    for sentences in batches:
        types, words = index_words(sentences)
        expected.append({"sentences": sentences, "types": types, "words": words.tolist()})
    (folder / "batches.json").write_text(json.dumps(expected))


def write_model(folder, name, model):
    """A model with what its methods give."""
    pretrained, config = model.pretrained, model.bilm.config
    softmax = pretrained.model.softmax is not None
    elmokit.export_onnx(model, folder / f"{name}.onnx", softmax=softmax)
    sentences = [*SENTENCES, *random_sentences(np.random.default_rng(1), count=12)]
    write_layers(folder, name, model, sentences)
    texts = [["word1", "dog", "."], ["word2", "Word3", "!", "dog"], ["!", "?"], []]
    encoded = []
    for pooling in POOLINGS:
        if pooling in HEADS or (pooling == "idf" and not softmax):
            continue
        for layers in ("mean", "top", "all", "concat", "sum", 0, -2, [1, 0]):
            vectors = model.encode(texts, layers=layers, pooling=pooling)
            encoded.append({
                "options": {"layers": layers, "pooling": pooling}, "texts": texts,
                "vectors": vectors.reshape(len(texts), -1).tolist(),
            })  # fmt: skip
    unit = model.encode(texts, layers="mean", normalize_embeddings=True).tolist()
    encoded.append({"options": {"normalize": True}, "texts": texts, "vectors": unit})
    asked = []
    for sentence in SENTENCES[:3] if softmax else []:
        for direction in config.directions:
            ask = model.next_words if direction == "forward" else model.previous_words
            words = ask(sentence, k=7)
            asked.append({"text": sentence, "direction": direction, "k": 7, "words": words})
    if softmax:
        for text in (["word1", "___", "word2"], ["___", "word1", "___"]):
            words = model.fill(text, k=5)
            asked.append({"text": text, "direction": "fill", "k": 5, "words": words})
    scores = [score.log_probability for score in model.score(sentences)] if softmax else []
    info = {
        "fingerprint": pretrained.fingerprint(), "layers": model.num_layers, "dim": model.dim,
        "directions": list(config.directions), "softmax": softmax, "precision": "float32",
        "vocabularySize": len(VOCABULARY) if softmax and name != "english" else None,
    }  # fmt: skip
    if name == "english":
        info["vocabularySize"] = len(pretrained.vocabulary)
    expected = {
        "sentences": sentences, "layers": f"{name}.layers", "encoded": encoded, "asked": asked,
        "scores": scores, "info": info, "tolerance": 1e-5,
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(expected))


def write_layers(folder, name, model, sentences):
    arrays = [array.astype("<f4").tobytes() for array in model.embed(sentences)]
    (folder / f"{name}.layers").write_bytes(b"".join(arrays))


def write_int8(folder, english):
    """The English model in 8 bits, whose vectors are compared by their cosine."""
    elmokit.export_onnx(english, folder / "int8.onnx", int8=True)
    sentences = [
        words
        for text in (
            "The bank of the river was steep. He put his money in the bank.",
            "She didn't know why; nobody did, in 1,234 years.",
        )
        for words in english.tokenize(text)
    ]
    write_layers(folder, "int8", english, sentences)
    expected = {
        "sentences": sentences, "layers": "int8.layers", "encoded": [], "asked": [], "scores": [],
        "info": {"precision": "int8", "softmax": False, "licence": "cc-by-sa-3.0"},
        "tolerance": None,
    }  # fmt: skip
    (folder / "int8.json").write_text(json.dumps(expected))
