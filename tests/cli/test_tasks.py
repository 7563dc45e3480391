"""Commands for supervised tasks."""

import io
import json
import tarfile
from dataclasses import replace
from itertools import starmap

import pytest

from elmokit import formats
from elmokit.pretraining import finetune as finetuning
from elmokit.tasks.task_registry import TASKS
from random_models import make_folder
from typed import failed, succeeded

pytestmark = pytest.mark.full

SMALL = (
    "word_embedding_size = 8\ncharacter_filters = 4\nhidden_size = 12\nepochs = 12\n"
    "learning_rate = 0.03\ndropout = 0.1\n"
)
PLACES = ("Rome", "Oslo", "Kiel", "Bonn")


@pytest.fixture
def place(tmp_path, monkeypatch):
    files = {
        "small.toml": SMALL,
        "ner": "".join(f"the O\ncat O\nin O\n{p} I-LOC\n\nin O\n{p} I-LOC\n\n" for p in PLACES * 3),
        "strange": "the O\nRhine B-RIVER\n\n",
        "pos": "".join(f"the\tDET\ncat\tNOUN\nin\tADP\n{p}\tPROPN\n\n" for p in PLACES),
        "texts": "".join(f"{n % 2}\ta {('bad', 'good')[n % 2]} film .\n" for n in range(12)),
        "entailment": "".join(f"a cat\t{('a dog', 'a cat')[n % 2]}\t{n % 2}\n" for n in range(12)),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def train(elmo, place, model_folder):
    def run(task, *options, file=None):
        files = ("--train", file or task, "--dev", file or task)
        return elmo(
            "train",
            task,
            *files,
            "--out",
            f"out-{task}",
            "-m",
            model_folder,
            "-c",
            "small.toml",
            *options,
        )

    return run


def test_names_are_learnt_judged_and_found(elmo, train, place):
    told = succeeded(train("ner", "--elmo", "both", "--epochs=15"))
    assert "out-ner: f1 1.0000" in told
    found = json.loads(succeeded(elmo("evaluate", "out-ner", "ner", "--json")))
    perfect = {"f1": 1.0, "precision": 1.0, "recall": 1.0}
    (wanted,) = {label["gold"] for label in found["labels"].values()}
    assert found == {**perfect, "labels": {"LOC": {**perfect, "gold": wanted}}}
    told = succeeded(elmo("evaluate", "out-ner", "ner"))
    assert "f1          1.0000" in told
    assert f"  LOC  f1 1.0000  precision 1.0000  recall 1.0000  of {wanted}\n" in told
    tagged = succeeded(elmo("apply", "out-ner", "--text", "the cat in Oslo", "--text", "in Bonn"))
    assert tagged == "the\tO\ncat\tO\nin\tO\nOslo\tS-LOC\n\nin\tO\nBonn\tS-LOC\n\n"
    said = json.loads(succeeded(elmo("apply", "out-ner", "-", "--json", stdin=b"in Kiel\n")))
    assert said == {"sentences": [["in", "Kiel"]], "prediction": ["O", "S-LOC"]}
    mixes = succeeded(elmo("layer-weights", "out-ner", "--plot", "mix.svg"))
    assert mixes.count("layer 2 0.") == 2
    assert succeeded(elmo("layer-weights", "out-ner", "out-ner")) == 2 * mixes
    failed(
        elmo("layer-weights", "out-ner", "--plot", "nowhere/mix.svg"),
        "nowhere/mix.svg: No such file",
    )
    _, told, _ = elmo("evaluate", "out-ner", "strange")
    assert told == "labels that out-ner was not trained on and never predicts: RIVER\n"
    asked = elmo("apply", "out-ner", "-", stdin=b"in Kiel\ncaf\xe9\n")
    failed(asked, "stdin, line 2: not UTF-8")
    assert asked[0] == "in\tO\nKiel\tS-LOC\n\n"  # what was asked before it
    assert "out-ner, input" in (place / "mix.svg").read_text()
    succeeded(elmo("plot", "layer-weights", "out-ner", "--out", "same.svg"))
    assert (place / "same.svg").read_bytes() == (place / "mix.svg").read_bytes()
    succeeded(elmo("plot", "training", "out-ner"))
    assert "precision" in (place / "training.svg").read_text()


def test_a_baseline_has_no_mix(elmo, train):
    succeeded(train("pos", "--elmo", "none"))
    assert "trained without ELMo" in succeeded(elmo("layer-weights", "out-pos"))


def test_a_flag_of_a_task_can_be_switched_off(elmo, train, place):
    succeeded(train("ner", "--no-crf"))
    assert json.loads((place / "out-ner" / "task.json").read_text())["settings"]["crf"] is False


def test_texts_and_pairs_are_labelled(elmo, train):
    succeeded(train("classification", file="texts"))
    said = succeeded(
        elmo("apply", "out-classification", "--text", "a good film .", "--tokenizer", "moses")
    )
    assert said == "1\ta good film .\n"
    raw = json.loads(
        succeeded(elmo("apply", "out-classification", "--text", "a good film.", "--json"))
    )
    assert raw == {"sentences": [["a", "good", "film", "."]], "prediction": "1"}
    blank = succeeded(elmo("apply", "out-classification", "-", stdin=b"\na bad film.\n \n<br />\n"))
    assert blank == "\n0\ta bad film.\n\n\n"
    blank = succeeded(elmo("apply", "out-classification", "-", "--json", stdin=b"\na bad film.\n"))
    assert [line and line["prediction"] for line in map(json.loads, blank.splitlines())] == [
        None,
        "0",
    ]
    failed(elmo("evaluate", "out-classification", "--text", "a"), "evaluated on a file of labelled")
    failed(
        elmo("evaluate", "out-classification", "texts", "--per-sentence", "x"),
        "with no options but --json",
    )
    failed(
        elmo("apply", "out-classification", "--text", "a", "--tokenizer", "x"),
        "no tokenizer is called 'x'",
    )
    succeeded(train("entailment", "--epochs", "20"))
    said = succeeded(elmo("apply", "out-entailment", "-", stdin=b"a cat\ta cat\n"))
    assert said == "1\ta cat\ta cat\n"
    asked = elmo("apply", "out-entailment", "-", stdin=b"a cat\ta cat\na cat\n")
    failed(asked, "line 2: 'a cat': 0 tabs, expected a premise, a tab")
    assert asked[0] == said  # what was asked before it


@pytest.mark.full
def test_a_bilm_may_first_read_the_text_to_learn_from(elmo, train, place):
    (place / "words").mkdir()
    speaker = make_folder(place / "words", softmax_words=9)
    files = ("--train", "texts", "--dev", "texts", "--out", "out-texts", "-c", "small.toml")
    asked = ("train", "classification", *files, "--finetune-epochs", "2", "-m", speaker)
    said = succeeded(elmo(*asked))
    read, own = (formats.load(place / name) for name in ("out-texts.elmo", "out-texts/elmo"))
    assert read.fingerprint() == own.fingerprint() != formats.load(speaker).fingerprint()
    assert succeeded(elmo(*asked)) == said  # it was learnt already
    failed(
        train("pos", "--finetune-epochs", "1"),
        "the model has no softmax, so it cannot be fine-tuned",
    )
    _, told, code = train("pos", "--finetune-epochs", "1", "--elmo", "none")
    assert code == 0
    assert "--elmo none: no biLM is used, so --model and --finetune-epochs have no effect\n" in told
    assert not (place / "out-pos.elmo").exists()


def test_a_bilm_reads_the_text_to_learn_from_alone_and_stands_beside_the_folder(
    elmo, place, monkeypatch
):
    (place / "words").mkdir()
    speaker = make_folder(place / "words", softmax_words=9)
    (place / "others").write_text("0\tno other text .\n")
    (place / "out").mkdir()
    monkeypatch.chdir(place / "out")
    texts, read = [], finetuning.finetune

    def spied(known, text, *rest, **named):
        texts.append(text)
        return read(known, text, *rest, **named)

    monkeypatch.setattr(finetuning, "finetune", spied)
    files = ("--train", "../texts", "--dev", "../others", "--out", ".", "-c", "../small.toml")
    succeeded(elmo("train", "classification", *files, "--finetune-epochs", "1", "-m", speaker))
    (text,) = texts
    examples = TASKS["classification"].read(place / "texts")
    assert sorted(text) == sorted({example.words for example in examples})
    assert (place / "out.elmo").is_dir()


def test_a_text_too_long_is_told_with_its_file(elmo, place, monkeypatch):
    monkeypatch.setitem(TASKS, "entailment", replace(TASKS["entailment"], max_words=9))
    (place / "long").write_text(f"{'a ' * 9}\tb\t1\n")
    files = ("--train", "entailment", "--dev", "long", "--out", "out", "-c", "small.toml")
    says = "long: 10 words that begin 'a a a a a a a a', expected at most 9; cut the text in parts"
    failed(elmo("train", "entailment", *files), says)


def test_stdin_is_read_once(elmo, place):
    files = ("--train", "-", "--dev", "-", "--out", "out")
    failed(elmo("train", "classification", *files), "both -, but stdin can be read only once")


@pytest.mark.full
def test_a_bilm_that_does_not_know_its_words_is_used_as_it_is(elmo, place):
    (place / "words").mkdir()
    speaker = make_folder(place / "words", softmax_words=9)
    (speaker / "vocab.txt").unlink()
    (place / "trees").write_text("(3 (2 It) (4 works))\n(1 No)\n" * 4)
    files = ("--train", "trees", "--dev", "trees", "--out", "out", "-c", "small.toml")
    _, told, code = elmo("train", "sentiment", *files, "-m", speaker)
    assert code == 0
    assert "the biLM has no vocabulary, so it is not fine-tuned on the text first\n" in told
    assert not (place / "out.elmo").exists()


def test_help_shows_the_settings_of_the_task(elmo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = {name: succeeded(elmo("train", name, "--help")) for name in TASKS}
    for name, task in TASKS.items():
        assert task.description in shown[name]
        assert task.files in shown[name]
        assert f"[default: {task.settings.epochs}]" in shown[name]
        assert ("--crf" in shown[name]) == ("crf" not in task.unused_settings)
        assert f"[default: ({task.finetune_epochs})]" in shown[name]


def test_a_run_that_cannot_be_is_refused_before_the_bilm_reads(elmo, place):
    (place / "words").mkdir()
    speaker = make_folder(place / "words", softmax_words=9)
    (place / "others").write_text("7\ta film .\n")
    (place / "full").mkdir()
    (place / "full" / "notes").write_text("mine")
    (place / "two").write_text("film 1 2\n")
    begun = ("--train", "texts", "--dev", "texts", "--out", "as-it-was", "-c", "small.toml")
    succeeded(
        elmo(
            "train",
            "classification",
            *begun,
            "--epochs",
            "12",
            "--finetune-epochs=0",
            "-m",
            speaker,
        )
    )
    for dev, out, option, says in (
        ("others", "out", (), "labelled 7, the training examples 0, 1; are they of one task?"),
        ("texts", "full", (), "full: holds notes, but no checkpoint of a run"),
        ("texts", "out", ("--word-vectors", "none"), "none: no such file, expected word vectors"),
        ("texts", "out", ("--word-vectors", "two"), "two: vectors of 2 numbers, but word_e"),
        ("texts", "out", ("--layers", "9"), "layers is (9,), expected some of 0 to 2"),
        ("texts", "as-it-was", (), "as-it-was: was started with the biLM as it is, now fine-tuned"),
        ("texts", "as-it-was", ("--hidden-size", "7"), "as-it-was: was started with the biLM as"),
        ("texts", "texts", (), "texts: is a file, expected a directory; name another"),
    ):
        files = ("--train", "texts", "--dev", dev, "--out", out, "-c", "small.toml", *option)
        failed(
            elmo("train", "classification", *files, "--finetune-epochs", "2", "-m", speaker), says
        )
        assert not (place / f"{out}.elmo").exists()


def test_roles_are_found_of_the_word_between_stars(elmo, train, place):
    rows = "0\tcats\tN\t-\t-\t(ARG0*)\n1\teat\tV\teat\teat.01\t(V*)\n2\t{}\tN\t-\t-\t(ARG1*)\n\n"
    (place / "roles").write_text("".join(rows.format(food) for food in ("fish", "mice") * 6))
    succeeded(train("srl", file="roles"))
    line = b"cats *eat* fish\n"
    expected = "[ARG0 cats] [V eat] [ARG1 fish]\n"
    (place / "lines").write_bytes(line)
    assert succeeded(elmo("apply", "out-srl", "lines")) == expected
    assert succeeded(elmo("apply", "out-srl", "-", stdin=line)) == expected
    assert succeeded(elmo("apply", "out-srl", "--text", line.decode().strip())) == expected
    failed(elmo("apply", "out-srl", "--text", "cats eat"), "0 words between stars, expected one")
    failed(elmo("apply", "out-srl", "--text", "*a* (*b*)"), "2 words between stars, expected one")
    asked = elmo(
        "apply", "out-srl", "--json", "--tokenizer", "moses", "--text", "Cats *ate*, he said."
    )
    said = json.loads(succeeded(asked))
    assert said["sentences"] == [["Cats", "ate", ",", "he", "said", "."]]


@pytest.mark.full
def test_questions_are_answered_from_a_text(elmo, train, place):
    def paragraph(number, name):
        text = f"the cat sleeps in {name}"
        answers = [{"text": name, "answer_start": text.index(name)}]
        return {
            "context": text,
            "qas": [{"id": str(number), "question": "where?", "answers": answers}],
        }

    data = {"data": [{"title": "cats", "paragraphs": [*starmap(paragraph, enumerate(PLACES * 3))]}]}
    (place / "questions").write_text(json.dumps(data))
    succeeded(train("qa", "--epochs", "25", file="questions"))
    asked = "where?\tthe cat sleeps in Oslo"
    (place / "lines").write_text(asked + "\n")
    for given in (["--text", asked], ["lines"]):
        assert succeeded(elmo("apply", "out-qa", *given)) == "Oslo\n"
    long = f"{asked}\nwhere?\t{'cat ' * 5000}\n"
    said, told, code = elmo("apply", "out-qa", "-", stdin=long.encode())
    assert (said, code) == ("Oslo\n", 1)
    assert told.startswith("elmo: line 2: 5,002 words that begin 'where ? cat")
    said = elmo("apply", "out-qa", "-", "--json", stdin=asked.encode())
    assert json.loads(succeeded(said))["prediction"] == "Oslo"


@pytest.mark.full
def test_mentions_are_grouped(elmo, train, place):
    row = "x 0 0 {} {}\n".format

    def document(first, second):
        said = row("the", "(0"), row("cat", "0)"), row(first, "-"), row(".", "-"), "\n"
        more = row("it", "(0)"), row(second, "-"), row(".", "-"), "\n"
        return "".join(["#begin document (a); part 0\n", *said, *more, "#end document\n"])

    both = document("eats", "runs") + document("runs", "eats")
    (place / "coreference").write_text(both * 3)
    succeeded(train("coreference", "--epochs", "25", "--words-per-batch", "1"))
    text = "the cat eats . It runs ."
    (place / "lines").write_text(text + "\n")
    found = succeeded(elmo("apply", "out-coreference", "lines"))
    assert found == succeeded(elmo("apply", "out-coreference", "--text", text))
    said = json.loads(
        succeeded(elmo("apply", "out-coreference", "-", "--json", stdin=text.encode()))
    )
    assert said["sentences"] == [["the", "cat", "eats", "."], ["It", "runs", "."]]
    assert said["prediction"] == [[[0, 1], [4, 4]]]
    header = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL"
    cells = ["1", text, "It", "15", "cat", "4", "TRUE", "runs", "18", "FALSE", "http://x"]
    gap = "".join("\t".join(row) + "\n" for row in (header.split(" "), cells))
    (place / "gap.tsv").write_text(gap)
    for given, stdin in (("gap.tsv", b""), ("-", gap.encode())):
        judged = succeeded(elmo("evaluate", "out-coreference", given, "--json", stdin=stdin))
        assert json.loads(judged)["f1"] == 1
    failed(
        elmo("train", "coreference", "--train", "gap.tsv", "--dev", "gap.tsv", "--out", "new"),
        "GAP has only one pronoun of each text annotated, expected documents",
    )


def test_layers_are_probed(elmo, place, model_folder, monkeypatch):
    monkeypatch.setattr("elmokit.tasks.probing._MIN_UPDATES", 150)
    monkeypatch.setattr("elmokit.tasks.probing._LEARNING_RATE", 0.02)
    found = json.loads(succeeded(elmo("probe", "pos", "pos", "-m", model_folder, "--json")))
    assert len(found["accuracy"]) == 3
    assert "layer 0  1.0000" in succeeded(elmo("probe", "pos", "pos", "-m", model_folder))


@pytest.mark.full
def test_senses_are_chosen_by_those_of_tagged_text(elmo, place, model_folder):
    word = "<wf cmd=done pos=NN lemma=art wnsn=1 lexsn=1:06:00::>art</wf>\n"
    inner = f'<p pnum="1">\n<s snum="1">\n{word}</s>\n</p>\n'
    (place / "semcor").write_text(
        f'<contextfile concordance="brown">\n<context filename="a" paras="yes">\n{inner}'
        "</context>\n</contextfile>\n"
    )
    instance = '<instance id="d0.s0.t0" lemma="art" pos="NOUN">art</instance>'
    (place / "data").write_text(
        f'<corpus lang="en"><text id="d0"><sentence id="d0.s0">{instance}'
        "</sentence></text></corpus>"
    )
    (place / "gold").write_text("d0.s0.t0 art%1:06:00::\n")
    (place / "index").write_text("art%1:04:00:: 00933420 1 9\nart%1:06:00:: 02743547 2 5\n")
    asked = ("wsd", "semcor", "data", "gold", "-m", model_folder, "--cache", "kept")
    asked = (*asked, "--wordnet", "index")
    found = succeeded(elmo(*asked))
    assert "first sense    0.0000\nmost frequent  1.0000\nlayer 0        1.0000\n" in found
    assert json.loads(succeeded(elmo(*asked, "--json")))["layers"] == [1.0, 1.0, 1.0]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(place / "semcor", "semcor/br-a01")
    for given in ((place / "semcor").read_bytes(), packed.getvalue()):
        assert succeeded(elmo("wsd", "-", *asked[2:], stdin=given)) == found
    failed(elmo(*asked[:-1], "none"), "none: no such file; on Debian it comes with")


def test_settings_are_told_and_taken(elmo, place):
    told = succeeded(elmo("train", "srl", "--settings", "--hidden-size", "9"))
    assert "hidden_size = 9  # hidden size of" in told
    assert "num_layers = 2  #" in told  # as this task has it
    (place / "all.toml").write_text(told)
    assert succeeded(elmo("train", "srl", "--settings", "-c", "all.toml")) == told


def test_mistakes_are_one_line(elmo, train, place, model_folder):
    failed(train("parsing", file="ner"), "no task 'parsing'; expected one of chunking", code=2)
    assert "layers = [2]" in succeeded(elmo("train", "ner", "--settings", "--layers", "2"))
    failed(
        train("ner", "--hidden-size", "x"), "'--hidden-size': Input should be a valid int", code=2
    )
    failed(train("ner", "--epochs", "0"), "small.toml --epochs 0: epochs is 0, expected more than")
    assert "layers = [0, 2]" in succeeded(elmo("train", "ner", "--settings", "--layers", "0,2"))
    failed(train("ner", file="none"), "none: No such file")
    failed(train("ner", "-c", "none"), "none: no such file, expected a TOML file of settings")
    failed(
        elmo("probe", "pos", "ner", "-m", model_folder),
        "no tag of the dev examples is in training",
    )
    failed(train("ner", "--device", "cuba"), "device 'cuba' cannot be used here")
    failed(train("ner", "--elmo", "none", "--device", "cuba"), "device 'cuba' cannot be used here")
    (place / "empty").write_text("")
    failed(train("ner", file="empty"), "empty: ")
    failed(
        elmo("apply", "no", "--text", "a"), "no: no task.json; expected a folder that elmo train"
    )
    failed(elmo("layer-weights", place), "no task.json; expected a folder that elmo train made")
    failed(elmo("train", "ner"), "missing option --train, --dev, --out", code=2)


def test_help_of_apply_says_what_a_line_is(elmo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "600")
    shown = succeeded(elmo("apply", "--help"))
    for name, task in TASKS.items():
        assert name in shown
        assert task.text.input_help in shown
