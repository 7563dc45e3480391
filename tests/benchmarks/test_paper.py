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


def test_the_error_reduction_is_relative(paper):
    assert paper("table1").error_reduction(0.8, 0.85) == pytest.approx(25)


@pytest.fixture
def pos_runs(paper, tmp_path, monkeypatch):
    """Runs of a small tagger, of two seeds."""
    runs = paper("runs")
    for part in ("train", "dev"):
        (tmp_path / part).write_text("the\tDET\ncat\tNOUN\n\na\tDET\ncat\tNOUN\n\n" * 4)
    monkeypatch.setitem(runs.FILES, "pos", "{}")
    set_pos(monkeypatch, replace(TINY, crf=False))
    return runs.Runs(tmp_path, tmp_path / "work", tmp_path / "scores.jsonl", (0, 1), ("pos",))


def set_pos(monkeypatch, settings):
    monkeypatch.setitem(TASKS, "pos", replace(TASKS["pos"], settings=settings, finetune_epochs=0))


def test_a_head_is_trained_once_with_all_examples_or_some(pos_runs, capsys):
    scores = pos_runs.scores("pos", "none")
    assert len(scores) == 2
    assert capsys.readouterr().out.count(": 8 examples\n") == 2
    assert pos_runs.scores("pos", "none") == scores
    assert not capsys.readouterr().out
    pos_runs.score("pos", "none", 0, share=0.5)
    assert "pos-none-0.5-0: 4 examples" in capsys.readouterr().out


def test_a_share_of_the_examples_is_one_of_their_texts(pos_runs, capsys):
    text = "the\tDET\ncat\tNOUN\n\n" * 3 + "a\tDET\ncat\tNOUN\n\n"
    (pos_runs.data / "train").write_text(text)
    pos_runs.score("pos", "none", 0, share=0.5)
    pos_runs.score("pos", "none", 1, share=0.5)
    output = capsys.readouterr().out
    assert "pos-none-0.5-0: 3 examples" in output
    assert "pos-none-0.5-1: 1 examples" in output


def test_a_table_of_tasks_that_the_paper_did_not_have(paper, pos_runs, monkeypatch, capsys):
    runs = paper("runs")
    monkeypatch.setattr(runs, "runs_from_arguments", lambda *_, **__: pos_runs)
    runs.print_arms("", {"baseline": {"elmo": "none"}}, {})
    table = capsys.readouterr().out.splitlines()
    assert "| task | baseline |" in table
    assert "the paper's" not in " ".join(table)


@pytest.mark.parametrize(("tasks", "num_drawn"), [(("pos",), 1), (("pos", "ner"), 0)])
def test_only_the_complete_figure_is_drawn(paper, pos_runs, tasks, num_drawn, monkeypatch, capsys):
    figure, drawn = paper("figure1"), []
    monkeypatch.setattr(figure, "runs_from_arguments", lambda *_, **__: pos_runs)
    monkeypatch.setattr(figure, "TASKS", tasks)
    monkeypatch.setattr(figure, "SHARES", (1.0,))
    monkeypatch.setitem(figure.ELMO_POSITIONS, "pos", "none")
    monkeypatch.setattr(figure, "draw", lambda scores, _: drawn.append(scores))
    figure.main()
    assert len(drawn) == num_drawn
    assert "| POS | none | " in capsys.readouterr().out


def test_a_finetuned_bilm_has_results_of_its_own(paper, pos_runs, tmp_path, capsys):
    runs = paper("runs")
    (tmp_path / "words").mkdir()
    runs._LOADED[:] = [elmokit.load(make_folder(tmp_path / "words", softmax_words=9))]
    frozen = pos_runs.result("pos", "input", 0)
    finetuned = pos_runs.result("pos", "input", 0, finetune_epochs=1)
    assert finetuned.digest != frozen.digest
    assert finetuned.run == "pos-input-1-0-finetuned=1"
    assert len([*pos_runs.work.glob("pos-1-*.elmo")]) == 1
    pos_runs.result("pos", "input", 0, finetune_epochs=1, share=0.5)
    pos_runs.result("pos", "input", 1, finetune_epochs=1, share=0.5)  # other sentences
    assert len([*pos_runs.work.glob("pos-1-*.elmo")]) == 3
    capsys.readouterr()
    assert pos_runs.result("pos", "input", 0, finetune_epochs=1) == finetuned
    assert pos_runs.result("pos", "input", 0) == frozen
    assert not capsys.readouterr().out
    runs._LOADED.clear()


def test_heads_with_other_settings_are_trained_again(pos_runs, monkeypatch, capsys):
    pos_runs.score("pos", "none", 0)
    set_pos(monkeypatch, replace(TASKS["pos"].settings, hidden_size=6))
    capsys.readouterr()
    pos_runs.score("pos", "none", 0)
    assert "pos-none-1-0: 8 examples" in capsys.readouterr().out
    assert len([*pos_runs.work.iterdir()]) == len(pos_runs.record.read_text().splitlines()) == 2


def test_a_recorded_result_needs_no_head(pos_runs, capsys, tmp_path):
    result = pos_runs.result("pos", "none", 0)
    assert result.run == "pos-none-1-0"
    assert result.layer_weights == {}
    capsys.readouterr()
    elsewhere = replace(pos_runs, work=tmp_path / "elsewhere")
    assert elsewhere.result("pos", "none", 0) == result
    assert not elsewhere.work.exists()
    elsewhere.result("pos", "none", 0, hidden_size=6)
    assert "pos-none-1-0-hidden_size=6: 8 examples" in capsys.readouterr().out


@pytest.fixture(scope="module")
def recorded(script):
    """The recorded results, by the name of the run."""
    folder = script("ngram").Path(script("ngram").__file__).parent / "paper"
    lines = (folder / "scores.jsonl").read_text("utf-8").splitlines()
    return {result["run"]: result for result in map(json.loads, lines)}


@pytest.fixture(scope="module")
def page():
    return (Path(__file__).parents[2] / "docs" / "paper.md").read_text("utf-8")


def test_the_page_has_the_recorded_results(paper, recorded, page):
    """Tables 1 to 3 and both figures."""
    runs, table1, figure1 = paper("runs"), paper("table1"), paper("figure1")
    suffixes = {
        name: f"-finetuned={task.finetune_epochs}" if task.finetune_epochs else ""
        for name, task in TASKS.items()
    }

    def scores(*names):
        return [next(iter(recorded[name]["scores"].values())) for name in names]

    def row(*cells):
        return f"| {' | '.join(cells)} |"

    expected = []  # how a row begins, and what else it has
    for task, title in runs.TITLES.items():
        position = runs.ELMO_POSITIONS[task]
        for suffix in dict.fromkeys((suffixes[task], "")):
            seeds = [n for n in range(3) if f"{task}-{position}-1-{n}{suffix}" in recorded]
            before = scores(*(f"{task}-none-1-{n}" for n in seeds))
            after = scores(*(f"{task}-{position}-1-{n}{suffix}" for n in seeds))
            means = statistics.mean(before), statistics.mean(after)
            reduction = f"{table1.error_reduction(*means):.2f} %"
            cells = row(str(len(seeds)), runs.percent(before), runs.percent(after), reduction)
            as_it_ships = suffixes[task] and not suffix
            expected.append((f"| {title}, biLM as" if as_it_ships else f"| {title} (", cells))
        for side, weights in recorded[f"{task}-{position}-1-0"]["layer_weights"].items():
            expected.append((f"| {title}, {side}", row(*(f"{weight:.2f}" for weight in weights))))
    for table in (paper("table2"), paper("table3")):
        for task in table.PAPER:
            names = (_name(task, **arm) for arm in table.ARMS.values())
            cells = row(*(runs.percent(scores(name)) for name in names))
            expected.append((f"| {runs.TITLES[task]} |", cells))
    for task in figure1.TASKS:
        for label, elmo, suffix in (
            ("without", "none", ""),
            ("with", runs.ELMO_POSITIONS[task], suffixes[task]),
        ):
            names = (f"{task}-{elmo}-{share:g}-0{suffix}" for share in figure1.SHARES)
            cells = row(label, *(runs.percent(scores(name)) for name in names))
            expected.append((f"| {runs.TITLES[task]} (" if elmo == "none" else "| | with", cells))
    assert len(expected) == 30
    lines = page.splitlines()
    missing = [e for e in expected if not any(s.startswith(e[0]) and e[1] in s for s in lines)]
    assert missing == []


def _name(task, elmo, **changes):
    changed = (f"{key}={value}" for key, value in changes.items())
    return "-".join([task, elmo, "1", "0", *changed])


def test_the_shipped_layer_weights_are_the_recorded_ones(script, recorded):
    file = files("elmokit").joinpath("english", "layer_weights.json")
    shipped = json.loads(file.read_text("utf-8"))["layer_weights"]
    positions = script("runs").ELMO_POSITIONS
    assert {mix["task"] for mix in shipped} == {*positions}
    for mix in shipped:
        run = f"{mix['task']}-{positions[mix['task']]}-1-0"
        assert mix["weights"] == recorded[run]["layer_weights"][mix["position"]], mix
