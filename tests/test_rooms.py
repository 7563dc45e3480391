"""The house keeps its plan: a room imports from its left only, and a third party has one door."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "elmokit"

# From left to right; rooms in one group do not import each other.
GROUPS = [
    {"errors"},
    {"config", "threads", "whole"},
    {"text"},
    {"model"},
    {"formats"},
    {"cache", "claim", "device", "memory", "plan", "pooling", "progress", "settings"},
    {"reading", "resume", "whitening"},
    {"ask"},
    {"embedder"},
    {"store", "table"},
    {"dump", "file"},
    {"compat", "explore", "lm", "tasks"},
    {"server"},
    {"cli"},
]
DOORS = {
    "h5py": {"formats/bilm_tf.py", "store.py"},
    "torch.distributed": {"lm/distributed.py"},
    "typer": {"cli"},
    "rich": {"cli"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "sacremoses": {"text/moses.py"},
    "zstandard": {"text/files.py"},
    "compression": {"text/files.py"},
    "safetensors": {"formats/native.py"},
    "matplotlib": {"explore"},
    "openTSNE": {"explore/projection.py"},
    "faiss": {"explore/nearest.py"},
    "sqlite3": {"explore/catalog.py"},
    "psycopg": {"explore"},
    "pydantic": {"formats/record.py", "server/forms.py"},
}
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path):
    """(module, line) of every import of a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import in line {node.lineno}"
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def place_of(room):
    return next((place for place, group in enumerate(GROUPS) if room in group), None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_from_its_left_only(path):
    room = room_of(path)
    if room == "__init__":
        return  # the public names look into every room, when asked
    assert place_of(room) is not None, f"{room} is not in the plan"
    for module, line in imports(path):
        if not module.startswith("elmokit."):
            continue
        other = module.split(".")[1]
        if other in (room, "__version__"):
            continue
        assert place_of(other) is not None, f"{path}:{line}: {other} is not in the plan"
        assert place_of(other) < place_of(room), f"{path}:{line}: {room} imports {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_third_party_has_one_door(path):
    here = str(path.relative_to(PACKAGE))
    for module, line in imports(path):
        for party, doors in DOORS.items():
            if module == party or module.startswith(party + "."):
                assert {here, room_of(path)} & doors, f"{path}:{line}: {party} enters here"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_says_what_becomes_what_and_stays_small(path):
    text = path.read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, f"{path}: no docstring"
    assert text.startswith('"""'), f"{path}: the docstring comes first"
    assert len(text.splitlines()) <= 350, f"{path}: too long"


def test_nothing_in_the_model_room_opens_a_file():
    for path in (PACKAGE / "model").rglob("*.py"):
        names = {
            node.id
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Name)
        }
        assert not names & {"open", "Path"}, path
        assert not {module.split(".")[0] for module, _ in imports(path)} & {"pathlib", "os", "io"}


def test_no_room_is_a_drawer():
    drawers = {"utils", "util", "common", "helpers", "base", "core", "misc", "manager"}
    assert not [
        path for path in FILES if drawers & {part.removesuffix(".py") for part in path.parts}
    ]
