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
CITIES = ("Rome", "Oslo", "Kiel", "Bonn")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    files = {
        "small.toml": SMALL,
        "ner": "".join(f"the O\ncat O\nin O\n{p} I-LOC\n\nin O\n{p} I-LOC\n\n" for p in CITIES * 3),
        "rivers": "the O\nRhine B-RIVER\n\n",
        "pos": "".join(f"the\tDET\ncat\tNOUN\nin\tADP\n{p}\tPROPN\n\n" for p in CITIES),
        "texts": "".join(f"{n % 2}\ta {('bad', 'good')[n % 2]} film .\n" for n in range(12)),
        "entailment": "".join(f"a cat\t{('a dog', 'a cat')[n % 2]}\t{n % 2}\n" for n in range(12)),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def train(elmo, folder, model_folder):
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


def test_a_tagger_is_trained_evaluated_and_applied(elmo, train, folder):
    assert "out-ner: f1 1.0000" in succeeded(train("ner", "--elmo", "both", "--epochs=15"))
    scores = json.loads(succeeded(elmo("evaluate", "out-ner", "ner", "--json")))
    perfect = {"f1": 1.0, "precision": 1.0, "recall": 1.0}
    (num_gold,) = {label["gold"] for label in scores["labels"].values()}
    assert scores == {**perfect, "labels": {"LOC": {**perfect, "gold": num_gold}}}
    output = succeeded(elmo("evaluate", "out-ner", "ner"))
    assert "f1          1.0000" in output
    assert f"  LOC  f1 1.0000  precision 1.0000  recall 1.0000  of {num_gold}\n" in output
    tagged = succeeded(elmo("apply", "out-ner", "--text", "the cat in Oslo", "--text", "in Bonn"))
    assert tagged == "the\tO\ncat\tO\nin\tO\nOslo\tS-LOC\n\nin\tO\nBonn\tS-LOC\n\n"
    record = json.loads(succeeded(elmo("apply", "out-ner", "-", "--json", stdin=b"in Kiel\n")))
    assert record == {"sentences": [["in", "Kiel"]], "prediction": ["O", "S-LOC"]}
    weights = succeeded(elmo("layer-weights", "out-ner", "--plot", "weights.svg"))
    assert weights.count("layer 2 0.") == 2
    assert succeeded(elmo("layer-weights", "out-ner", "out-ner")) == 2 * weights
    failed(
        elmo("layer-weights", "out-ner", "--plot", "nowhere/weights.svg"),
        "nowhere/weights.svg: No such file",
    )
    _, stderr, _ = elmo("evaluate", "out-ner", "rivers")
    assert stderr == "labels that out-ner was not trained on and never predicts: RIVER\n"
    result = elmo("apply", "out-ner", "-", stdin=b"in Kiel\ncaf\xe9\n")
    failed(result, "stdin, line 2: not UTF-8")
    assert result[0] == "in\tO\nKiel\tS-LOC\n\n"  # the line before it
    assert "out-ner, input" in (folder / "weights.svg").read_text()
    succeeded(elmo("plot", "layer-weights", "out-ner", "--out", "same.svg"))
    assert (folder / "same.svg").read_bytes() == (folder / "weights.svg").read_bytes()
    succeeded(elmo("plot", "training", "out-ner"))
    assert "precision" in (folder / "training.svg").read_text()


def test_a_baseline_has_no_layer_weights(elmo, train):
    succeeded(train("pos", "--elmo", "none"))
    assert "trained without ELMo" in succeeded(elmo("layer-weights", "out-pos"))


def test_a_flag_of_a_task_can_be_switched_off(elmo, train, folder):
    succeeded(train("ner", "--no-crf"))
    assert json.loads((folder / "out-ner" / "task.json").read_text())["settings"]["crf"] is False


def test_texts_and_pairs_are_classified(elmo, train):
    succeeded(train("classification", file="texts"))
    output = succeeded(
        elmo("apply", "out-classification", "--text", "a good film .", "--tokenizer", "moses")
    )
    assert output == "1\ta good film .\n"
    record = json.loads(
        succeeded(elmo("apply", "out-classification", "--text", "a good film.", "--json"))
    )
    assert record == {"sentences": [["a", "good", "film", "."]], "prediction": "1"}
    output = succeeded(
        elmo("apply", "out-classification", "-", stdin=b"\na bad film.\n \n<br />\n")
    )
    assert output == "\n0\ta bad film.\n\n\n"
    output = succeeded(elmo("apply", "out-classification", "-", "--json", stdin=b"\na bad film.\n"))
    assert [line and line["prediction"] for line in map(json.loads, output.splitlines())] == [
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
        code=2,
    )
    succeeded(train("entailment", "--epochs", "20"))
    output = succeeded(elmo("apply", "out-entailment", "-", stdin=b"a cat\ta cat\n"))
    assert output == "1\ta cat\ta cat\n"
    result = elmo("apply", "out-entailment", "-", stdin=b"a cat\ta cat\na cat\n")
    failed(result, "line 2: 'a cat': 0 tabs, expected a premise, a tab")
    assert result[0] == output  # the line before it


@pytest.mark.full
def test_the_bilm_can_be_finetuned_on_the_training_text_first(elmo, train, folder):
    (folder / "words").mkdir()
    lm = make_folder(folder / "words", softmax_words=9)
    files = ("--train", "texts", "--dev", "texts", "--out", "out-texts", "-c", "small.toml")
    command = ("train", "classification", *files, "--finetune-epochs", "2", "-m", lm)
    output = succeeded(elmo(*command))
    finetuned, saved = (
        formats.load(folder / name) for name in ("out-texts.elmo", "out-texts/elmo")
    )
    assert finetuned.fingerprint() == saved.fingerprint() != formats.load(lm).fingerprint()
    assert succeeded(elmo(*command)) == output  # it is trained already
    failed(
        train("pos", "--finetune-epochs", "1"),
        "the model has no softmax, so it cannot be fine-tuned",
    )
    _, stderr, code = train("pos", "--finetune-epochs", "1", "--elmo", "none")
    assert code == 0
    assert (
        "--elmo none: no biLM is used, so --model and --finetune-epochs have no effect\n" in stderr
    )
    assert not (folder / "out-pos.elmo").exists()


def test_a_bilm_is_finetuned_on_training_text_only_and_saved_beside_the_folder(
    elmo, folder, monkeypatch
):
    (folder / "words").mkdir()
    lm = make_folder(folder / "words", softmax_words=9)
    (folder / "others").write_text("0\tno other text .\n")
    (folder / "out").mkdir()
    monkeypatch.chdir(folder / "out")
    texts, finetune = [], finetuning.finetune

    def record_text(pretrained, text, *rest, **options):
        texts.append(text)
        return finetune(pretrained, text, *rest, **options)

    monkeypatch.setattr(finetuning, "finetune", record_text)
    files = ("--train", "../texts", "--dev", "../others", "--out", ".", "-c", "../small.toml")
    succeeded(elmo("train", "classification", *files, "--finetune-epochs", "1", "-m", lm))
    (text,) = texts
    examples = TASKS["classification"].read(folder / "texts")
    assert sorted(text) == sorted({example.words for example in examples})
    assert (folder / "out.elmo").is_dir()


def test_a_text_too_long_is_reported_with_its_file(elmo, folder, monkeypatch):
    monkeypatch.setitem(TASKS, "entailment", replace(TASKS["entailment"], max_words=9))
    (folder / "long").write_text(f"{'a ' * 9}\tb\t1\n")
    files = ("--train", "entailment", "--dev", "long", "--out", "out", "-c", "small.toml")
    message = (
        "long: 10 words that begin 'a a a a a a a a', expected at most 9; cut the text in parts"
    )
    failed(elmo("train", "entailment", *files), message)


def test_stdin_is_read_once(elmo, folder):
    files = ("--train", "-", "--dev", "-", "--out", "out")
    failed(elmo("train", "classification", *files), "both -, but stdin can be read only once")


@pytest.mark.full
def test_a_bilm_without_vocabulary_is_not_finetuned(elmo, folder):
    (folder / "words").mkdir()
    lm = make_folder(folder / "words", softmax_words=9)
    (lm / "vocab.txt").unlink()
    (folder / "trees").write_text("(3 (2 It) (4 works))\n(1 No)\n" * 4)
    files = ("--train", "trees", "--dev", "trees", "--out", "out", "-c", "small.toml")
    _, stderr, code = elmo("train", "sentiment", *files, "-m", lm)
    assert code == 0
    assert "the biLM has no vocabulary, so it is not fine-tuned on the text first\n" in stderr
    assert not (folder / "out.elmo").exists()


def test_help_shows_the_settings_of_the_task(elmo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    help_texts = {name: succeeded(elmo("train", name, "--help")) for name in TASKS}
    for name, task in TASKS.items():
        assert task.description in help_texts[name]
        assert task.files in help_texts[name]
        assert f"[default: {task.settings.epochs}]" in help_texts[name]
        assert ("--crf" in help_texts[name]) == ("crf" not in task.unused_settings)
        assert f"[default: ({task.finetune_epochs})]" in help_texts[name]


def test_an_impossible_run_is_refused_before_finetuning(elmo, folder):
    (folder / "words").mkdir()
    lm = make_folder(folder / "words", softmax_words=9)
    (folder / "others").write_text("7\ta film .\n")
    (folder / "full").mkdir()
    (folder / "full" / "notes").write_text("mine")
    (folder / "two").write_text("film 1 2\n")
    options = ("--train", "texts", "--dev", "texts", "--out", "as-it-was", "-c", "small.toml")
    succeeded(
        elmo(
            "train",
            "classification",
            *options,
            "--epochs",
            "12",
            "--finetune-epochs=0",
            "-m",
            lm,
        )
    )
    for dev, out, option, message in (
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
            elmo("train", "classification", *files, "--finetune-epochs", "2", "-m", lm),
            message,
        )
        assert not (folder / f"{out}.elmo").exists()


def test_srl_takes_the_predicate_between_stars(elmo, train, folder):
    rows = "0\tcats\tN\t-\t-\t(ARG0*)\n1\teat\tV\teat\teat.01\t(V*)\n2\t{}\tN\t-\t-\t(ARG1*)\n\n"
    (folder / "roles").write_text("".join(rows.format(food) for food in ("fish", "mice") * 6))
    succeeded(train("srl", file="roles"))
    line = b"cats *eat* fish\n"
    expected = "[ARG0 cats] [V eat] [ARG1 fish]\n"
    (folder / "lines").write_bytes(line)
    assert succeeded(elmo("apply", "out-srl", "lines")) == expected
    assert succeeded(elmo("apply", "out-srl", "-", stdin=line)) == expected
    assert succeeded(elmo("apply", "out-srl", "--text", line.decode().strip())) == expected
    failed(elmo("apply", "out-srl", "--text", "cats eat"), "0 words between stars, expected one")
    failed(elmo("apply", "out-srl", "--text", "*a* (*b*)"), "2 words between stars, expected one")
    result = elmo(
        "apply", "out-srl", "--json", "--tokenizer", "moses", "--text", "Cats *ate*, he said."
    )
    record = json.loads(succeeded(result))
    assert record["sentences"] == [["Cats", "ate", ",", "he", "said", "."]]


@pytest.mark.full
def test_questions_are_answered_from_a_context(elmo, train, folder):
    def paragraph(number, name):
        text = f"the cat sleeps in {name}"
        answers = [{"text": name, "answer_start": text.index(name)}]
        return {
            "context": text,
            "qas": [{"id": str(number), "question": "where?", "answers": answers}],
        }

    data = {"data": [{"title": "cats", "paragraphs": [*starmap(paragraph, enumerate(CITIES * 3))]}]}
    (folder / "questions").write_text(json.dumps(data))
    succeeded(train("qa", "--epochs", "25", file="questions"))
    line = "where?\tthe cat sleeps in Oslo"
    (folder / "lines").write_text(line + "\n")
    for source in (["--text", line], ["lines"]):
        assert succeeded(elmo("apply", "out-qa", *source)) == "Oslo\n"
    long = f"{line}\nwhere?\t{'cat ' * 5000}\n"
    stdout, stderr, code = elmo("apply", "out-qa", "-", stdin=long.encode())
    assert (stdout, code) == ("Oslo\n", 1)
    assert stderr.startswith("elmo: line 2: 5,002 words that begin 'where ? cat")
    result = elmo("apply", "out-qa", "-", "--json", stdin=line.encode())
    assert json.loads(succeeded(result))["prediction"] == "Oslo"


@pytest.mark.full
def test_mentions_are_clustered(elmo, train, folder):
    row = "x 0 0 {} {}\n".format

    def document(first_verb, second_verb):
        first_sentence = (
            row("the", "(0"),
            row("cat", "0)"),
            row(first_verb, "-"),
            row(".", "-"),
            "\n",
        )
        second_sentence = row("it", "(0)"), row(second_verb, "-"), row(".", "-"), "\n"
        rows = *first_sentence, *second_sentence
        return "".join(["#begin document (a); part 0\n", *rows, "#end document\n"])

    both = document("eats", "runs") + document("runs", "eats")
    (folder / "coreference").write_text(both * 3)
    succeeded(train("coreference", "--epochs", "25", "--words-per-batch", "1"))
    text = "the cat eats . It runs ."
    (folder / "lines").write_text(text + "\n")
    output = succeeded(elmo("apply", "out-coreference", "lines"))
    assert output == succeeded(elmo("apply", "out-coreference", "--text", text))
    record = json.loads(
        succeeded(elmo("apply", "out-coreference", "-", "--json", stdin=text.encode()))
    )
    assert record["sentences"] == [["the", "cat", "eats", "."], ["It", "runs", "."]]
    assert record["prediction"] == [[[0, 1], [4, 4]]]
    header = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL"
    cells = ["1", text, "It", "15", "cat", "4", "TRUE", "runs", "18", "FALSE", "http://x"]
    gap = "".join("\t".join(row) + "\n" for row in (header.split(" "), cells))
    (folder / "gap.tsv").write_text(gap)
    for source, stdin in (("gap.tsv", b""), ("-", gap.encode())):
        scores = succeeded(elmo("evaluate", "out-coreference", source, "--json", stdin=stdin))
        assert json.loads(scores)["f1"] == 1
    failed(
        elmo("train", "coreference", "--train", "gap.tsv", "--dev", "gap.tsv", "--out", "new"),
        "GAP has only one pronoun of each text annotated, expected documents",
    )


def test_layers_are_probed(elmo, folder, model_folder, monkeypatch):
    monkeypatch.setattr("elmokit.tasks.probing._MIN_UPDATES", 150)
    monkeypatch.setattr("elmokit.tasks.probing._LEARNING_RATE", 0.02)
    scores = json.loads(succeeded(elmo("probe", "pos", "pos", "-m", model_folder, "--json")))
    assert len(scores["accuracy"]) == 3
    assert "layer 0  1.0000" in succeeded(elmo("probe", "pos", "pos", "-m", model_folder))


@pytest.mark.full
def test_senses_are_predicted_by_those_of_tagged_text(elmo, folder, model_folder):
    word = "<wf cmd=done pos=NN lemma=art wnsn=1 lexsn=1:06:00::>art</wf>\n"
    inner = f'<p pnum="1">\n<s snum="1">\n{word}</s>\n</p>\n'
    (folder / "semcor").write_text(
        f'<contextfile concordance="brown">\n<context filename="a" paras="yes">\n{inner}'
        "</context>\n</contextfile>\n"
    )
    instance = '<instance id="d0.s0.t0" lemma="art" pos="NOUN">art</instance>'
    (folder / "data").write_text(
        f'<corpus lang="en"><text id="d0"><sentence id="d0.s0">{instance}'
        "</sentence></text></corpus>"
    )
    (folder / "gold").write_text("d0.s0.t0 art%1:06:00::\n")
    (folder / "index").write_text("art%1:04:00:: 00933420 1 9\nart%1:06:00:: 02743547 2 5\n")
    command = ("wsd", "semcor", "data", "gold", "-m", model_folder, "--cache", "cache")
    command = (*command, "--wordnet", "index")
    output = succeeded(elmo(*command))
    assert "first sense    0.0000\nmost frequent  1.0000\nlayer 0        1.0000\n" in output
    assert json.loads(succeeded(elmo(*command, "--json")))["layers"] == [1.0, 1.0, 1.0]
    archived = io.BytesIO()
    with tarfile.open(fileobj=archived, mode="w:gz") as archive:
        archive.add(folder / "semcor", "semcor/br-a01")
    for content in ((folder / "semcor").read_bytes(), archived.getvalue()):
        assert succeeded(elmo("wsd", "-", *command[2:], stdin=content)) == output
    failed(elmo(*command[:-1], "none"), "none: no such file; on Debian it comes with")


def test_settings_are_printed_as_toml_and_read_again(elmo, folder):
    settings = succeeded(elmo("train", "srl", "--settings", "--hidden-size", "9"))
    assert "hidden_size = 9  # hidden size of" in settings
    assert "num_layers = 2  #" in settings  # the default of this task
    (folder / "all.toml").write_text(settings)
    assert succeeded(elmo("train", "srl", "--settings", "-c", "all.toml")) == settings


def test_mistakes_are_one_line(elmo, train, folder, model_folder):
    failed(train("parsing", file="ner"), "no task 'parsing'; expected one of chunking", code=2)
    assert "layers = [2]" in succeeded(elmo("train", "ner", "--settings", "--layers", "2"))
    failed(
        train("ner", "--hidden-size", "x"), "'--hidden-size': expected a whole number (see", code=2
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
    (folder / "empty").write_text("")
    failed(train("ner", file="empty"), "empty: ")
    failed(
        elmo("apply", "no", "--text", "a"), "no: no task.json; expected a folder that elmo train"
    )
    failed(elmo("layer-weights", folder), "no task.json; expected a folder that elmo train made")
    failed(elmo("train", "ner"), "missing option --train, --dev, --out", code=2)


def test_help_of_apply_says_what_a_line_is(elmo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "600")
    help_text = succeeded(elmo("apply", "--help"))
    for name, task in TASKS.items():
        assert name in help_text
        assert task.text.input_help in help_text
