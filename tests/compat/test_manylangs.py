import subprocess
import sys

import h5py
import numpy as np
import pytest

import elmokit
from elmokit.compat.manylangs import Embedder, embed_file, read_sentences
from elmokit.errors import FormatError, InputError
from manylangs_models import SENTENCES, make_manylangs

CONLLU = """\
# sent_id = 1
1-2\tThecat\t_
1\tThe\t_
2\tcat\t_
2.1\tbig\t_
3\tU.S./EU\t_

# sent_id = 2
1\t数学\t_
2\t10 000\t_


1\tThe\t_
2\tcat\t_
3\tU.S./EU\t_
"""
READ = [["The", "cat", "U.S./EU"], ["数学", "10 000"], ["The", "cat", "U.S./EU"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    make_manylangs(folder)
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    return elmokit.load(folder).embed(SENTENCES)


@pytest.mark.parametrize("output_layer", [-1, -2, 0, 1, 2, -3])
def test_sents2elmo_returns_what_theirs_did(folder, expected, output_layer):
    embedder = Embedder(folder, batch_size=2)
    for _ in range(2):  # no state is carried
        actual = embedder.sents2elmo(SENTENCES, output_layer)
        assert len(actual) == len(SENTENCES)
        for vectors, layers in zip(actual, expected, strict=True):
            assert vectors.dtype == np.float32
            if output_layer == -1:
                np.testing.assert_allclose(vectors, layers.mean(0), atol=1e-7)
            elif output_layer == -2:
                np.testing.assert_array_equal(vectors, layers)
            else:
                np.testing.assert_array_equal(vectors, layers[output_layer])


def test_unusual_input_is_taken_as_theirs_took_it(folder):
    embedder = Embedder(str(folder))
    assert embedder.sents2elmo([]) == []
    assert embedder.sents2elmo([[]])[0].shape == (0, 12)
    assert embedder.sents2elmo(["cat", ("the", "cat")])[0].shape == (3, 12)  # characters
    with pytest.raises(InputError, match="layer 3 was asked for, but the model has 0 to 2"):
        embedder.sents2elmo([["cat"]], output_layer=3)


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "elmokit.compat.manylangs", *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip


def test_an_old_script_runs_unchanged(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from elmoformanylangs import Embedder\n"
        "import elmoformanylangs.elmo\n"
        "assert elmoformanylangs.elmo.Embedder is Embedder\n"
        "e = Embedder(sys.argv[1])\n"
        "print(__name__, [a.shape for a in e.sents2elmo([['今', '天'], ['潮', '水', '退']])])\n"
    )
    done = run(script, folder)
    assert done.stdout == "__main__ [(2, 12), (3, 12)]\n", done.stderr
    script.write_text("from elmoformanylangs import Trainer\n")
    assert (
        "elmoformanylangs.Trainer belongs to the training of models; elmokit stands in for "
        "elmoformanylangs.Embedder only: use `elmo pretrain`" in run(script).stderr
    )
    assert run("missing.py").stderr == "missing.py: no such script\n"
    assert "usage: python -m elmokit.compat.manylangs SCRIPT" in run().stderr


def test_an_imported_elmoformanylangs_is_not_replaced(tmp_path):
    (tmp_path / "elmoformanylangs.py").write_text("")
    code = "import elmoformanylangs, elmokit.compat.manylangs as c; c.install()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "elmoformanylangs itself has been imported already" in done.stderr


def test_the_command_writes_the_files_of_theirs(folder, tmp_path):
    (tmp_path / "in.conllu").write_text(CONLLU, "utf-8")
    done = run(
        "test", "--input_format", "conll", "--input", "in.conllu", "--model", folder,
        "--output_prefix", "out", "--output_layer", "0,1,-1,-2", "--output_format", "hdf5,txt",
        "--batch_size", "8", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    layers = elmokit.load(folder).embed(READ)
    names = {"in.conllu", *(f"out.ly{n}.{e}" for n in (0, 1, -1, -2) for e in ("hdf5", "txt"))}
    assert {path.name for path in tmp_path.iterdir()} == names
    for layer in (0, 1, -1, -2):
        chosen = [array.mean(0) if layer == -1 else array[layer] for array in layers]
        with h5py.File(tmp_path / f"out.ly{layer}.hdf5") as file:
            assert set(file) == {"The\tcat\tU$period$S$period$$backslash$EU", "数学\t10 000"}
            np.testing.assert_array_equal(file["数学\t10 000"], chosen[1])
            assert file["数学\t10 000"].dtype == np.float32
        text = (tmp_path / f"out.ly{layer}.txt").read_text("utf-8")
        blocks = [block.split("\n") for block in text.split("\n\n")]
        assert blocks[-1] == [""]
        for words, vectors, block in zip(READ[:2], chosen, blocks[:-1], strict=False):
            rows = [line.split("\t") for line in block]
            assert [row[0] for row in rows] == words
            assert rows[0][1] == f"{vectors[0, 0]:.8f}"
            np.testing.assert_allclose([[*map(float, row[1:])] for row in rows], vectors, atol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output_layer", "9"], "elmoformanylangs: layer 9 was asked for, but the model has 0"),
        (["--output_layer", "x"], "--output_layer is 'x', expected numbers"),
        (
            ["--output_layer", "0", "--output_format", "npz"],
            "--output_format is 'npz', expected hd",
        ),
        (["--output_layer", "0", "--input_format", "conll"], "in.txt, line 1: 'cat', expected the"),
        (["--output_layer", "0", "--output_prefix", "no/out"], "no: no such folder; make it first"),
        (["--output_layer", "0", "--input", "no.txt"], "No such file or directory: 'no.txt'"),
    ],
)
def test_what_the_command_cannot_do_is_one_sentence(folder, tmp_path, arguments, message):
    (tmp_path / "in.txt").write_text("cat\nthe\tcat\n")
    base = ["--input", "in.txt", "--model", folder, "--output_prefix", "out"]
    done = run("test", *base, *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_every_input_format_is_read(tmp_path):
    path = tmp_path / "text"
    path.write_text(CONLLU.replace("\n", "\r\n"), "utf-8", newline="")
    assert [*read_sentences(path, "conll")] == READ
    characters = [[*"Thecat", *"U.S./EU"], [*"数学", *"10 000"]]
    assert [*read_sentences(path, "conll_char")] == [*characters, characters[0]]
    assert [*read_sentences(path, "conll_char_vi")][1] == ["数学", "10", "000"]
    path.write_text("the\tcat\n\n10 000\tcats\n\n", "utf-8")
    assert [*read_sentences(path)] == [["the", "cat"], ["10 000", "cats"]]
    path.write_text("\t a\t\tb\t\nc\t\n\n \t\n", "utf-8")  # their read_corpus strips the file
    assert [*read_sentences(path)] == [["a", "", "b", ""], ["c"]]
    path.write_bytes(b"1\t\xff\n")
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        next(read_sentences(path))
    path.write_text("1 cat\n")
    with pytest.raises(FormatError, match="line 1: '1 cat', expected the columns of CoNLL-U"):
        next(read_sentences(path, "conll"))


def test_many_sentences_are_written_in_parts(folder, tmp_path):
    sentences = [[f"word{k % 300}", "cat"] for k in range(700)]
    count = embed_file(Embedder(folder), sentences, str(tmp_path / "out"), layers=[0, 0])
    assert count == 300
    with h5py.File(tmp_path / "out.ly0.hdf5") as file:
        assert len(file) == 300
