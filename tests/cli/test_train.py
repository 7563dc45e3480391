"""Tasks are learnt, judged and used as a person would type it."""

import json

import pytest

from typed import failed, succeeded

SMALL = (
    "word_dim = 8\ncharacters = 4\nhidden = 12\nepochs = 12\nlearning_rate = 0.03\ndropout = 0.1\n"
)
PLACES = ("Rome", "Oslo", "Kiel", "Bonn")


@pytest.fixture
def place(tmp_path, monkeypatch):
    files = {
        "small.toml": SMALL,
        "ner": "".join(f"the O\ncat O\nin O\n{p} I-LOC\n\n" for p in PLACES * 3),
        "pos": "".join(f"the\tDET\ncat\tNOUN\nin\tADP\n{p}\tPROPN\n\n" for p in PLACES),
        "texts": "".join(f"{n % 2}\ta {('bad', 'good')[n % 2]} film .\n" for n in range(12)),
        "entailment": "".join(f"a cat\t{('a dog', 'a cat')[n % 2]}\t{n % 2}\n" for n in range(12)),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def train(elmo, place, folder):
    def run(task, *options, file=None):
        files = ("--train", file or task, "--dev", file or task)
        return elmo(
            "train",
            task,
            *files,
            "--out",
            f"out-{task}",
            "-m",
            folder,
            "-c",
            "small.toml",
            *options,
        )

    return run


@pytest.fixture
def folder(model_folder):
    return model_folder


def test_names_are_learnt_judged_and_found(elmo, train, place):
    told = succeeded(train("ner", "--elmo", "both", "--epochs=15"))
    assert "out-ner: f1 1.0000" in told
    found = json.loads(succeeded(elmo("evaluate", "out-ner", "ner", "--json")))
    assert found == {"f1": 1.0, "precision": 1.0, "recall": 1.0}
    assert "f1          1.0000" in succeeded(elmo("evaluate", "out-ner", "ner"))
    tagged = succeeded(elmo("tag", "out-ner", "--text", "the cat in Oslo", "--text", "in Bonn"))
    assert tagged == "the\tO\ncat\tO\nin\tO\nOslo\tS-LOC\n\nin\tO\nBonn\tS-LOC\n\n"
    said = json.loads(succeeded(elmo("tag", "out-ner", "-", "--json", stdin=b"in Kiel\n")))
    assert said == {"sentences": [["in", "Kiel"]], "answer": ["O", "S-LOC"]}
    mixes = succeeded(elmo("mix", "out-ner", "--plot", "mix.svg"))
    assert mixes.count("layer 2 0.") == 2
    assert "out-ner, input" in (place / "mix.svg").read_text()
    succeeded(elmo("plot", "mix", "out-ner", "--out", "same.svg"))
    assert (place / "same.svg").read_bytes() == (place / "mix.svg").read_bytes()
    succeeded(elmo("plot", "curve", "out-ner"))
    assert "precision" in (place / "curve.svg").read_text()


def test_a_baseline_has_no_mix(elmo, train):
    succeeded(train("pos", "--elmo", "none"))
    assert "trained without ELMo" in succeeded(elmo("mix", "out-pos"))


def test_texts_and_pairs_are_labelled(elmo, train):
    succeeded(train("texts", "--crf", "false"))
    said = succeeded(elmo("classify", "out-texts", "--text", "a good film .", "--split", "moses"))
    assert said == "1\ta good film .\n"
    raw = json.loads(succeeded(elmo("classify", "out-texts", "--text", "a good film.", "--json")))
    assert raw == {"sentences": [["a", "good", "film", "."]], "answer": "1"}
    blank = succeeded(elmo("classify", "out-texts", "-", stdin=b"\na bad film.\n \n"))
    assert blank == "\n0\ta bad film.\n\n"
    blank = succeeded(elmo("classify", "out-texts", "-", "--json", stdin=b"\na bad film.\n"))
    assert [line and line["answer"] for line in map(json.loads, blank.splitlines())] == [None, "0"]
    failed(elmo("evaluate", "out-texts", "--text", "a"), "judged by a file of labelled examples")
    failed(
        elmo("evaluate", "out-texts", "texts", "--per-sentence", "x"), "with no option but --json"
    )
    failed(
        elmo("classify", "out-texts", "--text", "a", "--split", "x"), "no splitter is called 'x'"
    )
    succeeded(train("entailment", "--epochs", "20"))
    said = succeeded(elmo("entail", "out-entailment", "-", stdin=b"a cat\ta cat\n"))
    assert said == "1\ta cat\ta cat\n"
    failed(elmo("entail", "out-entailment", "--text", "a cat"), "0 tabs, expected a premise, a tab")
    failed(elmo("tag", "out-texts", "--text", "a"), "was trained for texts, expected chunking or")


def test_layers_are_probed(elmo, place, folder, monkeypatch):
    monkeypatch.setattr("elmokit.tasks.probe._UPDATES", 150)
    monkeypatch.setattr("elmokit.tasks.probe._RATE", 0.02)
    found = json.loads(succeeded(elmo("probe", "pos", "pos", "-m", folder, "--json")))
    assert len(found["accuracy"]) == 3
    assert "layer 0  1.0000" in succeeded(elmo("probe", "pos", "pos", "-m", folder))


def test_mistakes_are_one_line(elmo, train, place):
    failed(
        train("parsing", file="ner"), "no task is called 'parsing', expected one of ner, chunking"
    )
    failed(train("ner", "--hiden", "3"), "there is no setting 'hiden'; known are")
    failed(train("ner", "--hidden", "x"), "hidden: Input should be a valid integer")
    failed(train("ner", file="none"), "none: No such file")
    (place / "empty").write_text("")
    failed(train("ner", file="empty"), "empty: ")
    failed(elmo("tag", "no", "--text", "a"), "no: no task.json; expected a folder that elmo train")
    failed(elmo("mix", place), "no task.json; expected a folder that elmo train made")
    failed(elmo("train", "ner"), "Missing option", code=2)
