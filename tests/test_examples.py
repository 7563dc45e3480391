"""The examples run and print sensible results."""

import re
import runpy
import sys
from inspect import signature
from pathlib import Path

import pytest

from elmokit.cli.serve import serve

pytestmark = pytest.mark.full

EXAMPLES = Path(__file__).parents[1] / "examples"
DOCS = EXAMPLES.parent / "docs"


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run an example in an empty folder; its output."""

    def run(name, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_demo_separates_senses_and_writes_vectors(run, tmp_path):
    output = run("demo.py")
    top_layer = [line for line in output.splitlines() if line.startswith("  2  ")]
    differences = [float(line.split()[-1]) for line in top_layer]
    assert len(differences) == 3  # bank, work, plant
    assert min(differences) > 0.03
    assert str(tmp_path / "demo.hdf5") in output
    assert (tmp_path / "demo.hdf5").exists()
    assert output.splitlines()[-1].endswith("elmo serve, and open http://127.0.0.1:8000")
    parameters = signature(serve).parameters
    defaults = [parameters[name].default.default for name in ("host", "port")]
    assert defaults == ["127.0.0.1", 8000]


def test_gallery_redraws_the_pictures_of_the_page(run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    run("gallery.py", "--out", tmp_path)
    page = (DOCS / "gallery.md").read_text("utf-8")
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == 5
    for picture in drawn:
        assert f"]({picture.name})" in page
        # Words, layers and explained variances are the same; coordinates may differ.
        assert texts_in(picture) == texts_in(DOCS / picture.name)
    shown = set(re.findall(r"\]\(([a-z]+\.(?:svg|png))\)", page))
    assert shown - {picture.name for picture in drawn} == {"page.png"}
    assert "python benchmarks/screenshot.py docs/page.png" in page
    for name in ("similarity", "chinese"):
        assert re.search(f'plot similarity "[^"]+" "[^"]+" .*--out {name}.svg', page)
    assert "中" in (tmp_path / "chinese.svg").read_text("utf-8")


def texts_in(picture):
    return re.findall(r">([^<>]+)</text>", picture.read_text("utf-8"))


@pytest.mark.parametrize("options", [(), ("--finetune",)])
def test_elmo_trains_as_a_layer_of_a_pytorch_model(run, options):
    output = run("in_pytorch.py", "--epochs", 20, *options)
    loss_10, loss_20 = (float(loss) for loss in re.findall(r"epoch \d+: loss ([0-9.]+)", output))
    assert loss_20 < min(loss_10, 0.65)  # chance is ln 2 = 0.69


def test_classifiers_train_on_a_file_of_vectors(run):
    output = run("precompute.py")
    assert "reviews.hdf5: " in output
    layers = re.findall(r"layer (\d): (\d+)% accuracy on the held-out texts", output)
    assert [layer for layer, _ in layers] == ["0", "1", "2"]
    assert max(int(accuracy) for _, accuracy in layers) > 50


def test_reviews_are_classified_in_two_ways(run):
    output = run("imdb.py", "--epochs", 1)
    assert "132 reviews to train on, 44 held out" in output
    assert re.search(r"one vector per text: {'accuracy': [01]\.[0-9]+}", output)
    assert re.search(r"head on all words: {'accuracy': [01]\.[0-9]+}", output)
