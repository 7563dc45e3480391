import json
import statistics
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

import elmokit
from elmokit.tasks.task_registry import TASKS
from random_models import make_folder
from task_examples import TINY

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def paper(script):
    """A function from the name of a script of the paper's tables to its module."""
    folder = str(script("ngram").Path(script("ngram").__file__).parent / "paper")
    sys.path.insert(0, folder)
    yield script
    sys.path.remove(folder)


def test_the_cut_is_the_share_of_the_error_that_is_gone(paper):
    assert paper("table1").cut(0.8, 0.85) == pytest.approx(25)


@pytest.fixture
def asked(paper, tmp_path, monkeypatch):
    """Runs of a small tagger, of two seeds."""
    runs = paper("runs")
    for part in ("train", "dev"):
        (tmp_path / part).write_text("the\tDET\ncat\tNOUN\n\na\tDET\ncat\tNOUN\n\n" * 4)
    monkeypatch.setitem(runs.FILES, "pos", "{}")
    set_pos(monkeypatch, replace(TINY, crf=False))
    return runs.Runs(tmp_path, tmp_path / "work", tmp_path / "scores.jsonl", (0, 1), ("pos",))


def set_pos(monkeypatch, settings):
    monkeypatch.setitem(TASKS, "pos", replace(TASKS["pos"], settings=settings, finetune_epochs=0))


def test_a_head_is_trained_once_with_all_examples_or_some(asked, capsys):
    found = asked.scores("pos", "none")
    assert len(found) == 2
    assert capsys.readouterr().out.count(": 8 examples\n") == 2
    assert asked.scores("pos", "none") == found
    assert not capsys.readouterr().out
    asked.score("pos", "none", 0, share=0.5)
    assert "pos-none-0.5-0: 4 examples" in capsys.readouterr().out


def test_a_share_of_the_examples_is_one_of_their_texts(asked, capsys):
    text = "the\tDET\ncat\tNOUN\n\n" * 3 + "a\tDET\ncat\tNOUN\n\n"
    (asked.data / "train").write_text(text)
    asked.score("pos", "none", 0, share=0.5)
    asked.score("pos", "none", 1, share=0.5)
    told = capsys.readouterr().out
    assert "pos-none-0.5-0: 3 examples" in told
    assert "pos-none-0.5-1: 1 examples" in told


def test_a_table_of_tasks_that_the_paper_did_not_have(paper, asked, monkeypatch, capsys):
    runs = paper("runs")
    monkeypatch.setattr(runs, "runs_of", lambda *_, **__: asked)
    runs.print_arms("", {"baseline": {"elmo": "none"}}, {})
    table = capsys.readouterr().out.splitlines()
    assert "| task | baseline |" in table
    assert "the paper's" not in " ".join(table)


@pytest.mark.parametrize(("whole", "drawn"), [(("pos",), 1), (("pos", "ner"), 0)])
def test_a_figure_of_some_of_its_tasks_is_not_drawn(
    paper, asked, whole, drawn, monkeypatch, capsys
):
    figure, found = paper("figure1"), []
    monkeypatch.setattr(figure, "runs_of", lambda *_, **__: asked)
    monkeypatch.setattr(figure, "TASKS", whole)
    monkeypatch.setattr(figure, "SHARES", (1.0,))
    monkeypatch.setitem(figure.WHERE, "pos", "none")
    monkeypatch.setattr(figure, "draw", lambda scores, _: found.append(scores))
    figure.main()
    assert len(found) == drawn
    assert "| POS | none | " in capsys.readouterr().out


def test_a_bilm_that_read_the_examples_first_is_another(paper, asked, tmp_path, capsys):
    runs = paper("runs")
    (tmp_path / "words").mkdir()
    runs._LOADED[:] = [elmokit.load(make_folder(tmp_path / "words", softmax_words=9))]
    frozen = asked.result("pos", "input", 0)
    read = asked.result("pos", "input", 0, finetune_epochs=1)
    assert read.digest != frozen.digest
    assert read.run == "pos-input-1-0-finetuned=1"
    assert len([*asked.work.glob("pos-1-*.elmo")]) == 1
    asked.result("pos", "input", 0, finetune_epochs=1, share=0.5)
    asked.result("pos", "input", 1, finetune_epochs=1, share=0.5)  # as many sentences, and others
    assert len([*asked.work.glob("pos-1-*.elmo")]) == 3
    capsys.readouterr()
    assert asked.result("pos", "input", 0, finetune_epochs=1) == read
    assert asked.result("pos", "input", 0) == frozen
    assert not capsys.readouterr().out
    runs._LOADED.clear()


def test_heads_that_learnt_otherwise_are_trained_anew(asked, monkeypatch, capsys):
    asked.score("pos", "none", 0)
    set_pos(monkeypatch, replace(TASKS["pos"].settings, hidden_size=6))
    capsys.readouterr()
    asked.score("pos", "none", 0)
    assert "pos-none-1-0: 8 examples" in capsys.readouterr().out
    assert len([*asked.work.iterdir()]) == len(asked.record.read_text().splitlines()) == 2


def test_what_is_on_record_needs_no_head(asked, capsys, tmp_path):
    found = asked.result("pos", "none", 0)
    assert found.run == "pos-none-1-0"
    assert found.layer_weights == {}
    capsys.readouterr()
    elsewhere = replace(asked, work=tmp_path / "elsewhere")
    assert elsewhere.result("pos", "none", 0) == found
    assert not elsewhere.work.exists()
    elsewhere.result("pos", "none", 0, hidden_size=6)
    assert "pos-none-1-0-hidden_size=6: 8 examples" in capsys.readouterr().out


@pytest.fixture(scope="module")
def recorded(script):
    """What is on record, by the name of the run."""
    folder = script("ngram").Path(script("ngram").__file__).parent / "paper"
    lines = (folder / "scores.jsonl").read_text("utf-8").splitlines()
    return {found["run"]: found for found in map(json.loads, lines)}


@pytest.fixture(scope="module")
def page():
    return (Path(__file__).parents[2] / "docs" / "paper.md").read_text("utf-8")


def test_the_page_says_what_is_on_record(paper, recorded, page):
    """Tables 1 to 3 and both figures: every row that the record gives is there."""
    runs, table1, figure1 = paper("runs"), paper("table1"), paper("figure1")
    read = {
        task: f"-finetuned={own.finetune_epochs}" if own.finetune_epochs else ""
        for task, own in TASKS.items()
    }

    def scores(*names):
        return [next(iter(recorded[name]["scores"].values())) for name in names]

    def row(*cells):
        return f"| {' | '.join(cells)} |"

    wanted = []  # how a row begins, and what else it has
    for task, title in runs.TITLES.items():
        where = runs.WHERE[task]
        for end in dict.fromkeys((read[task], "")):
            seeds = [n for n in range(3) if f"{task}-{where}-1-{n}{end}" in recorded]
            before = scores(*(f"{task}-none-1-{n}" for n in seeds))
            after = scores(*(f"{task}-{where}-1-{n}{end}" for n in seeds))
            gone = f"{table1.cut(statistics.mean(before), statistics.mean(after)):.2f} %"
            cells = row(str(len(seeds)), runs.percent(before), runs.percent(after), gone)
            as_it_ships = read[task] and not end
            wanted.append((f"| {title}, biLM as" if as_it_ships else f"| {title} (", cells))
        for place, shares in recorded[f"{task}-{where}-1-0"]["layer_weights"].items():
            wanted.append((f"| {title}, {place}", row(*(f"{share:.2f}" for share in shares))))
    for table in (paper("table2"), paper("table3")):
        for task in table.PAPER:
            names = (_name(task, **arm) for arm in table.ARMS.values())
            cells = row(*(runs.percent(scores(name)) for name in names))
            wanted.append((f"| {runs.TITLES[task]} |", cells))
    for task in figure1.TASKS:
        for told, arm, end in (("without", "none", ""), ("with", runs.WHERE[task], read[task])):
            names = (f"{task}-{arm}-{share:g}-0{end}" for share in figure1.SHARES)
            cells = row(told, *(runs.percent(scores(name)) for name in names))
            wanted.append((f"| {runs.TITLES[task]} (" if arm == "none" else "| | with", cells))
    assert len(wanted) == 30
    lines = page.splitlines()
    missing = [w for w in wanted if not any(s.startswith(w[0]) and w[1] in s for s in lines)]
    assert missing == []


def _name(task, elmo, **changes):
    told = (f"{key}={value}" for key, value in changes.items())
    return "-".join([task, elmo, "1", "0", *told])


def test_the_shipped_layer_weights_are_the_recorded_ones(script, recorded):
    file = files("elmokit").joinpath("english", "layer_weights.json")
    shipped = json.loads(file.read_text("utf-8"))["layer_weights"]
    where = script("runs").WHERE
    assert {own["task"] for own in shipped} == {*where}
    for own in shipped:
        run = f"{own['task']}-{where[own['task']]}-1-0"
        assert own["weights"] == recorded[run]["layer_weights"][own["position"]], own
