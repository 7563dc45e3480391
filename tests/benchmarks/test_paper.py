import json
import sys
from dataclasses import replace

import pytest

from elmokit.tasks.catalog import TASKS
from toys import TINY


@pytest.fixture(scope="module")
def paper(script):
    """A function from the name of a script of the paper's tables to its module."""
    folder = str(script("ngram").Path(script("ngram").__file__).parent / "paper")
    sys.path.insert(0, folder)
    yield script
    sys.path.remove(folder)


def test_the_cut_is_the_share_of_the_error_that_is_gone(paper):
    assert paper("table1").cut(0.8, 0.85) == pytest.approx(25)


def test_a_head_is_trained_once_and_refused_when_settings_change(
    paper, tmp_path, monkeypatch, capsys
):
    runs = paper("runs")
    (tmp_path / "pos_ud_ewt").mkdir()
    for part in ("train", "dev"):
        (tmp_path / f"pos_ud_ewt/{part}").write_text("the\tDET\ncat\tNOUN\n\n" * 8)
    monkeypatch.setitem(runs.FILES, "pos", "pos_ud_ewt/{}")
    monkeypatch.setitem(TASKS, "pos", replace(TASKS["pos"], settings=replace(TINY, crf=False)))
    asked = runs.Runs(tmp_path, tmp_path / "work", (0, 1), ("pos",))
    found = asked.scores("pos", "none")
    assert len(found) == 2
    assert capsys.readouterr().out.count("8 examples") == 2
    assert asked.scores("pos", "none") == found
    assert "examples" not in capsys.readouterr().out
    asked.score("pos", "none", 0, share=0.5)
    assert "pos-none-0.5-0: 4 examples" in capsys.readouterr().out
    changed = replace(TASKS["pos"].settings, hidden=6)
    monkeypatch.setitem(TASKS, "pos", replace(TASKS["pos"], settings=changed))
    with pytest.raises(SystemExit, match="other settings"):
        asked.scores("pos", "none")


def test_heads_of_another_way_to_learn_are_refused(paper, tmp_path, monkeypatch):
    runs = paper("runs")
    (tmp_path / "pos_ud_ewt").mkdir()
    for part in ("train", "dev"):
        (tmp_path / f"pos_ud_ewt/{part}").write_text("the\tDET\ncat\tNOUN\n\n" * 8)
    monkeypatch.setitem(runs.FILES, "pos", "pos_ud_ewt/{}")
    monkeypatch.setitem(TASKS, "pos", replace(TASKS["pos"], settings=replace(TINY, crf=False)))
    asked = runs.Runs(tmp_path, tmp_path / "work", (0,), ("pos",))
    asked.scores("pos", "none")
    record = tmp_path / "work/pos-none-1-0/task.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "version": 2}))
    with pytest.raises(Exception, match="version"):
        asked.scores("pos", "none")
