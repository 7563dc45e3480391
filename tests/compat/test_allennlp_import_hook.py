import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import elmokit
from elmokit.compat.allennlp.import_hook import _NOT_HERE

SCRIPTS = Path(__file__).parent / "scripts"


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "elmokit.compat.allennlp", *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip


@pytest.fixture(scope="module")
def golden(shared):
    return shared / "golden" / "allennlp"


def expected(golden, row, step):
    with h5py.File(golden / f"lm_embeddings_{row}.hdf5") as file:
        return np.concatenate([*file[str(step)][...]], 1)


def run_old_script(name, golden, tmp_path):
    files = [golden / name for name in ("options.json", "lm_weights.hdf5", "sentences.json")]
    done = run(SCRIPTS / name, *files, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "out.npz")


def test_the_embedder_gives_the_golden_vectors(golden, tmp_path):
    results = run_old_script("old_embedder.py", golden, tmp_path)
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert len(file) == 31
        for step in range(10):
            for row in range(3):
                top = expected(golden, row, step)
                for actual in (
                    results[f"batch_{row}_{step}"],
                    results[f"sentences_{row}_{step}"],
                    file[str(3 * step + row)][...],
                ):
                    np.testing.assert_allclose(actual, top, rtol=0, atol=2e-6)
            np.testing.assert_allclose(
                results[f"sentence_{step}"], expected(golden, 0, step), rtol=0, atol=2e-6
            )
    for row in range(3):
        length = results["mask"][row].sum()
        np.testing.assert_allclose(
            results["activations"][row, 2, :length], expected(golden, row, 0), atol=2e-6
        )
        assert not results["activations"][row, :, length:].any()


def test_a_tagger_trains_and_its_elmo_gives_the_golden_vectors(golden, tmp_path):
    results = run_old_script("old_tagger.py", golden, tmp_path)
    for step in range(10):
        for row in range(3):
            actual = results[f"top_{row}_{step}"]
            np.testing.assert_allclose(actual, expected(golden, row, step), rtol=0, atol=2e-6)
    losses = results["losses"]
    assert losses[-10:].mean() < 0.85 * losses[:10].mean()


@pytest.mark.parametrize(
    ("line", "explanation"),
    [
        (
            "from allennlp.predictors import Predictor",
            "ModuleNotFoundError: allennlp.predictors belongs to predictions of trained models; "
            "elmokit stands in for AllenNLP's ELMo only: use elmokit.load_task",
        ),
        (
            "from allennlp.modules import ConditionalRandomField",
            "ModuleNotFoundError: allennlp.modules.ConditionalRandomField belongs to conditional "
            "random fields; elmokit stands in for AllenNLP's ELMo only: use elmokit.tasks.crf",
        ),
        ("from allennlp.nn.util import masked_softmax", "functions on tensors; elmokit stands in"),
        ("import allennlp; allennlp.data.Vocabulary", "AttributeError: allennlp.data.Vocabulary"),
    ],
)
def test_a_missing_name_says_what_it_was_and_what_to_use(tmp_path, line, explanation):
    (tmp_path / "script.py").write_text(line)
    assert explanation in run(tmp_path / "script.py").stderr


def test_what_is_named_instead_of_missing_names_exists():
    for _, instead in _NOT_HERE.values():
        for name in re.findall(r"elmokit(?:\.\w+)+", instead):
            pkgutil.resolve_name(name)


def test_a_script_or_module_gets_its_arguments_and_finds_its_modules(tmp_path):
    (tmp_path / "neighbour.py").write_text("NAME = 'next door'\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, neighbour\nprint(__name__, sys.argv[1:], neighbour.NAME)\n")
    assert run(script, "a", "--b").stdout == "__main__ ['a', '--b'] next door\n"
    assert (
        run("-m", "script", "a", "--b", cwd=tmp_path).stdout == "__main__ ['a', '--b'] next door\n"
    )
    for wrong in ([], ["-m"], ["--help"]):
        assert "usage: python -m elmokit.compat.allennlp SCRIPT" in run(*wrong).stderr
    assert run("missing.py").stderr == "missing.py: no such script\n"
    script.write_text("import importlib.util as u\nprint(u.find_spec('allennlp') is not None)\n")
    assert run(script).stdout == "True\n"


def test_the_command_of_allennlp_writes_its_file(golden, tmp_path):
    sentences, target = tmp_path / "in.txt", tmp_path / "out.hdf5"
    files = "--options-file", golden / "options.json", "--weight-file", golden / "lm_weights.hdf5"
    sentences.write_text("A line .\nAnother / one\n")
    done = run("elmo", sentences, target, "--average", *files)
    assert done.returncode == 0, done.stderr
    expected = elmokit.load(*files[1::2]).embed([["A", "line", "."]], layers="mean")[0][0]
    with h5py.File(target) as file:
        assert {*file} == {"0", "1", "sentence_to_index"}
        np.testing.assert_allclose(file["0"][...], expected, atol=2e-6)
    sentences.write_text("a\n\nb\n \n")
    done = run("elmo", sentences, target, "--all", *files)
    assert done.returncode == 1
    assert done.stderr == (
        f"allennlp: {sentences}: blank lines (2, 4), which AllenNLP refuses; delete them, or use "
        "`elmo embed`\n"
    )
    assert "--all --top --average is required" in run("elmo", sentences, target).stderr


def test_an_imported_allennlp_is_not_replaced(tmp_path):
    (tmp_path / "allennlp.py").write_text("")
    code = "import allennlp, elmokit.compat.allennlp as c; c.install()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "AllenNLP itself has been imported already" in done.stderr
