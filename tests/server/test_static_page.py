"""The page as a folder: its files, where onnxruntime-web comes from, and what a browser does."""

import fnmatch
import json
import os
import re
import shutil
import stat
import subprocess
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.errors import ConfigError, DownloadError, FormatError, InputError
from elmokit.plots import project_pca
from elmokit.search.index import Index
from elmokit.search.sample_index import sample_index
from elmokit.server import onnxruntime_web, static_page
from elmokit.server.onnxruntime_web import GLUE, PACKAGE, RUNTIME, WASM, find_onnxruntime_web
from elmokit.server.static_page import write_page
from elmokit.tokenizers import get_tokenizer, tokenizer_rules
from elmokit.word_occurrences import cluster
from static_host import StaticHost

PAGE = Path(static_page.__file__).parent / "page"
TEXTS = ["A bank lent money .", "no use here", "The Bank of a river , two banks .", "my bank"]
NO_NODE = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node, which is not here")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """A package of the right names, for tests that run nothing of it."""
    package = tmp_path_factory.mktemp("npm") / PACKAGE
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": PACKAGE, "version": "1.2.3"}))
    for name in (RUNTIME, GLUE, WASM):
        (package / "dist" / name).write_text(name)
    return find_onnxruntime_web(package)


@pytest.fixture(scope="module")
def written(language_model, index, runtime, tmp_path_factory):
    pytest.importorskip("onnx", reason="needs onnx, which is not there")
    folder = tmp_path_factory.mktemp("written") / "site"
    write_page(language_model, folder, index=index, onnxruntime=runtime)
    return folder


def test_the_folder_has_every_file_that_it_names(written):
    page = json.loads((written / "model" / "page.json").read_text("utf-8"))
    for file in page["files"].values():
        assert (written / file["path"]).stat().st_size == file.get(
            "bytes", 0
        ) or "bytes" not in file
    for path in page["index"].values():
        assert (written / path).is_file()
    html = (written / "index.html").read_text("utf-8")
    for path in re.findall(r'(?:src|href)="([^":,#]+)"', html):
        assert (written / path).exists() or path == "docs", path
    for script in (written / "page").glob("*.js"):
        for path in re.findall(r'from "(\./[^"]+)"', script.read_text("utf-8")):
            assert (script.parent / path).is_file(), path


def test_the_service_worker_knows_all_files_and_its_version_their_content(
    written, language_model, index, runtime, tmp_path
):
    script = (written / "service_worker.js").read_text("utf-8")
    version, small, large = (
        json.loads(re.search(rf"{name} = ([^;]*?)(?:, LARGE|;)", script)[1])
        for name in ("VERSION", "SMALL_FILES", "LARGE_FILES")
    )
    files = {p.relative_to(written).as_posix() for p in written.rglob("*") if p.is_file()}
    assert {*small, *large} == files - {"service_worker.js"}
    assert {Path(path).suffix for path in large} == {".onnx", ".wasm"}
    write_page(language_model, tmp_path / "same", index=index, onnxruntime=runtime)
    assert version in (tmp_path / "same" / "service_worker.js").read_text("utf-8")
    write_page(language_model, tmp_path / "float", index=index, onnxruntime=runtime, int8=False)
    assert version not in (tmp_path / "float" / "service_worker.js").read_text("utf-8")


def test_the_page_allows_no_script_but_its_own(written):
    html = (written / "index.html").read_text("utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)[1]
    assert "script-src 'self' 'wasm-unsafe-eval';" in policy
    assert "unsafe-inline" not in policy
    assert html.index("Content-Security-Policy") < html.index("<script")
    assert not re.search(r"<script(?![^>]* src=)|<style|\bstyle=|\bon\w+=\"", html)


def test_nothing_of_this_machine_is_in_the_page(written, language_model):
    page = json.loads((written / "model" / "page.json").read_text("utf-8"))
    assert page["info"]["model"] == Path(language_model.source).name
    assert str(Path(language_model.source).parent) not in json.dumps(page)
    assert "its licence is not stated" in (written / "LICENSES.txt").read_text("utf-8")


@pytest.mark.parametrize("occupied", ["file", "folder"])
def test_a_folder_that_is_there_is_not_touched(language_model, index, runtime, tmp_path, occupied):
    target = tmp_path / "site"
    if occupied == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine").write_text("mine")
    with pytest.raises(InputError, match="site: exists already; delete it"):
        write_page(language_model, target, index=index, onnxruntime=runtime)


def test_an_index_that_a_page_cannot_have_is_refused(
    language_model, index, runtime, tmp_path, monkeypatch
):
    (tmp_path / "text.txt").write_text("A bank lent money .\nThe bank of a river .\n")
    built = Index.build(tmp_path / "i", [str(tmp_path / "text.txt")], language_model, unit="words")
    with built as words, pytest.raises(InputError, match="an index of words; a page searches"):
        write_page(language_model, tmp_path / "site", index=words, onnxruntime=runtime)
    monkeypatch.setattr(static_page, "_POOLINGS", ("max",))
    with pytest.raises(
        InputError, match=r"its pooling is '\w+', but a page has max; build an index"
    ):
        write_page(language_model, tmp_path / "site", index=index, onnxruntime=runtime)
    monkeypatch.undo()
    monkeypatch.setattr(static_page, "_MAX_PASSAGES", 2)
    with pytest.raises(InputError, match="has 3 passages, but a page can have 2; build an index"):
        write_page(language_model, tmp_path / "site", index=index, onnxruntime=runtime)
    assert not (tmp_path / "site").exists()


def test_a_model_whose_layer_0_is_aligned_is_refused(
    language_model_folder, index, runtime, tmp_path
):
    size = elmokit.load(language_model_folder).bilm.config.output_size
    model = elmokit.load(language_model_folder, align={0: np.eye(size), 1: np.eye(size)})
    with pytest.raises(InputError, match=r"layer 0 of the model is aligned, but .*; align other"):
        write_page(model, tmp_path / "site", index=index, onnxruntime=runtime)
    assert not (tmp_path / "site").exists()


def test_a_tokenizer_that_no_browser_has_is_refused():
    pytest.importorskip("rjieba", reason="needs rjieba, which is not there")
    with pytest.raises(ConfigError, match="the tokenizer jieba runs in Python only; choose moses"):
        tokenizer_rules("jieba")


def test_another_folder_is_not_taken_for_onnxruntime(tmp_path):
    with pytest.raises(FormatError, match=r"but package.json is not its; run npm install onnx"):
        find_onnxruntime_web(tmp_path)
    (tmp_path / "package.json").write_text(json.dumps({"name": PACKAGE, "version": "1.0"}))
    with pytest.raises(FormatError, match=r"but dist/ort.wasm.min.mjs is missing"):
        find_onnxruntime_web(tmp_path)


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A folder for a program called npm, and an empty cache."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ELMOKIT_OFFLINE", "0")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "npm"


def make_program(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_without_npm_or_a_network_the_message_says_what_to_do(npm):
    with pytest.raises(DownloadError, match="npm is not installed; install npm, or give a folder"):
        find_onnxruntime_web()
    with pytest.raises(InputError, match="is not in the cache, and the network must not be used"):
        find_onnxruntime_web(offline=True)
    make_program(npm, "echo 'npm error network' >&2; exit 1")
    with pytest.raises(DownloadError, match=r"npm cannot download it \(npm error network\)"):
        find_onnxruntime_web()


def test_what_npm_brings_is_checked_and_kept(npm, monkeypatch, tmp_path):
    package = tmp_path / "package" / "dist"
    package.mkdir(parents=True)
    for name in (RUNTIME, GLUE, WASM):
        (package / name).write_text(name)
    packed = tmp_path / "packed.tar"
    shutil.make_archive(str(packed.with_suffix("")), "tar", tmp_path, "package")
    make_program(npm, f"/bin/cp {packed} onnxruntime-web.tgz")
    with pytest.raises(DownloadError, match="npm brought other bytes than were published"):
        find_onnxruntime_web()
    digest = onnxruntime_web.hashlib.sha512(packed.read_bytes()).hexdigest()
    monkeypatch.setattr(onnxruntime_web, "_SHA512", digest)
    found = find_onnxruntime_web()
    assert (found.folder / WASM).read_text() == WASM
    npm.unlink()
    assert find_onnxruntime_web(offline=True) == found


# The parts of the page that do what Python does.

TOKENIZED = [
    "She said: \"It's Mr. Smith's (only) dog.\" Isn't it? No. 5 costs $1,000.50 … e.g. here.",
    "A.B.C. lies in the U.S. of A. «Ça va» 'tis the rock 'n' roll of the '90s -- and/or more.",
    "Привет, мир! 中文。没有空格？ Straße\u00a0: 5\u00a0% and half\u00a0cm.\n\nNew paragraph...",
    "``quoted'' text,“curly” and ‘single’ — dashes – too; a.m. p.m. 3.14,5 wait!!! ok?",
    "  \t tabs\tand  spaces \r\n lines ", "", "___ gap ______ here.",
]  # fmt: skip


def run_node(folder, module, function, values):
    """What a function of a script of the page returns for each of these lists of arguments."""
    for path in PAGE.glob("*.js"):
        source = path.read_text("utf-8").replace('.js"', '.mjs"')
        (folder / f"{path.stem}.mjs").write_text(source, "utf-8")
    script = (
        f'import {{ {function} }} from "./{module}.mjs"; import {{ readFileSync }} from "node:fs";'
        'const values = JSON.parse(readFileSync("values.json", "utf-8"));'
        f"const answers = values.map((own) => {function}(...own));"
        'const plain = answers.map((own) => typeof own === "function" ? texts(own) : own);'
        "function texts(tokenize) { return values[0][1].map(tokenize); }"
        "console.log(JSON.stringify(plain));"
    )
    (folder / "values.json").write_text(json.dumps(values), "utf-8")
    (folder / "script.mjs").write_text(script, "utf-8")
    command = ["node", "script.mjs"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


@NO_NODE
@pytest.mark.parametrize(
    "name",
    [
        "moses",
        *(pytest.param(f"moses-{code}", marks=pytest.mark.full) for code in ("de", "fr", "fi")),
        *(pytest.param(name, marks=pytest.mark.full) for name in ("spaces", "characters")),
    ],
)
def test_the_page_tokenizes_as_python_does(name, tmp_path):
    random = np.random.default_rng(0)
    pieces = [*"abcXYZ019 .,'`\"()[]!?;:%-–—…“”‘’«»&@#$€é中。ß\u00a0\t/"]
    pieces += ["U.S.", " Mr. ", " No. 5 ", "don't", " the ", "...", "\n\n", "''", "1,000", "º"]
    fuzzed = ["".join(random.choice(pieces, random.integers(1, 25))) for _ in range(500)]
    texts = [*TOKENIZED, *fuzzed]
    (found,) = run_node(tmp_path, "tokenizer", "createTokenizer", [[tokenizer_rules(name), texts]])
    tokenizer = get_tokenizer(name)
    expected = [
        [
            words
            for sentence in tokenizer.split_sentences(text)
            if (words := tokenizer.tokenize(sentence))
        ]
        for text in texts
    ]
    assert found == expected


@NO_NODE
def test_the_page_projects_and_clusters_as_python_does(tmp_path):
    random = np.random.default_rng(0)
    groups = [
        np.tile(random.standard_normal(24), (8, 1)),
        random.standard_normal((2, 24)),
        random.standard_normal((40, 24)),
        np.vstack([random.standard_normal((9, 24)), random.standard_normal((7, 24)) + 4]),
    ]
    groups = [group.astype(np.float32) for group in groups]
    values = [[group.tolist()] for group in groups]
    for group, found in zip(
        groups, run_node(tmp_path, "projection", "projectPca", values), strict=True
    ):
        expected = project_pca(group)
        np.testing.assert_allclose(found["points"], expected.points, atol=1e-6)
        np.testing.assert_allclose(
            found["explainedVariance"], expected.explained_variance, atol=1e-9
        )
    clusters = run_node(tmp_path, "projection", "cluster", [[groups[3].tolist(), 2]])
    assert clusters == [cluster(groups[3], clusters=2).tolist()]


@NO_NODE
def test_the_page_folds_all_characters_as_python_does(tmp_path):
    characters = [
        character
        for character in map(chr, range(0x110000))
        if unicodedata.category(character) not in ("Cn", "Co", "Cs")
    ]
    found = run_node(tmp_path, "passage_search", "fold", [[own] for own in characters])
    folded = zip(characters, found, strict=True)
    assert [(own, other) for own, other in folded if other != own.casefold()] == []


@NO_NODE
@pytest.mark.parametrize(
    "glob",
    ["[z-a]*", "[!z-a]*", "[c-az]*", "[b-a-c]*", "[a-c-e]*", "[--a]*", "[a--]*", "[ab-]?", "[]-a]*",
     "[^\\]*", "[[]?", "[", "a*[s-u]ex?.*", "*.tx[!a-s]"],
)  # fmt: skip
def test_the_page_matches_globs_as_python_does(glob, tmp_path):
    names = [
        "a.txt",
        "b1",
        "c1",
        "d1",
        "e1",
        "z1",
        "-1",
        "]1",
        "^1",
        "\\1",
        "[1",
        "[",
        "",
        "a/text.md",
    ]
    (found,) = run_node(tmp_path, "passage_search", "globMatcher", [[glob, names]])
    assert found == [fnmatch.fnmatchcase(name, glob) for name in names]


# In a browser.


@pytest.fixture
def copied_site(static_folder, tmp_path):
    """The page on a host of its own, to change or to stop."""
    folder = shutil.copytree(static_folder, tmp_path / "elmo", copy_function=os.link)
    with StaticHost(folder) as host:
        yield host


def replace(path, content):
    path.unlink()  # it is a link
    path.write_bytes(content)


def wait_for_contexts(page, count=8):
    page.locator("#contexts-list li").nth(count - 1).wait_for()


ASK = """async ([name, parameters]) => {
    const { createBackend } = await import(new URL("page/browser_backend.js", document.baseURI));
    window.backend ??= createBackend({ showProgress() {} });
    return window.backend[name](parameters, new AbortController().signal);
}"""


def ask(page, name, **parameters):
    return page.evaluate(ASK, [name, parameters])


@pytest.fixture(scope="module")
def both_answers(service, static_site, browser):
    """A function that asks both back ends the same."""
    page = browser.new_page()
    page.goto(static_site.url)

    def answers(name, route, **parameters):
        return service.get_json(route, parameters), ask(page, name, **parameters)

    yield answers
    page.close()


def assert_similar(expected, found, tolerance):
    """The same structure and texts, and nearly the same numbers."""
    if isinstance(expected, dict):
        assert {*expected} == {*found}
        for key, value in expected.items():
            assert_similar(value, found[key], tolerance)
    elif isinstance(expected, list):
        assert len(expected) == len(found)
        for own, other in zip(expected, found, strict=True):
            assert_similar(own, other, tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=tolerance)
    else:
        assert found == expected


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "route", "parameters"),
    [
        ("contexts", "/contexts", {"word": "BANK", "texts": TEXTS}),
        ("contexts", "/contexts", {"word": "bank", "texts": TEXTS, "labels": [*"badc"]}),
        ("similarity", "/similarity", {"first": "A bank. Two banks!", "second": "my river"}),
        ("nextWords", "/next", {"text": "One. The bank", "k": 5, "previous": False}),
        ("nextWords", "/next", {"text": "The bank. Two", "k": 9, "previous": True}),
        ("fillGaps", "/fill", {"text": "The ___ of a river", "k": 5}),
        ("fillGaps", "/fill", {"text": "A ____ and ___ . The ___", "k": 3}),
        *(
            ("search", "/search", {"query": query, "k": 3, "mode": mode})
            for mode in ("hybrid", "semantic", "lexical")
            for query in ("Two banks and a painter", "lent a river. Painter!", "xyz the")
        ),
        ("search", "/search", {"query": "a bank", "k": 2, "mode": None, "files": ["*[s-u]ex?.*"]}),
    ],
)  # fmt: skip
def test_the_browser_answers_as_the_service(both_answers, name, route, parameters):
    expected, found = both_answers(name, route, **parameters)
    # An index in a folder keeps vectors of 16 bits before they are whitened, the page after that.
    assert_similar(expected, found, tolerance=2e-3 if name == "search" else 2e-4)


@pytest.mark.full
def test_info_and_layer_weights_are_those_of_the_service(service, static_site, visit):
    page = visit(static_site.url)
    expected, found = service.get_json("/info"), ask(page, "info")
    for name in ("source", "kernel", "tasks"):
        expected.pop(name)
    assert expected == {name: found[name] for name in expected}
    assert ask(page, "layerWeights") == service.get_json("/layer_weights")


@pytest.mark.full
def test_once_loaded_the_page_works_without_a_network(copied_site, visit):
    page = visit(copied_site.url)
    wait_for_contexts(page)
    copied_site.stop()
    page.locator("#contexts-texts").fill("A bank lent\nThe banks")
    page.locator("#contexts-list li", has_text="The banks").wait_for()
    page.get_by_role("tab", name="Similarity").click()
    page.locator("#similarity-table td").first.wait_for()
    page.get_by_role("tab", name="Predict").click()
    page.locator("#predict-lists .bar").first.wait_for()
    page.get_by_role("tab", name="Layer weights").click()
    page.locator("#layer-weights-table td").first.wait_for()
    page.get_by_role("tab", name="Search").click()
    page.locator("#search-results li").first.wait_for()
    again = page.context.new_page()
    again.goto(copied_site.url + "/")
    wait_for_contexts(again)
    again.goto(copied_site.url + "/index.html#view=search")
    again.locator("#search-results li").first.wait_for()


@pytest.mark.full
def test_a_host_that_redirects_index_html_has_a_page_without_a_network(static_folder, visit):
    with StaticHost(static_folder, redirects=True) as host:
        page = visit(host.url)
        wait_for_contexts(page)
        page.evaluate("() => navigator.serviceWorker.ready.then(() => {})")
        host.stop()
        again = page.context.new_page()
        for path in ("/", "/index.html"):
            again.goto(host.url + path)
            wait_for_contexts(again)


@pytest.mark.full
def test_an_error_that_nobody_expected_is_shown_and_ends_the_request(static_site, browser):
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(static_site.url)
        shown = page.evaluate("""async () => {
            const path = new URL("page/requests.js", document.baseURI);
            const { createRequester } = await import(path);
            const error = document.getElementById("search-error");
            const ended = new Promise((resolve) => {
                addEventListener("unhandledrejection", resolve, { once: true });
            });
            const send = async () => { throw new SyntaxError("this is no pattern"); };
            createRequester(error, send, () => {})({ query: "a" });
            await ended;
            const busy = error.closest("[role=tabpanel]").getAttribute("aria-busy");
            return [error.textContent, error.hidden, busy];
        }""")
        assert shown == ["this is no pattern", False, "false"]


@pytest.mark.full
def test_every_file_is_loaded_once(copied_site, visit):
    page = visit(copied_site.url)
    wait_for_contexts(page)
    large = [path for path in copied_site.paths if path.endswith((".onnx", ".wasm"))]
    assert len(large) == len({*large}) == 2
    other = page.context.new_page()
    other.goto(copied_site.url + "/")
    wait_for_contexts(other)
    assert [path for path in copied_site.paths if path.endswith((".onnx", ".wasm"))] == large


@pytest.mark.full
def test_a_policy_for_every_file_is_kept_and_the_page_may_be_isolated(static_folder, visit):
    html = (static_folder / "index.html").read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    headers = {
        "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
    }
    with StaticHost(static_folder, headers=headers) as host:
        page = visit("about:blank")
        page.add_init_script(
            "window.violations = []; document.addEventListener('securitypolicyviolation', "
            "(event) => window.violations.push(event.violatedDirective))"
        )
        page.goto(host.url)
        wait_for_contexts(page)
        assert page.evaluate("() => window.crossOriginIsolated")
        for name in ("Similarity", "Predict", "Layer weights", "Search"):
            page.get_by_role("tab", name=name).click()
            page.locator("[role=tabpanel]:not([hidden]):not([aria-busy=true])").wait_for()
        assert page.evaluate("() => window.violations") == []


@pytest.mark.full
def test_what_the_policy_forbids_is_stopped_and_noticed(static_site, browser):
    with browser.new_context() as context:
        page, errors = context.new_page(), []
        page.on("console", lambda message: errors.append(message.text))
        page.goto(static_site.url)
        wait_for_contexts(page)
        assert not errors
        page.evaluate("""() => {
            const script = document.createElement("script");
            script.textContent = "window.isInjected = true";
            document.head.append(script);
        }""")
        assert page.evaluate("() => window.isInjected") is None
        assert "Content Security Policy" in errors[0]


@pytest.mark.full
@pytest.mark.parametrize(
    ("pattern", "content", "message"),
    [
        ("model/*.onnx", b"<html>not found</html>", "The model of this page cannot be used"),
        ("model/*.onnx", "half", "The model of this page cannot be used"),
        ("model/*.onnx", None, "The model of this page cannot be used"),
        ("onnxruntime/*.wasm", b"no WebAssembly", "The model of this page cannot be used"),
        ("onnxruntime/*.wasm", None, "cannot be loaded (the server answered 404)"),
        ("model/page.json", b'{"format": 2}', "The files of this page are not of one version"),
        ("model/page.json", b"{", "The file model/page.json of this page is damaged"),
        ("model/page.json", None, "cannot be loaded (the server answered 404)"),
        ("page/main.js", b"?? old", "This browser is too old for this page, which needs at least"),
        ("page/scatter.js", None, "The page did not start: a file of it is missing or damaged"),
        ("page/browser_backend.js", None, "The page did not start: "),
    ],
)  # fmt: skip
def test_a_damaged_page_says_so_in_a_sentence(copied_site, browser, pattern, content, message):
    (path,) = copied_site.folder.glob(pattern)
    good = path.read_bytes()
    content = good[: len(good) // 2] if content == "half" else content
    path.unlink() if content is None else replace(path, content)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(copied_site.url)
        error = page.locator("#start-error")
        error.wait_for()
        assert message in error.inner_text()
        assert "\n" not in error.inner_text()
        assert page.locator(".error:visible").count() == 1
        assert page.locator("#loading").is_hidden()
        path.unlink(missing_ok=True)
        path.write_bytes(good)
        later = time.time() + 2  # the host tells versions apart by seconds
        os.utime(path, (later, later))
        repaired = context.new_page()
        repaired.goto(copied_site.url)
        wait_for_contexts(repaired)


@pytest.mark.full
def test_damaged_passages_are_reported_where_they_are_needed(copied_site, browser):
    replace(copied_site.folder / "model" / "passages.json", b"{")
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(copied_site.url)
        wait_for_contexts(page)
        page.get_by_role("tab", name="Search").click()
        page.locator("#start-error:visible, #search-error:visible").wait_for()
        assert "model/passages.json" in page.locator(".error:visible").inner_text()


@pytest.mark.full
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("delete window.WebAssembly", "This browser has no WebAssembly with vector instructions"),
        ("WebAssembly.validate = () => false", "This browser has no WebAssembly with vector inst"),
        ("delete URLSearchParams", "The page did not start: "),
    ],
)  # fmt: skip
def test_an_old_browser_gets_a_sentence(static_site, browser, script, message):
    with browser.new_context() as context:
        page = context.new_page()
        page.add_init_script(script)
        page.goto(static_site.url)
        page.locator("#start-error").wait_for()
        assert message in page.locator("#start-error").inner_text()


@pytest.mark.full
def test_a_page_opened_as_a_file_says_how_to_open_it(static_folder, browser):
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((static_folder / "index.html").as_uri())
        page.locator("#start-error").wait_for()
        assert "put its folder on a web server" in page.locator("#start-error").inner_text()


@pytest.mark.full
def test_a_browser_without_service_workers_has_the_page_online(static_site, visit):
    page = visit("about:blank")
    page.add_init_script("Object.defineProperty(navigator, 'serviceWorker', { value: undefined })")
    page.goto(static_site.url)
    wait_for_contexts(page)
    assert page.evaluate("() => navigator.serviceWorker") is None


@pytest.mark.full
def test_without_a_softmax_the_page_says_why_it_cannot_predict(model, onnxruntime, visit, tmp_path):
    with sample_index(model) as index:
        write_page(model, tmp_path / "site", index=index, onnxruntime=onnxruntime)
    with StaticHost(tmp_path / "site") as host:
        page = visit(f"{host.url}/#view=predict")
        error = page.locator("#predict-error")
        error.wait_for()
        assert "has no softmax, so it cannot predict words" in error.inner_text()


@pytest.mark.full
def test_a_new_version_is_shown_by_the_next_visit_but_one(
    copied_site, language_model, onnxruntime, browser
):
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(copied_site.url)
        wait_for_contexts(page)
        shutil.rmtree(copied_site.folder)
        index = sample_index(language_model)
        write_page(language_model, copied_site.folder, index=index, onnxruntime=onnxruntime)
        page.goto(copied_site.url + "/")  # from the cache; the new version is fetched beside it
        wait_for_contexts(page)
        page.evaluate("""async () => {
            const registration = await navigator.serviceWorker.ready;
            await registration.update();
            const { installing, waiting } = registration;
            if (!waiting && installing) {
                await new Promise((resolve) => installing.addEventListener("statechange", resolve));
            }
        }""")
        page.close()
        page = context.new_page()
        page.goto(copied_site.url + "/#view=search&search-query=soup")
        page.get_by_text("sample.txt").first.wait_for()


@pytest.mark.full
def test_loading_shows_how_far_it_is(copied_site, browser):
    with browser.new_context() as context:
        page = context.new_page()
        page.add_init_script("""
            window.shown = [];
            document.addEventListener("DOMContentLoaded", () => {
                const progress = document.getElementById("loading-progress");
                const note = () => window.shown.push(progress.value);
                new MutationObserver(note).observe(progress, { attributes: true });
            });
        """)
        page.goto(copied_site.url)
        wait_for_contexts(page)
        shown = page.evaluate("() => window.shown")
        assert shown[0] == 0
        assert shown == sorted(shown)
        assert len({*shown}) > 3
        assert shown[-1] == pytest.approx(1, abs=0.01)
        assert page.locator("#loading").is_hidden()


@pytest.mark.full
@pytest.mark.parametrize("pooling", ["max", "last"])
def test_an_index_of_another_pooling_is_searched_alike(
    language_model, onnxruntime, browser, tmp_path, pooling
):
    (tmp_path / "text.txt").write_text("A bank lent money. Yes!\nBanks.\nThe bank of a river.\n")
    files, settings = [str(tmp_path / "text.txt")], {"unit": "paragraphs", "layers": "mean"}
    built = Index.build(tmp_path / "i", files, language_model, pooling=pooling, **settings)
    with built as index, browser.new_context() as context:
        folder = tmp_path / "site"
        write_page(language_model, folder, index=index, onnxruntime=onnxruntime, int8=False)
        expected = index.search("A river. The money", k=3, mode="semantic")
        with StaticHost(folder) as host:
            page = context.new_page()
            page.goto(host.url)
            parameters = {"query": "A river. The money", "k": 3, "mode": "semantic"}
            results = ask(page, "search", **parameters)["results"]
    assert [own["text"] for own in results] == [hit.passage.text for hit in expected]
    scores = [own["score"] for own in results]
    assert scores == pytest.approx([hit.score for hit in expected], abs=2e-3)
