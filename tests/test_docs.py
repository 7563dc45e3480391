"""The code blocks of README and the documents run, and every name on the pages exists."""

import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import elmokit
from elmokit import formats
from elmokit.cli import RootGroup, app
from elmokit.errors import InputError
from elmokit.model.bilm import LanguageModel
from random_models import SIZES
from warm import warm_command

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES_WITH_CODE = [
    "README.md", "docs/index.md", "docs/guide.md", "docs/migrate.md", "docs/pretrain.md",
    "docs/tasks.md", "docs/serve.md", "docs/languages.md", "docs/models.md",
    "docs/integrations.md", "docs/scale.md", "docs/onnx.md",
]  # fmt: skip
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Runs the blocks of a page in order, all Python in one namespace, and marks the end of each.
RUN_BLOCKS = """
import json, subprocess, sys
namespace = {"__name__": "__main__"}
for language, code in json.load(sys.stdin):
    if language == "python":
        exec(compile(code, "block", "exec"), namespace)
    else:
        subprocess.run(["bash", "-ec", code], check=True)
    sys.stdout.flush()
    print("=== end of block", flush=True)
"""

# With NumPy 2, Keras 3.15 gives it at every prediction.
KERAS_WARNING = "ignore:__array__ implementation:DeprecationWarning"

# The texts of docs/languages.md.
SWAHILI = [
    f"{who} {verb} {what} {where}."
    for who in ("Mtoto", "Mwalimu", "Mama", "Rafiki yangu", "Mkulima")
    for verb in ("anasoma", "ananunua", "anapenda", "anatafuta")
    for what in ("kitabu", "gazeti", "barua", "ramani")
    for where in ("nyumbani", "shuleni", "sokoni", "mjini")
]

# Options of other programs that the pages name: AllenNLP, bilm-tf, lm_1b, SeqVec, pip,
# ELMoForManyLangs, torchrun, TensorBoard, spaCy, and (--split) elmokit 0.1.
FOREIGN_OPTIONS = {
    "--cuda-device", "--include-sentence-indices", "--options-file", "--vocab-path",
    "--weight-file", "--test_prefix", "--batch_size", "--train_prefix", "--save_dir", "--mode",
    "--num_samples", "--sentence", "--nproc-per-node", "--logdir", "--no-deps", "--split",
    "--input_format", "--input", "--output_prefix", "--output_format", "--output_layer",
    "--batchsize", "--cpu", "--id", "--protein", "--silent", "--paths", "--output",
    "--code", "--head", "--nnodes", "--max-restarts", "--rdzv-backend", "--rdzv-endpoint",
}  # fmt: skip
# A name in spaCy's registry, and a file.
FOREIGN_NAMES = {"elmokit.Tok2Vec.v1", "elmokit.js"}


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A folder with the published Small's options and random weights, in bilm-tf's format."""
    folder = tmp_path_factory.mktemp("docs") / "small"
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(SIZES["small"])))
    formats.save(pretrained, folder, format="bilm-tf")
    return folder


@pytest.fixture(scope="module")
def environment():
    """A terminal's environment, where `elmo` is a command that has imported everything already."""
    with warm_command() as folder:
        path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        yield {**os.environ, "PATH": path}


@pytest.mark.parametrize("page", PAGES_WITH_CODE)
def test_code_blocks_run_and_print_the_output_shown(page, small_model, environment, tmp_path):
    blocks = BLOCK.findall((ROOT / page).read_text("utf-8"))
    code_blocks, expected_outputs = [], []
    for (language, code), (next_language, next_text) in zip(
        blocks, [*blocks[1:], ("text", "")], strict=True
    ):
        if language in ("python", "sh") and not code.startswith(("make ", "pip ")):
            code_blocks.append((language, code))
            expected_outputs.append(next_text if next_language == "" else None)
    assert code_blocks
    folder = shutil.copytree(small_model, tmp_path / "pages")
    (folder / "sw.txt").write_text("\n".join(SWAHILI[20:]), encoding="utf-8")
    (folder / "held-out.txt").write_text("\n".join(SWAHILI[:20]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", KERAS_WARNING, "-c", RUN_BLOCKS],
        input=json.dumps(code_blocks), cwd=folder,
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outputs = done.stdout.split("=== end of block\n")[:-1]
    for (_, code), output, expected in zip(code_blocks, outputs, expected_outputs, strict=True):
        if expected is not None:
            assert output == expected, code


def test_every_option_on_the_pages_is_in_the_help_of_a_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    known = FOREIGN_OPTIONS | options_of_commands([], capsys) | options_of_scripts()
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", page.read_text("utf-8")))
        assert named <= known, f"{page.name}: no such options: {sorted(named - known)}"


def test_every_command_on_the_pages_exists(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    commands = subcommands(help_of([], capsys))
    assert "embed" in commands
    for page in PAGES:
        # Only in code: `elmo embed`, or a line of a block, with no `allennlp` before it.
        text = page.read_text("utf-8")
        named = set(re.findall(r"(?:`|^(?:    )?\$? ?|\| )elmo ([a-z][a-z-]*)", text, re.MULTILINE))
        known = commands | set(RootGroup.removed) if page.name == "migrate.md" else commands
        assert named <= known, f"{page.name}: no such commands: {sorted(named - known)}"


def test_every_python_name_and_script_on_the_pages_exists():
    for page in PAGES:
        text = page.read_text("utf-8")
        names = set(re.findall(r"(?<![\w./-])elmokit(?:\.[A-Za-z_]\w*)+", text))
        for name in names - FOREIGN_NAMES:
            try:
                pkgutil.resolve_name(name)
            except InputError as error:
                if "pip install 'elmokit[" not in str(error):  # an extra that is not installed
                    raise
        for path in set(
            re.findall(r"(?<![\w/])(?:benchmarks|examples|src|tests)/[\w/]+\.\w+", text)
        ):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "api").glob("*.rst"))
    named = re.findall(r"^\.\. auto\w+:: elmokit\.(\w+)$", pages, re.MULTILINE)
    assert sorted(named) == sorted(elmokit.__all__)


def test_the_generated_reference_has_every_command_option_and_route(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.syspath_prepend(ROOT / "docs")
    import generated_pages

    cli, http = generated_pages.cli_page(), generated_pages.http_page()
    known = options_of_commands([], capsys) - FOREIGN_OPTIONS - {"--help", "--version"}
    for option in known:
        assert f"`{option}`" in cli, option
    for command in subcommands(help_of([], capsys)):
        assert f"\n### elmo {command}\n" in cli, command
    serve_page = (ROOT / "docs" / "serve.md").read_text("utf-8")
    routes = re.findall(r"^\| (GET|POST) (`/.*?) \|", serve_page, re.MULTILINE)
    assert len(routes) > 10
    for method, paths in routes:
        for path in re.findall(r"`(.*?)`", paths):
            assert f"## {method} {path}\n" in http, path


def help_of(command, capsys):
    app([*command, "--help"], prog_name="elmo", standalone_mode=False)
    return capsys.readouterr().out


def subcommands(help_text):
    return set(re.findall(r"^│ ([a-z][\w-]*) {2,}", help_text, re.MULTILINE))


def options_of_commands(command, capsys):
    """All options of a command, or of a group of commands."""
    shown = help_of(command, capsys)
    options = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", shown))
    for name in subcommands(shown):
        options |= options_of_commands([*command, name], capsys)
    return options


def options_of_scripts():
    """The options of all benchmarks, and of the programs that fuzz and soak."""
    patterns = "benchmarks/*.py", "benchmarks/*/*.py", "tests/fuzz/*.py", "tests/soak/*.py"
    scripts = [path for pattern in patterns for path in ROOT.glob(pattern)]
    definition = re.compile(r"add_argument\(\s*\"(--[a-z][\w-]*)\"")
    return {option for path in scripts for option in definition.findall(path.read_text("utf-8"))}


def test_every_make_target_in_readme_exists():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^make ([a-z-]+)", README.read_text("utf-8"), re.MULTILINE)
    assert targets
    for target in targets:
        assert re.search(f"^{target}:", makefile, re.MULTILINE), target


def test_no_page_has_a_place_that_is_still_to_be_filled():
    for page in PAGES:
        assert not re.findall(r"^[A-Z_]{6,20}$", page.read_text("utf-8"), re.MULTILINE), page


def test_links_between_pages_lead_to_files_and_headings():
    pages = [
        page
        for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "packages/**/*.md")
        for page in ROOT.glob(pattern)
        if not {"peers", "node_modules"} & {*page.parts}
    ]
    assert len(pages) > 15
    for page in pages:
        for link in re.findall(r"\]\((?!http)([^)]+)", without_code(page)):
            name, _, anchor = link.partition("#")
            target = page.parent.joinpath(name) if name else page
            assert target.exists(), f"{page}: {link}"
            assert not anchor or anchor in anchors_of(target), f"{page}: {link}"


def without_code(page):
    """The text of a page without its blocks and spans of code."""
    return re.sub(r"`[^`]*`", "", BLOCK.sub("", page.read_text("utf-8")))


def anchors_of(page):
    """The anchors of a page's headings, as GitHub and the documentation site make them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
