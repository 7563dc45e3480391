"""The wheel holds all that runs without the sources: the code, the page, and the English model."""

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The sizes of the files in it, by their names."""
    folder = str(tmp_path_factory.mktemp("wheel"))
    (path,) = WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"])
    with zipfile.ZipFile(path) as packed:
        return {info.filename: info.file_size for info in packed.infolist()}


def test_the_english_model_is_in_it_and_small(wheel):
    model = {name: size for name, size in wheel.items() if name.startswith("elmokit/english/")}
    names = {name.rsplit("/", 1)[1] for name in model}
    wanted = {"LICENSE", "README.md", "config.json", "layer_weights.json", "model.safetensors"}
    assert wanted | {"vocabulary.txt"} <= names
    assert sum(model.values()) <= 40e6


def test_every_file_of_the_package_is_in_it(wheel):
    package = ROOT / "src" / "elmokit"
    ours = {
        f"elmokit/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours <= {*wheel}


def test_the_scripts_that_a_static_page_needs_are_in_it(wheel):
    folder = ROOT / "packages" / "elmokit-js"
    scripts = {f"elmokit/server/elmokit-js/{path.name}" for path in folder.glob("*.js")}
    assert scripts <= {*wheel}
