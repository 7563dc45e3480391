"""What is dumped is what the model has, and a file appears only when it is whole."""

import numpy as np
import pytest
import torch

import elmokit
from random_models import make_folder, make_pair

SENTENCES = [["word1", "cat", "word2"], [], ["word3"] * 7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), softmax_words=9, size=1.5)


@pytest.fixture
def model(folder):
    return elmokit.load(folder)


def read_word2vec(path):
    first, *lines = path.read_text("utf-8").splitlines()
    count, dim = map(int, first.split(" "))
    table = {line.split(" ")[0]: np.float32(line.split(" ")[1:]) for line in lines}
    assert len(table) == len(lines) == count
    assert {len(row) for row in table.values()} == {dim}
    return table


def test_the_softmax_comes_out_as_it_is(model, tmp_path):
    weight = model.pretrained.model.softmax.weight.detach().numpy()
    bias = model.pretrained.model.softmax.bias.detach().numpy()
    for name in ("s.npz", "t.npy", "u.txt"):
        assert elmokit.export_softmax(model, tmp_path / name) == 9
    both = np.load(tmp_path / "s.npz")
    assert (both["weight"] == weight).all()
    assert (both["bias"] == bias).all()
    assert (np.load(tmp_path / "t.npy") == weight).all()
    assert (np.load(tmp_path / "t.bias.npy") == bias).all()
    words = [*model.pretrained.vocabulary]
    assert (tmp_path / "s.words.txt").read_text().split() == words
    assert (tmp_path / "t.words.txt").read_text().split() == words
    table = read_word2vec(tmp_path / "u.txt")
    assert [*table] == words
    assert (np.stack([*table.values()]) == weight).all()


def test_words_are_layer_0_without_a_sentence(model, tmp_path, monkeypatch):
    monkeypatch.setattr("elmokit.export._WORDS_PER_BATCH", 2)
    words = ["cat", "数学", "cat", "word1", "<S>"]
    assert elmokit.export_words(model, tmp_path / "w.npy", words) == 5
    assert (tmp_path / "w.words.txt").read_text("utf-8").splitlines() == words
    (vectors,) = model.embed([words[:4]], layers=0, directions="forward", boundaries=True)
    expected = vectors[0, [1, 2, 3, 4, 0]]
    np.testing.assert_allclose(np.load(tmp_path / "w.npy"), expected, atol=2e-6)
    with pytest.raises(elmokit.InputError, match=r"'c\\nd' cannot be a line of .*x\.words\.txt"):
        elmokit.export_words(model, tmp_path / "x.npy", ["cat", "c\nd"])
    assert elmokit.export_words(model, tmp_path / "w.txt", ["cat", "数学"]) == 2
    table = read_word2vec(tmp_path / "w.txt")
    np.testing.assert_allclose(np.stack([*table.values()]), expected[:2], atol=2e-6)
    assert elmokit.export_words(model, tmp_path / "own.txt") == 9
    assert [*read_word2vec(tmp_path / "own.txt")] == [*model.pretrained.vocabulary]


@pytest.mark.parametrize("directions", [1, 2])
def test_states_agree_with_the_reference(tmp_path, directions, monkeypatch):
    monkeypatch.setattr("elmokit.export._STATES_PER_BATCH", 8)
    folder, reference = make_pair(tmp_path, directions=directions, n_layers=2)
    model = elmokit.load(folder)
    assert elmokit.export_states(model, tmp_path / "s.npz", SENTENCES) == 3
    found = np.load(tmp_path / "s.npz")
    assert len(found.files) == 9
    for place, sentence in enumerate(SENTENCES):
        words = ["<S>", *sentence, "</S>"]
        assert found[f"{place}/words"].tolist() == words
        assert found[f"{place}/output"].shape == (directions, 2, len(words), 6)
        for direction in range(directions):
            state, order = {}, range(len(words))
            for step in order if direction == 0 else reversed(order):
                vectors = [reference.word(words[step])]
                for layer in range(2):
                    vectors = reference.lstm(vectors, direction, layer, state)
                for layer in range(2):
                    at = direction, layer, step
                    memory, output = state[direction, layer]
                    np.testing.assert_allclose(found[f"{place}/output"][at], output, atol=1e-5)
                    np.testing.assert_allclose(found[f"{place}/memory"][at], memory, atol=1e-5)


def test_what_cannot_be_exported_is_refused_and_leaves_no_file(model, model_folder, tmp_path):
    taken = tmp_path / "taken.txt"
    taken.touch()
    for dump, name, message in [
        (elmokit.export_softmax, "x.csv", "ends in .csv, expected .npz or .npy or .txt"),
        (elmokit.export_softmax, "taken.txt", "exists already"),
        (elmokit.export_softmax, "no/x.npy", "cannot be written"),
        (elmokit.export_words, "x.npz", "ends in .npz, expected .txt or .npy"),
        (
            lambda *a: elmokit.export_words(*a, ["New York"]),
            "y.txt",
            "'New York', cannot be written to",
        ),
        (lambda *a: elmokit.export_states(*a, []), "x.npy", "ends in .npy, expected .npz"),
    ]:
        with pytest.raises((elmokit.InputError, elmokit.OutputError), match=message):
            dump(model, tmp_path / name)
    with pytest.raises(TypeError, match="sentence 1 is an int"):
        elmokit.export_states(model, tmp_path / "z.npz", [["a"], 3])
    bare = elmokit.load(model_folder)
    with pytest.raises(elmokit.InputError, match="the model has no softmax"):
        elmokit.export_softmax(bare, tmp_path / "x.npz")
    with pytest.raises(elmokit.InputError, match="no vocabulary of its own; name a file"):
        elmokit.export_words(bare, tmp_path / "x.npy")
    assert [*tmp_path.iterdir()] == [taken]


def test_a_warm_start_shows_in_the_states(folder, tmp_path):
    for state in ("zero", "warm"):
        elmokit.export_states(
            elmokit.load(folder, state=state), tmp_path / f"{state}.npz", SENTENCES
        )
    zero, warm = (np.load(tmp_path / f"{state}.npz")["0/output"] for state in ("zero", "warm"))
    assert not torch.allclose(torch.from_numpy(zero), torch.from_numpy(warm))
