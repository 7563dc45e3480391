"""The page without a server: how soon it opens, how fast it computes, and what it looks like.

    elmo page site && python benchmarks/page.py site [--repeats 5] [--screenshots DIR]

Needs playwright (pip install playwright) and Chromium. A cold start is the first visit of a new
browser, from a static host on this machine, until the first vectors are on the page. A second visit
has the files from the cache of the service worker. CPU time is that of all the browser's processes;
other programs hardly change it. Speed is that of sentences of 20 words, 32 per call, in the worker;
for threads, the host sends the headers that isolate the page.

Prints a table for people, and a line of JSON for machines at the end.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from static_host import StaticHost

ARGUMENTS = [
    "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
]  # fmt: skip
ISOLATED = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
# When the page has something to show, the model, and the first vectors.
WATCH = """
window.seconds = {};
const note = (name) => (window.seconds[name] ??= performance.now() / 1000);
document.addEventListener("DOMContentLoaded", () => {
    const loading = document.getElementById("loading");
    const list = document.getElementById("contexts-list");
    const look = () => {
        if (document.documentElement.dataset.started) note("the page");
        if (loading.hidden && window.seconds["the page"] && window.wasLoading) note("the model");
        window.wasLoading ||= !loading.hidden;
        if (list.children.length) note("first vectors");
    };
    const observed = { subtree: true, childList: true, attributes: true };
    new MutationObserver(look).observe(document.documentElement, observed);
});
"""
SPEED = """async (numThreads) => {
    const read = async (path) => (await fetch(new URL(path, document.baseURI))).json();
    const { files } = await read("model/page.json");
    const url = (path) => new URL(path, document.baseURI).href;
    const { loadInWorker } = await import(url(files.elmokit.path));
    const model = await loadInWorker(url(files.model.path), {
        runtime: url(files.runtime.path), threads: numThreads,
        wasmPaths: { mjs: url(files.glue.path), wasm: url(files.wasm.path) },
    });
    const words = await read(PASSAGES).then(({ passages }) =>
        passages.flatMap(({ sentences }) => sentences.flat()));
    const sentences = Array.from({ length: 32 }, (_, row) =>
        Array.from({ length: 20 }, (_, at) => words[(20 * row + at) % words.length]));
    const times = [];
    for (let repeat = 0; repeat < 4; repeat++) {
        const start = performance.now();
        await model.embed(sentences);
        times.push((performance.now() - start) / 1000);
    }
    return (32 * 20) / Math.min(...times);
}""".replace("PASSAGES", '"model/passages.json"')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="what elmo page wrote")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--screenshots", type=Path, help="a folder for pictures of the page")
    parser.add_argument("--browser", default="chromium")
    settings = parser.parse_args()
    browser = shutil.which(settings.browser)
    if browser is None:
        sys.exit(f"{settings.browser}: no such browser; name one by --browser")
    from playwright.sync_api import sync_playwright

    folder = settings.folder.resolve()
    with sync_playwright() as playwright:

        def launch():
            return playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)

        with StaticHost(folder) as host:
            visits = [visit_twice(launch, host.url) for _ in range(settings.repeats)]
            results = summarize(visits)
        with StaticHost(folder, headers=ISOLATED) as host:
            words_per_second = speed(launch, host.url)
        if settings.screenshots:
            settings.screenshots.mkdir(parents=True, exist_ok=True)
            with StaticHost(folder) as host:
                take_pictures(launch, host.url, settings.screenshots)
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.suffix in (".onnx", ".wasm", ".bin", ".json")
    }
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{total / 1e6:.1f} MB in all; of these")
    for path, size in sorted(sizes.items(), key=lambda pair: -pair[1]):
        print(f"  {size / 1e6:5.1f} MB  {path}")
    print("\nseconds of a visit until        best  median")
    for name, (best, median) in results.items():
        print(f"  {name:28}{best:6.2f}{median:8.2f}")
    print("\nthreads  words per second")
    for threads, words in words_per_second.items():
        print(f"{threads:7}{words:18.0f}")
    print(json.dumps({"bytes": total, "seconds": results, "words_per_second": words_per_second}))


def visit_twice(launch, url: str) -> dict[str, float]:
    """Seconds of the first visit of a new browser, and of its second."""
    browser = launch()
    context = browser.new_context(reduced_motion="reduce")
    seconds = {}
    for prefix in ("", "second visit: "):
        before = cpu_seconds()
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(f"{url}/")
        page.locator("#contexts-list li").nth(7).wait_for(timeout=120_000)
        seconds[f"{prefix}first vectors, CPU time"] = cpu_seconds() - before
        for name, at in page.evaluate("() => window.seconds").items():
            seconds[prefix + name] = at
        page.close()
    browser.close()
    return seconds


def cpu_seconds() -> float:
    """CPU time of all processes that this one has started, those of the browser among them."""
    children, times = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
        times[int(path.parent.name)] = int(fields[11]) + int(fields[12])
    waiting, ticks = [*children.get(os.getpid(), ())], 0
    while waiting:
        process = waiting.pop()
        ticks += times[process]
        waiting += children.get(process, ())
    return ticks / os.sysconf("SC_CLK_TCK")


def summarize(visits: list[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """The best and the median of each."""
    columns = {name: [visit[name] for visit in visits] for name in visits[0]}
    return {name: (min(column), statistics.median(column)) for name, column in columns.items()}


def speed(launch, url: str) -> dict[int, float]:
    """Words per second by the number of threads."""
    browser = launch()
    page = browser.new_page()
    page.goto(f"{url}/")
    page.locator("#contexts-list li").nth(7).wait_for(timeout=120_000)
    assert page.evaluate("() => window.crossOriginIsolated")
    count = min(4, page.evaluate("() => navigator.hardwareConcurrency"))
    words = {threads: page.evaluate(SPEED, threads) for threads in {1, count}}
    browser.close()
    return words


# The state of the address, and how the browser is set up.
PICTURES = {
    "page-predict.png": ({"view": "predict", "predict-text": "The river ___ into the sea."}, {}),
    "page-search.png": ({"view": "search"}, {"color_scheme": "dark"}),
    "page-phone.png": (
        {"view": "contexts", "contexts-selected": "4"},
        {"viewport": {"width": 390, "height": 844}},
    ),
}


def take_pictures(launch, url: str, folder: Path) -> None:
    """The views, in light and dark, on a screen and on a phone."""
    from urllib.parse import urlencode

    browser = launch()
    for name, (state, settings) in PICTURES.items():
        defaults = {"viewport": {"width": 1200, "height": 780}, "reduced_motion": "reduce"}
        context = browser.new_context(**defaults | settings)
        page = context.new_page()
        page.goto(f"{url}/#{urlencode(state)}")
        answered = page.locator("[role=tabpanel]:not([hidden])[aria-busy=false]")
        answered.wait_for(timeout=120_000)
        page.screenshot(path=folder / name, full_page=True)
        context.close()
    browser.close()


if __name__ == "__main__":
    main()
