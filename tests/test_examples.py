"""The examples run, and say something sensible."""

import re
import runpy
import sys
from inspect import signature
from pathlib import Path

import pytest

from elmokit.cli.serve import serve

pytestmark = pytest.mark.full

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    def run(name, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_demo_shows_senses_words_and_where_vectors_are(run, tmp_path):
    told = run("demo.py")
    gaps = [float(line.split()[-1]) for line in told.splitlines() if line.startswith("  2  ")]
    assert len(gaps) == 3
    assert min(gaps) > 0.03  # the top layer tells the senses of bank, work and plant apart
    assert str(tmp_path / "demo.hdf5") in told
    assert (tmp_path / "demo.hdf5").exists()
    assert told.splitlines()[-1].endswith("elmo serve, and open http://127.0.0.1:8000")
    defaults = {name: given.default for name, given in signature(serve).parameters.items()}
    assert (defaults["host"], defaults["port"]) == ("127.0.0.1", 8000)


def test_the_gallery_is_what_its_command_draws(run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    run("gallery.py", "--out", tmp_path)
    page = (EXAMPLES.parent / "docs" / "gallery.md").read_text("utf-8")
    pictures = sorted(tmp_path.glob("*.svg"))
    assert len(pictures) == 5
    for picture in pictures:
        assert f"]({picture.name})" in page
        drawn, kept = (
            re.findall(r">([^<>]+)</text>", path.read_text("utf-8"))
            for path in (picture, EXAMPLES.parent / "docs" / picture.name)
        )
        assert drawn == kept  # words, layers and explained variances
    others = set(re.findall(r"\]\(([a-z]+\.(?:svg|png))\)", page)) - {p.name for p in pictures}
    assert others == {"page.png"}
    assert "python benchmarks/screenshot.py docs/page.png" in page
    for name in ("alike", "chinese"):
        assert re.search(f'plot similarity "[^"]+" "[^"]+" .*--out {name}.svg', page)
    assert "中" in (tmp_path / "chinese.svg").read_text("utf-8")


@pytest.mark.parametrize("options", [(), ("--tune",)])
def test_elmo_is_a_layer_of_a_plain_model(run, options):
    told = run("in_pytorch.py", "--epochs", 20, *options)
    half_way, end = (float(loss) for loss in re.findall(r"epoch \d+: loss ([0-9.]+)", told))
    assert end < min(half_way, 0.65)  # by chance, ln 2


def test_a_model_learns_from_a_file_of_vectors(run):
    told = run("precompute.py")
    assert "reviews.hdf5: " in told
    layers = re.findall(r"layer (\d): (\d+)% of the held-out texts are right", told)
    assert [layer for layer, _ in layers] == ["0", "1", "2"]
    assert max(int(share) for _, share in layers) > 50


def test_reviews_are_judged_in_two_ways(run):
    told = run("imdb.py", "--epochs", 1)
    assert "18 reviews to learn from, 6 held out" in told
    assert re.search(r"one vector a text: {'accuracy': [01]\.[0-9]+}", told)
    assert re.search(r"word by word: {'accuracy': [01]\.[0-9]+}", told)
