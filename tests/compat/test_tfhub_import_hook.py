import os
import pkgutil
import re
import subprocess
import sys
import tarfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.compat import tfhub
from elmokit.compat.tfhub import import_hook

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module")
def mirror(model_folder, tmp_path_factory):
    """A folder that has a model of random weights in the place of google/elmo."""
    folder = tmp_path_factory.mktemp("mirror")
    for version in (2, 3):
        (folder / f"tfhub-elmo-{version}").mkdir()
        with tarfile.open(folder / f"tfhub-elmo-{version}/elmo-{version}.tar.gz", "w:gz") as packed:
            packed.add(model_folder, ".")
    return folder


def run(*arguments, mirror=None, cwd=None):
    env = {**os.environ}
    if mirror is not None:
        env |= {"ELMOKIT_MIRROR": mirror.as_uri(), "ELMOKIT_OFFLINE": "0"}
    return subprocess.run(
        [sys.executable, "-m", "elmokit.compat.tfhub", *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd, env=env,
    )  # fmt: skip


def run_old_script(name, mirror, tmp_path):
    done = run(SCRIPTS / name, tmp_path / "out.npz", mirror=mirror)
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "out.npz")


def test_a_script_with_sessions_gets_the_means_of_its_sentences(mirror, model_folder, tmp_path):
    results = run_old_script("hub_session.py", mirror, tmp_path)
    sentences = ["the cat is on the mat", "dogs are in the fog", "ate", "the dogs ate the cat"]
    vectors = elmokit.load(model_folder).embed([text.split() for text in sentences], layers="mean")
    # As in TensorFlow, the means are over the padded length of a batch, here of two sentences.
    for mean, actual, length in zip(results["means"], vectors, (6, 6, 5, 5), strict=True):
        np.testing.assert_allclose(mean, actual[0].sum(0) / length, atol=2e-6)
    np.testing.assert_allclose(results["words"][0], vectors[0][0], atol=2e-6)
    assert not results["words"][1, 5].any()
    np.testing.assert_allclose(results["default"][1], vectors[1][0].mean(0), atol=2e-6)
    (layers,) = elmokit.load(model_folder).embed([sentences[0].split()])
    np.testing.assert_allclose(results["lower"][0], layers[1], atol=2e-6)


def test_a_script_of_tensorflow_2_gets_the_outputs_of_signatures(mirror, model_folder, tmp_path):
    results = run_old_script("hub_load.py", mirror, tmp_path)
    (bank,) = elmokit.load(model_folder).embed([["The", "bank", "of", "the", "river"]])
    assert results["vectors"].shape == (2, 7, 12)
    np.testing.assert_allclose(results["vectors"][1, :5], bank.mean(0), atol=2e-6)
    words = elmokit.load(model_folder).embed([["The", "cat"], ["dogs", "are", "here"]])
    np.testing.assert_allclose(results["word_emb"][0, :2], words[0][0, :, :6], atol=2e-6)
    np.testing.assert_allclose(results["sentences"][1], words[1].mean(0).mean(0), atol=2e-6)


@pytest.mark.parametrize(
    ("line", "explanation"),
    [
        (
            "import tensorflow as tf; tf.placeholder(tf.string, shape=[None])",
            "AttributeError: tensorflow.placeholder belongs to graphs that are fed in a session; "
            "elmokit stands in for what surrounds ELMo in TensorFlow only: use the strings "
            "themselves, in the call of the module: it computes at once",
        ),
        (
            "import tensorflow.compat.v1 as tf; tf.placeholder(tf.string)",
            "AttributeError: tensorflow.compat.v1.placeholder belongs to graphs that are fed",
        ),
        (
            "import tensorflow as tf; tf.Session().run([], feed_dict={'x': 1})",
            "InputError: feed_dict belongs to graphs that are fed in a session; elmokit has none",
        ),
        (
            "from tensorflow.keras.layers import Lambda",
            "ModuleNotFoundError: tensorflow.keras belongs to Keras on TensorFlow; elmokit stands",
        ),
        ("import tensorflow as tf; tf.train.AdamOptimizer", "tensorflow.train belongs to models"),
        ("import tensorflow as tf; tf.matmul", "tensorflow.matmul belongs to operations on tens"),
        (
            "import tensorflow_hub as hub; hub.KerasLayer('https://tfhub.dev/google/elmo/3')",
            "AttributeError: tensorflow_hub.KerasLayer belongs to Keras on TensorFlow; elmokit",
        ),
        (
            "from tensorflow_hub import text_embedding_column",
            "ModuleNotFoundError: tensorflow_hub.text_embedding_column belongs to models of Tens",
        ),
    ],
)
def test_what_cannot_work_is_one_sentence_with_the_replacement(tmp_path, line, explanation):
    (tmp_path / "script.py").write_text(line)
    done = run(tmp_path / "script.py")
    assert explanation in done.stderr.splitlines()[-1]
    assert "use " in done.stderr.splitlines()[-1]


def test_what_is_named_instead_of_missing_names_exists():
    tables = (import_hook._HUB_NOT_HERE, import_hook._TENSORFLOW_NOT_HERE)
    for _, instead in (explanation for table in tables for explanation in table.values()):
        for name in re.findall(r"elmokit(?:\.\w+)+", instead):
            pkgutil.resolve_name(name)


def test_a_script_or_module_gets_its_arguments_and_finds_its_modules(tmp_path):
    (tmp_path / "neighbour.py").write_text("NAME = 'next door'\n")
    (tmp_path / "script.py").write_text(
        "import sys, neighbour\nprint(__name__, sys.argv[1:], neighbour.NAME)\n"
    )
    expected = "__main__ ['a', '--b'] next door\n"
    assert run(tmp_path / "script.py", "a", "--b").stdout == expected
    assert run("-m", "script", "a", "--b", cwd=tmp_path).stdout == expected
    assert "usage: python -m elmokit.compat.tfhub SCRIPT" in run().stderr
    assert run("missing.py").stderr == "missing.py: no such script\n"


def test_an_installed_tensorflow_is_not_replaced(tmp_path):
    (tmp_path / "tensorflow.py").write_text("Session = 'its own'\n")
    (tmp_path / "tensorflow_hub.py").write_text("")
    (tmp_path / "script.py").write_text("import tensorflow as tf; print(tf.Session)\n")
    command = "import elmokit.compat.tfhub as c; c.install(); import script"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "its own\n"
    done = subprocess.run(
        [sys.executable, "-c", f"import tensorflow_hub; {command}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "TensorFlow Hub itself has been imported already; call install()" in done.stderr


def test_install_may_be_called_twice():
    code = (
        "import elmokit.compat.tfhub as c; c.install(); c.install()\n"
        "import sys, tensorflow_hub as hub, tensorflow as tf\n"
        "assert hub.Module is c.Module and tf.compat.v1.Session is tf.Session\n"
        "print(sum('compat' in type(f).__module__ for f in sys.meta_path))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


def test_sessions_return_what_they_are_given_as_arrays(model_folder):
    pair = namedtuple("pair", "elmo default")
    outputs = tfhub.Module(model_folder)(["the cat"], as_dict=True)
    with import_hook.Session(config=None) as session:
        arrays = session.run(pair(outputs["elmo"], [outputs["default"]]))
        initialized = session.run([import_hook._Initializer(), import_hook._Initializer()])
        with pytest.raises(elmokit.InputError, match="'elmo:0' is the name of a tensor, expected"):
            session.run("elmo:0")
    assert isinstance(arrays.elmo, np.ndarray)
    np.testing.assert_array_equal(arrays.default[0], outputs["default"].numpy())
    assert initialized == [None, None]


def test_constants_may_be_strings_or_bytes(model_folder):
    hub, names = tfhub.Module(model_folder), import_hook._tensorflow()
    expected = hub(["caf\u00e9"]).numpy()
    for text in ("caf\u00e9", "caf\u00e9".encode()):
        for dtype in (None, names["string"]):
            constant = names["constant"]([text], dtype=dtype)
            np.testing.assert_array_equal(hub(constant).numpy(), expected)


def test_modules_are_called_as_hub_module_was(model_folder):
    assert not any(p.requires_grad for p in tfhub.Module(model_folder).parameters())
    for arguments in ((model_folder, True, "name", {"train"}), (model_folder, True)):
        trainable = [p for p in tfhub.Module(*arguments).parameters() if p.requires_grad]
        assert sum(p.numel() for p in trainable) == 4
    files = [model_folder / name for name in ("options.json", "weights.hdf5")]
    hub = tfhub.Module(spec=files[0], trainable=False, name="elmo", weights=files[1])
    loaded = tfhub.load(model_folder, tags=None)
    outputs = loaded.signatures["default"](strings=["the cat"])
    assert outputs.keys() == {"word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default"}
    np.testing.assert_array_equal(outputs["default"].numpy(), hub(["the cat"]).numpy())
    with pytest.raises(elmokit.InputError, match=r"trainable is .*weights.hdf5.*given as weights="):
        tfhub.Module(*files)
