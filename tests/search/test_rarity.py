"""Rare words count more in a passage, if the model can tell which they are."""

import numpy as np
import pytest

import elmokit
from elmokit.errors import InputError
from elmokit.pooling import rarities
from elmokit.search.index import Index
from elmokit.vocab import Vocabulary
from made import make_folder

WORDS = ["<S>", "</S>", "<UNK>", "the", ".", "bank", "Paris", *map(str, range(9000)), "quay"]


def test_the_rarer_a_word_the_more_it_counts():
    weights = rarities(["the", "bank", "quay", "unheard-of", "."], Vocabulary(WORDS))
    assert (np.diff(weights[:4]) > 0).all()
    assert weights[0] < 0.02
    assert weights[3] == 1
    assert weights[4] == 0


def test_a_word_is_known_in_lower_case_too():
    vocabulary = Vocabulary(WORDS)
    assert rarities(["The"], vocabulary) == rarities(["the"], vocabulary)
    assert rarities(["paris"], vocabulary) == 1  # but not the other way round


def test_where_there_are_only_marks_they_count():
    assert (rarities([".", "!"], Vocabulary(WORDS)) > 0).all()


def test_a_vocabulary_without_unknown_has_the_same_places():
    short = Vocabulary(["the", "bank"])
    weights = rarities(["the", "bank", "quay"], short)
    assert (np.diff(weights) > 0).all()
    assert weights[2] == 1


def test_an_index_pools_by_it_where_the_model_has_a_vocabulary(tmp_path):
    folder = make_folder(tmp_path, softmax_words=9)
    model = elmokit.load(folder)
    common, *_ = [word for word in model.pretrained.vocabulary if word[0] != "<"]
    (tmp_path / "text.txt").write_text(f"{common} zebra\n")
    with Index.build(tmp_path / "index", [str(tmp_path / "text.txt")], model) as index:
        assert index.config.pooling == "idf"
        found = index.encode(f"{common} zebra")
        first, second = model.embed([[common, "zebra"]], layers=0)[0][0]
        weights = rarities([common, "zebra"], model.pretrained.vocabulary)
        mean = (weights[0] * first + weights[1] * second) / weights.sum()
        np.testing.assert_allclose(found, index.whitening.apply(mean[None])[0], atol=1e-5)
    (folder / "vocab.txt").unlink()
    with pytest.raises(
        InputError, match="index: its pooling is 'idf', but the model has no vocabulary"
    ):
        Index.open(tmp_path / "index", elmokit.load(folder))


def test_a_model_without_a_vocabulary_has_the_plain_mean(model, tmp_path):
    (tmp_path / "text.txt").write_text("A zebra\n")
    with Index.build(tmp_path / "index", [str(tmp_path / "text.txt")], model) as index:
        assert index.config.pooling == "mean"
    with pytest.raises(InputError, match="no vocabulary to take word frequencies"):
        Index.build(tmp_path / "other", [str(tmp_path / "text.txt")], model, pooling="idf")
    assert not (tmp_path / "other").exists()
