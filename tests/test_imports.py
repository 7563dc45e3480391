"""Imports go in one direction, and each third-party library enters in few places."""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "elmokit"

# From the bottom up. A module imports from layers below its own and, where the layer is not
# marked as independent packages, from its own layer.
LAYERS = [
    {"errors"},
    {
        "model_config", "toml_settings", "files", "fasta", "atomic", "process_memory",
        "progress",
        "language_model_results", "threads", "file_download", "catalogue",
        "compiled_code",
    },
    {"tokenizers", "vocab", "character_ids", "batching"},
    {"model"},
    {"formats"},
    {
        "inference_session", "embedder", "file_embedding", "export", "pooling", "whitening",
        "scoring", "head_fitting", "text_pooling", "word_prediction", "model_package",
        "onnx_export",
    },
    {"bulk"},
    {"word_occurrences", "plots"},
    {"pretraining", "tasks", "search", "compat", "integrations", "ray"},
    {"server"},
    {"cli", "__main__"},
]  # fmt: skip
INDEPENDENT = LAYERS[8]  # these packages do not import each other
THIRD_PARTIES = {
    "faiss": {"search"},
    "filelock": {"catalogue"},
    "anyio": {"server"},
    "fastapi": {"server"},
    "fastapi_offline": {"server"},
    "gensim": {"integrations"},
    "google_crc32c": {"formats"},
    "haystack": {"integrations"},
    "h5py": {"formats", "file_embedding"},
    "httpx": {"file_download", "server"},
    "huggingface_hub": {"formats"},
    "keras": {"integrations"},
    "langchain_core": {"integrations"},
    "llama_index": {"integrations"},
    "llvmlite": {"compiled_code", "model"},
    "matplotlib": {"plots"},
    "numba": {"model"},
    "onnx": {"onnx_export"},
    "openTSNE": {"plots"},
    "orjson": {"server"},
    "pgvector": {"search"},
    "platformdirs": {"catalogue"},
    "prometheus_client": {"server"},
    "psycopg": {"search"},
    "pyarrow": {"bulk", "ray", "search"},
    "ray": {"ray"},
    "sacremoses": {"tokenizers"},
    "safetensors": {"formats"},
    "sentence_transformers": {"integrations"},
    "snowballstemmer": {"search"},
    "sklearn": {"word_occurrences", "integrations"},
    "spacy": {"integrations"},
    "sqlite3": {"search"},
    "starlette": {"server"},
    "thinc": {"integrations"},
    "threadpoolctl": {"threads"},
    "torch.distributed": {"pretraining"},
    "typer": {"cli"},
    "uvicorn": {"server"},
    "zstandard": {"files"},
}
DRAWERS = {"utils", "util", "common", "helpers", "base", "core", "misc", "manager"}
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path):
    """(module, line) of every import of a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def part_of(path):
    """The top-level module or package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_imports_go_in_one_direction():
    layer_of = {part: number for number, layer in enumerate(LAYERS) for part in layer}
    breaches = []
    for path in FILES:
        part = part_of(path)
        if part == "__init__":
            continue  # the public names, resolved on first use
        assert part in layer_of, f"{part} belongs to no layer; add it in {Path(__file__).name}"
        for module, line in imports(path):
            other = module.split(".")[1] if module.startswith("elmokit.") else part
            if other in (part, "__version__"):
                continue
            assert other in layer_of, f"{path}:{line}: {other} belongs to no layer"
            both_independent = part in INDEPENDENT and other in INDEPENDENT
            if layer_of[other] > layer_of[part] or both_independent:
                breaches.append(f"{path.relative_to(PACKAGE)}:{line} imports {other}")
    assert not breaches, breaches


def test_a_third_party_library_enters_in_few_places():
    breaches = [
        f"{path.relative_to(PACKAGE)}:{line} imports {module}"
        for path in FILES
        for module, line in imports(path)
        for library, parts in THIRD_PARTIES.items()
        if (module == library or module.startswith(library + ".")) and part_of(path) not in parts
    ]
    assert not breaches, breaches


def test_the_model_opens_no_file():
    for path in (PACKAGE / "model").rglob("*.py"):
        names = {
            node.id
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Name)
        }
        assert not names & {"open", "Path"}, path
        assert not {module.split(".")[0] for module, _ in imports(path)} & {"pathlib", "os", "io"}


def test_no_module_has_a_name_that_says_nothing():
    names = {path.relative_to(PACKAGE) for path in FILES}
    assert not [n for n in names if DRAWERS & {part.removesuffix(".py") for part in n.parts}]


def test_the_architecture_page_names_every_part():
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"\w+", page.split("```")[1]))
    parts = {part_of(path) for path in FILES} - {"__init__", "__main__"}
    assert parts <= named, parts - named
