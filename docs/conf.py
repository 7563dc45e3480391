"""Settings of the documentation site: `make docs`.

The sources are Markdown pages all over the repository, so that their links work on GitHub, too.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy.typing as npt
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.typing import stringify_annotation

import elmokit
from elmokit.formats.alignment import Align
from elmokit.pooling import Vectors

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

import generated_pages  # noqa: E402

logger = logging.getLogger(__name__)

project = "elmokit"
author = "the authors of elmokit"
version = release = elmokit.__version__
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "[A-Z]*.md",
    "benchmarks/README.md",
    "benchmarks/**/README.md",
    "packages/*/README.md",
]
exclude_patterns = ["README.md", "benchmarks/peers"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True

default_role = "literal"  # docstrings write names in single backticks
autodoc_member_order = "bysource"
autodoc_mock_imports = ["gensim", "haystack", "langchain_core", "llama_index", "ray"]
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"elmokit {release}"
html_additional_pages = {"index": "redirect.html"}  # the pages are below docs/
templates_path = ["templates"]
html_show_sourcelink = False
html_copy_source = False
copybutton_prompt_text = "$ "

_TYPE_NAMES = {
    stringify_annotation(definition, "smart"): name
    for name, definition in {"Align": Align, "ArrayLike": npt.ArrayLike, "ndarray": Vectors}.items()
}

# Pages with a line that is replaced by what is made from the code.
_GENERATED = {"docs/cli": generated_pages.cli_page, "docs/http": generated_pages.http_page}
_PLACE = "<!-- made from the code -->"


def setup(app: Sphinx) -> None:
    """Connect the steps of this file to those of the build."""
    app.connect("source-read", _insert_generated)
    app.connect("autodoc-process-docstring", _mark_code)
    app.connect("autodoc-process-signature", _name_types)
    app.connect("build-finished", _check_links)


def _insert_generated(app: Sphinx, name: str, source: list[str]) -> None:
    if name in _GENERATED:
        before, after = source[0].split(_PLACE)
        source[0] = before + _GENERATED[name]() + after


def _mark_code(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make blocks of code of the indented lines of a docstring."""
    marked: list[str] = []
    in_code = False
    for line in lines:
        if line.startswith("    ") and not in_code:
            marked += ["", ".. code-block:: python", ""]
        in_code = line.startswith("    ") or (in_code and not line)
        marked.append(line)
    lines[:] = marked


def _name_types(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    arguments: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Write types by their names where their definitions are long."""
    for definition, type_name in _TYPE_NAMES.items():
        arguments = arguments and arguments.replace(definition, type_name)
        result = result and result.replace(definition, type_name)
    return arguments, result


class _Page(HTMLParser):
    """The links of a page, and the anchors that others may link to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if name in ("href", "src") and value:
                self.links.add(value)


def _check_links(app: Sphinx, exception: Exception | None) -> None:
    """Warn of links inside the site that lead to no file, or to no anchor."""
    if exception is not None or app.builder.name != "html":
        return
    pages = {path: _Page(path) for path in Path(app.outdir).rglob("*.html")}
    for path, page in sorted(pages.items()):
        for link in sorted(page.links):
            if not _leads_somewhere(path, link, pages):
                logger.warning("%s: the link %s leads nowhere", path.relative_to(app.outdir), link)


def _leads_somewhere(path: Path, link: str, pages: dict[Path, _Page]) -> bool:
    if "://" in link or link.startswith(("mailto:", "data:", "javascript:")):
        return True
    name, _, anchor = unquote(link).partition("#")
    target = (path.parent / name.partition("?")[0]).resolve() if name else path
    if target not in pages:
        return target.is_file()
    return not anchor or anchor in pages[target].anchors
