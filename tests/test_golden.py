import json

import h5py
import numpy as np
import pytest

import elmokit

SETS = {
    "bilm-tf": ("bilm-tf/model", "lm_embeddings_sentences.json"),
    "allennlp": ("allennlp", "sentences.json"),
}


@pytest.mark.parametrize("name", SETS)
def test_thirty_sentences_with_carried_state_match_the_golden_vectors(name, shared):
    folder, sentences = SETS[name]
    folder = shared / "golden" / folder
    rows = [
        [sentence.split() for sentence in row]
        for row in json.loads((folder / sentences).read_text())
    ]
    model = elmokit.load(folder / "options.json", folder / "lm_weights.hdf5", state="carry")
    compared = 0
    for step in range(10):
        actual = model.embed([row[step] for row in rows])
        for number in range(3):
            with h5py.File(folder / f"lm_embeddings_{number}.hdf5") as file:
                forward, backward = file[str(step)][...]
            expected = np.concatenate([forward, backward], 1)
            np.testing.assert_allclose(actual[number][2], expected, rtol=0, atol=2e-6)
            compared += 1
    assert compared == 30


def test_the_golden_vectors_of_458_tokens_match(shared):
    folder = shared / "golden" / "allennlp"
    words = (folder / "vocab_test.txt").read_text("utf-8").splitlines()
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    model = elmokit.load(folder / "options.json", folder / "lm_weights.hdf5")
    actual = np.concatenate([vectors[0] for vectors in model.embed([[word] for word in words])])
    assert len(words) == len(expected) == 458
    for half in np.split(actual, 2, axis=1):
        np.testing.assert_allclose(half, expected, rtol=0, atol=2e-6)
