"""The examples in the docstrings of public names run."""

import inspect
import re
import shutil
import textwrap

import pytest

import elmokit
from elmokit.server.client import Client

pytestmark = pytest.mark.full

# Blocks of code: the lines after "Example:" or a blank line that are further to the right.
EXAMPLE = re.compile(r"(?:^Example:\n|\n\n)((?:^    .*\n|^\n)+)", re.MULTILINE)
NAMES = [name for name in elmokit.__all__ if name != "__version__"]
# Examples that others go on from.
FIRST = ("prepare", "PretrainingSettings", "pretrain", "train_task")


def examples_of(name):
    docstring = inspect.getdoc(getattr(elmokit, name)) or ""
    return [textwrap.dedent(code) for code in EXAMPLE.findall(docstring + "\n")]


@pytest.fixture(scope="module")
def namespace():
    """The names that examples have at hand."""
    texts = ["A dog barked.", "Prices rose sharply.", "The hound howled."]
    return {"elmokit": elmokit, "Client": Client, "model": elmokit.load(), "texts": texts}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model_folder, namespace):
    """Where the examples run, with the files that they name."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "text.txt").write_text("the cat sat on the mat\nthe dog sat\n" * 20)
    (folder / "proteins.fasta").write_text(">sp|P12345|A\nMKTAYIAKQR\n>sp|P67890|B\nSEQWENCE\n")
    for name in ("train.conll", "dev.conll"):
        (folder / name).write_text("Ada NNP B-PER\nlikes VBZ O\nOslo NNP B-LOC\n")
    for name in ("options.json", "weights.hdf5"):
        shutil.copy(model_folder / name, folder)
    shutil.copytree(model_folder, folder / "mirror" / "medium")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        for name in FIRST:
            for example in examples_of(name):
                exec(compile(example, name, "exec"), dict(namespace))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_that_runs(name, folder, namespace, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ELMOKIT_MIRROR", (folder / "mirror").as_uri())
    monkeypatch.setenv("ELMOKIT_OFFLINE", "0")
    monkeypatch.setenv("ELMOKIT_CACHE", str(folder / "cache"))
    examples = examples_of(name)
    assert examples, f"elmokit.{name}: its docstring has no example"
    for example in examples:
        exec(compile(example, name, "exec"), dict(namespace))
    if name.endswith("Error") and name != "RankError":
        assert capsys.readouterr().out, "the error was not raised"
