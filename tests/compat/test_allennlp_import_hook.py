import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

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


def test_missing_modules_are_explained(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from allennlp.predictors import Predictor\n")
    assert (
        "elmokit stands in for AllenNLP's ELMo only: no module allennlp.pred" in run(script).stderr
    )
    script.write_text("from allennlp.modules import Seq2SeqEncoder\n")
    assert "cannot import name 'Seq2SeqEncoder' from 'allennlp.modules'" in run(script).stderr


def test_a_script_gets_its_arguments_and_finds_its_modules(tmp_path):
    (tmp_path / "neighbour.py").write_text("NAME = 'next door'\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, neighbour\nprint(__name__, sys.argv[1:], neighbour.NAME)\n")
    assert run(script, "a", "--b").stdout == "__main__ ['a', '--b'] next door\n"
    assert "usage: python -m elmokit.compat.allennlp SCRIPT" in run().stderr
    assert run("missing.py").stderr == "missing.py: no such script\n"
    script.write_text("import importlib.util as u\nprint(u.find_spec('allennlp') is not None)\n")
    assert run(script).stdout == "True\n"


def test_an_imported_allennlp_is_not_replaced(tmp_path):
    (tmp_path / "allennlp.py").write_text("")
    code = "import allennlp, elmokit.compat.allennlp as c; c.install()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "AllenNLP itself has been imported already" in done.stderr
