"""Take the screenshot of the page in the documentation: contexts of a word at the top layer.

    python benchmarks/screenshot.py docs/page.png [--model DIR] [--layer 2] [--browser chromium]

Needs playwright (pip install playwright) and Chromium. The page is light, 1200 by 800.
"""

import argparse
import shutil
import sys
from pathlib import Path
from urllib.parse import urlencode

import elmokit
from elmokit.server.app import listening
from elmokit.server.app_resources import AppResources
from elmokit.server.limits import Limits

# WebGL on the CPU, so that the screenshot is the same on every machine.
ARGUMENTS = [
    "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="a PNG file")
    parser.add_argument(
        "--model", type=Path, default=None, help="default: the English model of the package"
    )
    parser.add_argument("--layer", default="2")
    parser.add_argument("--browser", default="chromium")
    settings = parser.parse_args()
    browser = shutil.which(settings.browser)
    if browser is None:
        sys.exit(f"{settings.browser}: no such browser; name one by --browser")
    resources = AppResources(Limits())
    resources.open(elmokit.load(settings.model))
    with listening(resources) as url:
        link = urlencode({"contexts-layer": settings.layer, "contexts-selected": "4"})
        take(f"{url}/#{link}", settings.out, browser)
    print(f"{settings.out}: {settings.out.stat().st_size:,} bytes")


def take(url: str, out: Path, browser: str) -> None:
    """Save what the page shows once the occurrences are there."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)
        page = started.new_page(
            viewport={"width": 1200, "height": 800}, color_scheme="light", reduced_motion="reduce"
        )
        page.goto(url)
        page.locator("#contexts-list li.selected").wait_for()
        page.screenshot(path=out)
        started.close()


if __name__ == "__main__":
    main()
