"""A model becomes a picture of its page: the uses of a word at layer 2, in a browser.

    python benchmarks/screenshot.py docs/page.png [--model DIR] [--layer 2] [--browser chromium]

Needs playwright (pip install playwright) and Chromium. The page is light, 1200 by 800.
"""

import argparse
import shutil
import sys
from pathlib import Path
from urllib.parse import urlencode

import elmokit
from elmokit.server.limits import Limits
from elmokit.server.resources import AppResources
from elmokit.server.run import listening

# WebGL by the processor, so that the picture is the same on every machine.
ARGUMENTS = [
    "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="a PNG file")
    parser.add_argument("--model", type=Path, default=None, help="default: the one that ships")
    parser.add_argument("--layer", default="2")
    parser.add_argument("--browser", default="chromium")
    settings = parser.parse_args()
    browser = shutil.which(settings.browser)
    if browser is None:
        sys.exit(f"{settings.browser}: no such browser; name one by --browser")
    resources = AppResources(Limits())
    resources.open(elmokit.load(settings.model))
    with listening(resources) as url:
        link = urlencode({"uses-layer": settings.layer, "uses-use": "1"})
        take(f"{url}/#{link}", settings.out, browser)
    print(f"{settings.out}: {settings.out.stat().st_size:,} bytes")


def take(url: str, out: Path, browser: str) -> None:
    """Keep what the page shows when its uses are there."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)
        page = started.new_page(viewport={"width": 1200, "height": 800}, color_scheme="light")
        page.goto(url)
        page.locator("#uses-list li.chosen").wait_for()
        page.screenshot(path=out)
        started.close()


if __name__ == "__main__":
    main()
