"""IDF pooling: rare words weigh more, if the model has a vocabulary."""

import numpy as np
import pytest

import elmokit
from elmokit.errors import InputError
from elmokit.pooling import idf_weights
from elmokit.search.index import Index
from elmokit.vocab import Vocabulary
from random_models import make_folder

WORDS = ["<S>", "</S>", "<UNK>", "the", ".", "bank", "Paris", *map(str, range(9000)), "quay"]


def test_rarer_words_weigh_more():
    weights = idf_weights(["the", "bank", "quay", "unheard-of", "."], Vocabulary(WORDS))
    assert (np.diff(weights[:4]) > 0).all()
    assert weights[0] < 0.02
    assert weights[3] == 1
    assert weights[4] == 0


def test_a_word_is_looked_up_in_lower_case_too():
    vocabulary = Vocabulary(WORDS)
    assert idf_weights(["The"], vocabulary) == idf_weights(["the"], vocabulary)
    assert idf_weights(["paris"], vocabulary) == 1  # but not the other way round


def test_punctuation_weighs_only_where_there_is_nothing_else():
    assert (idf_weights([".", "!"], Vocabulary(WORDS)) > 0).all()


def test_a_vocabulary_without_unk_has_weights_too():
    short = Vocabulary(["the", "bank"])
    weights = idf_weights(["the", "bank", "quay"], short)
    assert (np.diff(weights) > 0).all()
    assert weights[2] == 1


def test_an_index_has_idf_pooling_where_the_model_has_a_vocabulary(tmp_path):
    folder = make_folder(tmp_path, softmax_words=9)
    model = elmokit.load(folder)
    common, *_ = [word for word in model.pretrained.vocabulary if word[0] != "<"]
    (tmp_path / "text.txt").write_text(f"{common} zebra\n")
    with Index.build(tmp_path / "index", [str(tmp_path / "text.txt")], model) as index:
        assert index.config.pooling == "idf"
        vector = index.encode(f"{common} zebra")
        first, second = model.embed([[common, "zebra"]], layers=0)[0][0]
        weights = idf_weights([common, "zebra"], model.pretrained.vocabulary)
        mean = (weights[0] * first + weights[1] * second) / weights.sum()
        np.testing.assert_allclose(vector, index.whitening.transform(mean[None])[0], atol=1e-5)
    (folder / "vocab.txt").unlink()
    with pytest.raises(InputError, match="index: pooling 'idf' needs a vocabulary"):
        Index.open(tmp_path / "index", elmokit.load(folder))


def test_an_index_has_mean_pooling_where_the_model_has_no_vocabulary(model, tmp_path):
    (tmp_path / "text.txt").write_text("A zebra\n")
    with Index.build(tmp_path / "index", [str(tmp_path / "text.txt")], model) as index:
        assert index.config.pooling == "mean"
    with pytest.raises(InputError, match="other: pooling 'idf' needs a vocabulary"):
        Index.build(tmp_path / "other", [str(tmp_path / "text.txt")], model, pooling="idf")
    assert not (tmp_path / "other").exists()
