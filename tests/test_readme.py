"""What README shows is true."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import elmokit
from elmokit import formats
from elmokit.config import SIZES
from elmokit.model.language_model import LanguageModel

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PACKAGE = ROOT / "src" / "elmokit"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The published Small, with random weights, as bilm-tf's files."""
    folder = tmp_path_factory.mktemp("small") / "model"
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(SIZES["small"])))
    formats.save(pretrained, folder, format="bilm-tf")
    return folder


def test_the_blocks_run_and_print_what_they_say(small):
    blocks = re.findall(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", README, re.DOTALL)
    assert len(blocks) == 3
    code = "\n".join(code for code, _ in blocks)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=small, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(blocks[0][1])


def test_the_tree_is_the_house():
    tree = re.search(r"```\nsrc/elmokit/\n(.*?)```", README, re.DOTALL)[1]
    told, folder = {}, ""
    for line in tree.splitlines():
        name, says = line.strip().split(maxsplit=1)
        folder = "" if line.startswith("  ") and not line.startswith("    ") else folder
        if name.endswith("/"):
            folder = name
            name += "__init__.py"
            told[name] = says
        else:
            told[folder + name] = says
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        if name != "__init__.py":
            found[name] = ast.get_docstring(ast.parse(path.read_text("utf-8"))).splitlines()[0]
    assert told == found


def test_every_target_it_names_is_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"make ([a-z]+)", README):
        assert re.search(f"^{target}:", makefile, re.MULTILINE), target
