import numpy as np
import pytest
import torch

import elmokit
from elmokit.errors import FormatError, InputError
from elmokit.formats import load
from elmokit.pretraining.settings import PRESETS
from random_models import make_options, make_weights
from reference import Reference
from tensor_bundle import lm_1b_variables, write_slices

# Byte 0 is in a word, so the boundaries are the bytes 1 to 5.
VOCABULARY = ["<S>", "</S>", "<UNK>", "The", "cat", "sat", "é\0", "!!!MAXTERMID", "."]
WORDS = [word for word in VOCABULARY if word != "!!!MAXTERMID"]
SPECIAL = [1, 2, 3, 4, 5]
ROWS = 12  # of the softmax, four more than words
FILTERS = [f"char_embedding/cnn_{n}/{part}" for n in range(3) for part in ("kernel", "b")]
SENTENCES = [["The", "cat", "sat", "."], ["unknown", "é", "x" * 60], ["sat"]]


@pytest.fixture
def weights():
    options = make_options(clips=(None, None), skip=False, n_highway=2)
    made = make_weights(options, directions=1, softmax_words=ROWS)
    random = np.random.default_rng(1)
    for layer in range(2):
        name = f"RNN_0/RNN/MultiRNNCell/Cell{layer}/LSTMCell/peepholes"
        made[name] = random.standard_normal((3, options["lstm"]["dim"])).astype(np.float32)
    return made


@pytest.fixture
def reference(weights):
    options = make_options(clips=(None, None), skip=False, n_highway=2)
    words = [*WORDS, *(f"unused {row}" for row in range(len(WORDS), ROWS))]
    return Reference(options, weights, words)


@pytest.fixture
def folder(tmp_path, weights):
    return write_files(tmp_path / "lm_1b", lm_1b_variables(weights, SPECIAL))


def write_files(folder, variables):
    files = {"ckpt-char-embedding": "char_embedding/", "ckpt-lstm": "lstm/"}
    files |= {f"ckpt-softmax{n}": f"softmax/W_{n}" for n in range(4)} | {
        "ckpt-softmax4": "softmax/b"
    }
    for name, prefix in files.items():
        tensors = {n: array for n, array in variables.items() if n.startswith(prefix)}
        if tensors:
            write_slices(folder / name, tensors)
    write_slices(folder / "ckpt-base", {"global_step": np.array(14108582, np.int64)})
    (folder / "vocab-2016-09-10.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    (folder / "graph-2016-09-10.pbtxt").write_text("node {}\n")
    return folder


def test_layers_are_those_of_the_reference(folder, reference):
    model = elmokit.load(folder)
    for actual, sentence in zip(model.embed(SENTENCES), SENTENCES, strict=True):
        expected, _ = reference.layers(sentence)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("carry", [False, True])
def test_probabilities_are_those_of_the_reference(folder, reference, carry):
    model = elmokit.load(folder, state="carry" if carry else "zero")
    expected = np.concatenate([*(s for (s,) in reference.scores(SENTENCES[:1], carry=carry))])
    perplexity = model.perplexity(SENTENCES[:1])
    assert perplexity.backward is None
    assert perplexity.forward == pytest.approx(np.exp(-expected.mean()), rel=1e-6)


def test_next_words_are_those_of_the_reference(folder, reference):
    vectors = [reference.word(word) for word in ("<S>", "The", "cat")]
    for layer in range(2):
        vectors = reference.lstm(vectors, 0, layer, {})
    probabilities = np.exp(reference.log_probabilities(vectors[-1]))
    predicted = dict(elmokit.load(folder).next_words(["The", "cat"], k=ROWS))
    assert predicted.keys() >= {"The", "cat", "sat", "</S>"}
    for word, probability in predicted.items():
        row = reference.vocabulary.index(
            word.strip("<>").replace("-", " ") if "-" in word else word
        )
        assert probability == pytest.approx(probabilities[row], rel=1e-5)


def test_rows_of_the_softmax_that_stand_for_no_word_have_names(folder):
    assert [*load(folder).vocabulary] == [*WORDS, *(f"<unused-{row}>" for row in range(8, ROWS))]


def test_a_model_is_the_same_after_conversion(folder, tmp_path):
    elmokit.convert(folder, tmp_path / "converted")
    expected, actual = load(folder), load(tmp_path / "converted")
    assert actual.fingerprint() == expected.fingerprint()
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(actual.model.state_dict()[name], tensor), name
    with pytest.raises(FormatError, match="cannot hold LSTMs with peephole connections"):
        elmokit.convert(folder, tmp_path / "hdf5", format="bilm-tf")


@pytest.mark.parametrize("precision", ["half", "int8"])
def test_shorter_precisions_keep_the_peepholes(folder, precision):
    expected, *_ = elmokit.load(folder).embed(SENTENCES)
    actual, *_ = elmokit.load(folder, precision=precision).embed(SENTENCES)
    assert np.abs(actual - expected).max() < 0.05 * np.abs(expected).max()


def test_without_the_softmax_words_are_still_embedded(folder):
    expected = elmokit.load(folder).embed(SENTENCES)
    for path in folder.glob("ckpt-softmax*"):
        path.unlink()
    model = elmokit.load(folder)
    assert model.pretrained.vocabulary is None
    for one, other in zip(model.embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(InputError, match="softmax"):
        model.next_words(["The"])


def test_training_starts_from_another_model(folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The cat sat .\n" * 20)
    corpus = elmokit.prepare(text, tmp_path / "corpus", tokenizer="spaces")
    with pytest.raises(InputError, match="LSTMs with peephole connections, which pretraining"):
        elmokit.pretrain(corpus, PRESETS["tiny"], tmp_path / "run", init_from=load(folder))


def refused(message, folder):
    with pytest.raises(FormatError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("ckpt-lstm", r"no LSTMs \(ckpt-lstm\), which a model of the format lm_1b has"),
        ("ckpt-char-embedding", r"no character CNN \(ckpt-char-embedding\)"),
        ("vocab-2016-09-10.txt", r"no vocabulary \(vocab\*.txt\)"),
        ("ckpt-softmax2", r"softmax/W and softmax/b have the shapes \(6, 6\) and \(12,\)"),
        ("ckpt-softmax0", "no variable softmax/W_0, which lm_1b has; is a file"),
        ("ckpt-softmax4", "no variable softmax/b"),
    ],
)  # fmt: skip
def test_a_missing_file_is_named(folder, file, message):
    (folder / file).unlink()
    refused(message, folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lstm/lstm_1/B": None}, "no variable lstm/lstm_1/B"),
        ({"lstm/lstm_0/W_F_diag": None}, "no variable lstm/lstm_0/W_F_diag"),
        ({"lstm/lstm_0/W_F_diag": np.zeros(3, "f4")}, "W_O_diag have the shapes .*, expected one"),
        ({"lstm/lstm_0/W_2": np.zeros((2, 48), "f4")}, r"lstm_0/W_0, .*W_3 have the shapes"),
        ({"lstm/lstm_0/W_0": np.zeros(48, "f4")}, r"W_0 has the shape \(48,\), expected 2 sizes"),
        ({"char_embedding/W": np.zeros((200, 5), "f4")}, "has 200 rows, expected 256"),
        (
            {"char_embedding/cnn_0/b": np.zeros((1, 1, 2, 4), "f4")},
            r"cnn_0/b has the shape \(1, 1, 2, 4\), expected 1 for all sizes but the last",
        ),
        ({"char_embedding/proj/b": np.zeros((2, 6), "f4")}, r"proj/b has the shape \(2, 6\)"),
        ({"lstm/lstm_1/B": np.zeros(5, "f4")}, r"Cell1/LSTMCell/B .* \(5,\), expected \(48,\)"),
        ({"char_embedding/cnn_0/kernel": None}, "no variable char_embedding/cnn_0/kernel"),
        (
            dict.fromkeys(FILTERS),
            "has no filters or no LSTMs, expected variables char_embedding/cnn_0",
        ),
        ({"softmax/x": np.zeros(2, "f4"), "softmax/W_0": None}, "no variable softmax/W_0"),
    ],
)
def test_variables_that_do_not_fit_are_refused(tmp_path, weights, change, message):
    variables = {**lm_1b_variables(weights, SPECIAL), **change}
    kept = {name: array for name, array in variables.items() if array is not None}
    refused(message, write_files(tmp_path, kept))


def test_one_file_alone_is_refused(folder):
    for name in ("ckpt-lstm", "ckpt-char-embedding", "ckpt-softmax4"):
        refused("this is one file of lm_1b; give the folder", folder / name)


def test_a_variable_in_two_files_is_refused(folder):
    write_slices(folder / "ckpt-softmax9", {"softmax/b": np.zeros(ROWS, np.float32)})
    refused("ckpt-softmax9: softmax/b is in another file of the folder, too", folder)


def test_another_vocabulary_is_refused(folder):
    vocabulary = folder / "vocab-2016-09-10.txt"
    (folder / "vocab.txt").write_text("cat\n")
    refused("more than one vocabulary: vocab-2016-09-10.txt, vocab.txt; leave one", folder)
    vocabulary.unlink()
    refused("vocab.txt: has 1 words, but the softmax 12 rows; is it the vocabulary", folder)
