"""What README and the documents show is true: their blocks run, and print what they say."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import elmokit
from elmokit import formats
from elmokit.config import SIZES
from elmokit.model.bilm import LanguageModel
from warm import warm_command

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "elmokit"
PAGES = [
    "README.md", "docs/guide.md", "docs/migrate.md", "docs/pretrain.md", "docs/tasks.md",
    "docs/serve.md",
]  # fmt: skip
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Runs the blocks of a page in order, all Python in one namespace, and marks the end of each.
RUN = """
import json, subprocess, sys
names = {"__name__": "__main__"}
for kind, code in json.load(sys.stdin):
    if kind == "python":
        exec(compile(code, "block", "exec"), names)
    else:
        subprocess.run(["bash", "-ec", code], check=True)
    sys.stdout.flush()
    print("=== end of block", flush=True)
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The published Small with random weights, as files."""
    folder = tmp_path_factory.mktemp("docs") / "place"
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(SIZES["small"])))
    formats.save(pretrained, folder, format="bilm-tf")
    return folder


@pytest.fixture(scope="module")
def environment():
    """That of a terminal, where `elmo` is a command that has imported everything already."""
    with warm_command() as folder:
        path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        yield {**os.environ, "PATH": path}


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_run_and_print_what_they_say(page, small, environment, tmp_path):
    text = (ROOT / page).read_text("utf-8")
    blocks = [(match[1], match[2]) for match in BLOCK.finditer(text)]
    run, expected = [], []
    for (kind, code), (following, output) in zip(blocks, [*blocks[1:], ("x", "")], strict=True):
        if kind in ("python", "sh") and not code.startswith("make "):
            run.append((kind, code))
            expected.append(output if following == "" and not output.startswith("src/") else None)
    assert run
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN],
        input=json.dumps(run), cwd=shutil.copytree(small, tmp_path / "place"), env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("=== end of block\n")[:-1]
    for (_, code), said, wanted in zip(run, printed, expected, strict=True):
        if wanted is not None:
            assert said == wanted, code


def test_every_target_that_readme_names_is_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^make ([a-z]+)", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert targets
    for target in targets:
        assert re.search(f"^{target}:", makefile, re.MULTILINE), target


def test_links_between_pages_lead_somewhere():
    pages = [page for way in ("*", "docs/*", "benchmarks/**/*") for page in ROOT.glob(f"{way}.md")]
    assert len(pages) > 15
    for page in pages:
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text("utf-8")):
            assert page.parent.joinpath(link).exists(), f"{page}: {link}"
