"""What all commands share: input, help, suggestions, errors, Ctrl-C."""

import inspect
import io
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import elmokit
from elmokit.cli import options
from elmokit.pooling import LAYERS, POOLINGS
from elmokit.tasks.task_registry import TASKS
from elmokit.tokenizers import TOKENIZERS
from typed import TEXT, WAYS, failed, given_by, succeeded

ELMO = Path(sys.executable).with_name("elmo")
COMMANDS = [
    "embed", "encode", "score", "evaluate", "predict", "models", "download", "info", "convert",
    "export", "prepare", "pretrain", "train", "train ner", "apply", "layer-weights", "probe", "wsd",
    "index build", "index add", "index delete", "index info", "search", "plot contexts",
    "plot similarity", "plot layer-weights", "plot training", "serve", "index", "plot",
]  # fmt: skip


@pytest.mark.parametrize("arguments", [
    ["embed", "{}", "out.hdf5"], ["encode", "{}"], ["score", "{}", "--json"],
    ["evaluate", "{}", "--json"], ["predict", "{}", "-k", "2"],
    ["export", "states", "{}", "-o", "states.npz"], ["plot", "contexts", "word", "{}", "--prefix"],
], ids=lambda arguments: " ".join(arguments[:2]))  # fmt: skip
def test_a_text_is_an_argument_a_file_or_stdin(elmo, folder, text, arguments, tmp_path):
    results = []
    for way in WAYS:
        (tmp_path / way).mkdir()
        os.chdir(tmp_path / way)
        given, stdin = given_by(way, text)
        place = arguments.index("{}")
        out = succeeded(
            elmo(*arguments[:place], *given, *arguments[place + 1 :], "-m", folder, stdin=stdin)
        )
        files = sorted(path.read_bytes() for path in (tmp_path / way).iterdir())
        results.append((out, files if arguments[0] == "export" else len(files)))
        assert out or files
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_text_ends_in_an_example_and_shows_no_type_for_flags(elmo, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = succeeded(elmo(*command.split(), "--help"))
    assert f"Example: elmo {command}" in shown
    assert not {"<bool>", "<str>", "<path>"} & {*shown.split()}
    assert "--json  " in shown or "--json" not in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_a_narrow_terminal_shows_all_names_of_options(elmo, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert not re.findall(r"-[\w-]*…", succeeded(elmo(*command.split(), "--help")))


def test_help_lists_every_command_in_groups_without_importing_torch():
    code = "import sys\ntry: elmokit.cli.main()\nfinally: assert 'torch' not in sys.modules"
    before = os.times()
    shown = subprocess.run(
        [sys.executable, "-c", f"import elmokit.cli\n{code}", "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    after = os.times()  # the time it computed, however busy the machine
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 1
    assert "Example: elmo encode" in shown
    positions = [shown.index(f"│ {command.split()[0]} ") for command in COMMANDS[:-2]]
    assert positions == sorted(positions)
    panels = ("Vectors", "Language model", "Models", "Pretraining", "Tasks", "Search", "Service")
    positions = [shown.index(f"─ {panel} ─") for panel in panels]
    assert positions == sorted(positions)


@pytest.mark.parametrize(("command", "choices"), [
    ("encode", ["|".join(POOLINGS), "zero|carry|warm", "float32|half|int8"]),
    ("predict", ["Keep <S>, </S> and <UNK> among"]),
    ("prepare", ["<S>, </S> and <UNK> included"]),
    ("pretrain", ["tiny|small|medium|original|english", "adagrad|adamw", "default: 128", "--no-"]),
    ("train", list(TASKS)),
    ("train pos", ["none|input|output|both", "default: 0.3"]),
    ("index", ["elmokit[search]"]),
    ("index build", ["|".join(POOLINGS), "zca|top|centre|none", "auto|flat|hnsw|ivf"]),
])  # fmt: skip
def test_help_lists_choices_and_shows_brackets(elmo, command, choices, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    shown = succeeded(elmo(*command.split(), "--help"))
    assert shown == succeeded(elmo(*command.split(), "-h"))
    for choice in choices:
        assert choice in shown


@pytest.mark.parametrize(("command", "layers"), [
    ("embed", ["all", "top", "mean", "sum", "concat"]),
    ("encode", ["mean", "top", "sum", "concat"]),
    ("index build", ["mean", "top", "concat"]),
])  # fmt: skip
def test_help_says_what_poolings_tokenizers_and_layers_are(elmo, command, layers, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    shown = succeeded(elmo(*command.split(), "--help"))
    for name, pooling in POOLINGS.items():
        assert f"{name} ({pooling.description})" in shown
    for name, tokenizer in TOKENIZERS.items():
        assert f"{name} ({tokenizer.description})" in shown
    for name in layers:
        assert f"{name} ({LAYERS[name]})" in shown
    assert "|".join(layers) + "|NUMBER" in shown


@pytest.mark.parametrize(("typed", "message"), [
    ("predit", "no command 'predit'; did you mean predict?"),
    ("fly", "no command 'fly'; expected one of embed, encode"),
    ("tag ner", "no command 'tag'; use `elmo apply`"),
    ("corefer coref", "no command 'corefer'; use `elmo apply`"),
    ("dump words", "no command 'dump'; use `elmo export`"),
    ("plot senses bank", "no command 'senses'; use `elmo plot contexts`"),
    ("train nre", "no task 'nre'; did you mean ner?"),
    ("encode --tokeniser x", "no option --tokeniser; did you mean --tokenizer?"),
    ("encode --state zer", "'zer' is not one of 'zero', 'carry', 'warm'; did you mean zero?"),
    ("encode --pooling maen", "did you mean mean?"),
    ("encode --tokenizer mosse", "did you mean moses? (see elmo encode --help)"),
    ("embed in out --layers tpo", "'tpo' is not one of 'all', 'top', 'mean', 'sum', 'concat' or"),
    ("embed in out --layers tpo", "a number; did you mean top? (see elmo embed --help)"),
    ("pretrain d --out o --batch-szie 6", "no option --batch-szie; did you mean --batch-size"),
    ("train pos --hiden 6", "no option --hiden; did you mean --hidden-size?"),
    ("embed", "missing argument 'INPUT'"),
])  # fmt: skip
def test_misspelt_names_get_a_suggestion(elmo, typed, message):
    failed(elmo(*typed.split()), message, code=2)


def test_the_version_is_printed(elmo):
    assert succeeded(elmo("--version")) == f"elmo {elmokit.__version__}\n"


def test_the_options_of_load_have_its_defaults():
    defaults = inspect.signature(elmokit.load).parameters
    for name in get_type_hints(options._LoadOptions):
        if name != "model":
            assert defaults[name].default == getattr(options._LoadOptions, name).default, name


def test_states_precisions_and_kernels_are_those_of_load():
    hints, of_load = get_type_hints(options._LoadOptions), get_type_hints(elmokit.load)
    for name in ("state", "precision", "kernel"):
        assert get_args(hints[name]) == get_args(of_load[name])


@pytest.mark.parametrize("module", ["elmokit", "elmokit.cli"])
def test_python_can_run_it_as_a_module(module, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", module, "info", tmp_path / "x"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"elmo: {tmp_path}/x: no such file or folder\n"


def test_ctrl_c_says_how_the_work_goes_on(folder, tmp_path):
    os.mkfifo(tmp_path / "text")
    process = subprocess.Popen(
        [ELMO, "embed", tmp_path / "text", tmp_path / "out.hdf5", "-m", folder],
        stderr=subprocess.PIPE, text=True,
        # A shell lets what it starts in the background ignore SIGINT, and the tests with it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    try:
        with open(tmp_path / "text", "w"):  # it has opened its input
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err == (
        "elmo: interrupted; run the same command again to go on after the last sentence written\n"
    )


@pytest.mark.parametrize(("command", "how"), [
    (["encode", "--text", "a"], "elmo: interrupted\n"),
    (["train", "pos", "--settings"], "elmo: interrupted; run the same command again to go on"),
])  # fmt: skip
def test_ctrl_c_exits_with_130(elmo, command, how, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("elmokit.load", interrupt, raising=False)
    monkeypatch.setattr("elmokit.cli.tasks.read_settings", interrupt)
    _, err, code = elmo(*command)
    assert code == 130
    assert err.startswith(how)


def test_a_long_line_is_announced(elmo, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(options, "_LONG_LINE", 20)
    (tmp_path / "text").write_text(f"a b\n{'word1 ' * 9}\n")
    _, err, code = elmo("encode", tmp_path / "text", "-m", folder)
    assert code == 0
    assert err == f"{tmp_path}/text, line 2: 54 characters on one line, this takes a while\n"


def test_a_terminal_is_told_how_its_text_ends(monkeypatch, capfd):
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"a\n")))
    stdin.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", stdin)
    with options.lines_of("-", None) as lines:
        assert [*lines] == ["a"]
    assert capfd.readouterr().err.startswith("reading from the terminal; Ctrl-D")


def test_a_pipe_that_closes_early_is_no_error(folder):
    command = f"yes 'a b c' | head -n 20000 | {ELMO} encode - -m {folder} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_full_stdout_is_one_line(folder):
    command = f"{ELMO} encode --text a -m {folder} > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "elmo: No space left on device\n")


def test_bytes_that_are_not_utf8_are_named_by_line_and_column(elmo, folder, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"fine\n" * 6 + b"na\xefve\n" + b"fine\n")
    target = tmp_path / "out.hdf5"
    done = elmo("embed", path, target, "-m", folder)
    failed(done, "text.txt, line 7: not UTF-8 (byte 0xef at column 3)")
    assert [*tmp_path.iterdir()] == [path]
    failed(elmo("encode", "-", "-m", folder, stdin=path.read_bytes()), "stdin, line 7: not UTF-8")
    byte_order_mark = b"\xef\xbb\xbfab\xff"
    failed(
        elmo("encode", "-", "-m", folder, stdin=byte_order_mark),
        "stdin, line 1: not UTF-8 (byte 0xff at column 3)",
    )


def test_a_model_is_a_folder_or_two_files(elmo, folder, text):
    pair = ["-m", folder / "weights.hdf5", "-m", folder / "options.json"]
    assert succeeded(elmo("encode", text, *pair)) == succeeded(elmo("encode", text, "-m", folder))
    failed(
        elmo("encode", text, *["-m", folder] * 3),
        "--model was given 3 times, expected once or twice",
        code=2,
    )


def test_a_text_is_given_once(elmo, folder, text):
    none = "no INPUT given; name a file, - for stdin, or give --text (see elmo encode --help)"
    failed(elmo("encode", "-m", folder), none, code=2)
    failed(elmo("encode", text, "--text", TEXT), "give INPUT or --text, not both", code=2)
    failed(elmo("encode", "-m", folder, "--text", "na\udcefve"), "not UTF-8")
