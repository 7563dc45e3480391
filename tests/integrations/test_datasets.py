"""Vectors as a column: cached by `map` until the settings or the model change."""

import numpy as np
import pytest

import elmokit
from elmokit.integrations.datasets import TextEncoder
from elmokit.model.scalar_mix import ScalarMix
from random_models import make_folder

datasets = pytest.importorskip("datasets", reason="datasets is not installed")

TEXTS = ["I ate an apple. It was good.", "", "A shop.", "What?", "New shops."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(make_folder(tmp_path_factory.mktemp("model"), softmax_words=9))  # for `idf`


@pytest.fixture
def table(tmp_path):
    """A dataset in files, whose results are cached beside them."""
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "table")
    return datasets.load_from_disk(tmp_path / "table")


@pytest.mark.parametrize("settings", [{}, {"layers": 0, "pooling": "idf"}, {"layers": "all"}])
def test_the_new_column_is_that_of_encode(settings, folder, table):
    mapped = table.map(TextEncoder(model=folder, **settings), batched=True, batch_size=2)
    expected = elmokit.load(folder).encode(TEXTS, **settings)
    np.testing.assert_array_equal(mapped.with_format("numpy")["elmo"], expected)
    assert mapped["text"] == table["text"]


def test_whitening_and_length_are_those_of_encode(folder, table):
    model = elmokit.load(folder)
    whitening = elmokit.Whitening.fit(model.encode(TEXTS))
    settings = {"whitening": whitening, "normalize_embeddings": True}
    mapped = table.map(TextEncoder(model=folder, **settings), batched=True)
    np.testing.assert_array_equal(
        mapped.with_format("numpy")["elmo"], model.encode(TEXTS, **settings)
    )


def test_lists_of_words_are_texts(folder):
    words = [["A", "shop"], ["What", "?"]]
    mapped = datasets.Dataset.from_dict({"words": words}).map(
        TextEncoder("words", to="vector", model=folder), batched=True
    )
    expected = elmokit.load(folder).encode(words)
    np.testing.assert_array_equal(mapped.with_format("numpy")["vector"], expected)


def test_the_second_run_is_read_from_the_cache(folder, table, monkeypatch):
    first = table.map(TextEncoder(model=folder), batched=True)
    runs = []
    encode = elmokit.Embedder.encode
    monkeypatch.setattr(
        elmokit.Embedder, "encode", lambda *a, **b: runs.append(1) or encode(*a, **b)
    )
    second = table.map(TextEncoder(model=folder), batched=True)
    assert not runs
    assert second.cache_files == first.cache_files
    np.testing.assert_array_equal(second["elmo"], first["elmo"])
    table.map(TextEncoder(model=folder, layers="top"), batched=True)
    assert len(runs) == 1


def test_another_model_in_the_folder_is_run_anew(tmp_path, table):
    folder = tmp_path / "model"
    folder.mkdir()
    make_folder(folder)
    encoder = TextEncoder(model=str(folder))
    first = table.map(encoder, batched=True)
    folder.rename(tmp_path / "old")
    folder.mkdir()
    make_folder(folder, size=2.0)
    second = table.map(TextEncoder(model=str(folder)), batched=True)
    assert second["elmo"][0] != first["elmo"][0]
    with pytest.raises(elmokit.InputError, match="this TextEncoder was made with another model"):
        encoder({"text": TEXTS})


@pytest.mark.full
def test_two_processes_give_the_same_and_their_results_are_cached(folder, table):
    mapped = [table.map(TextEncoder(model=folder), batched=True, num_proc=2) for _ in "ab"]
    expected = elmokit.load(folder).encode(TEXTS)
    for own in mapped:
        np.testing.assert_array_equal(own.with_format("numpy")["elmo"], expected)
    assert len(mapped[0].cache_files) == 2
    assert mapped[0].cache_files == mapped[1].cache_files


def test_mistakes_are_explained(folder, table):
    with pytest.raises(elmokit.InputError, match=r"given one row; call map\(encoder, batched=True"):
        table.map(TextEncoder(model=folder))
    with pytest.raises(elmokit.InputError, match=r"given one row"):
        TextEncoder(model=folder)({"text": "A shop."})
    with pytest.raises(elmokit.InputError, match=r"no column 'title', expected one of text;"):
        table.map(TextEncoder("title", model=folder), batched=True)
    with pytest.raises(elmokit.InputError, match=r"layers is a ScalarMix, expected a name"):
        TextEncoder(model=folder, layers=ScalarMix(3))
