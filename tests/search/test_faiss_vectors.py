import sys

import faiss
import numpy as np
import pytest

from elmokit.errors import FormatError, InputError
from elmokit.search.faiss_vectors import FaissVectors, choose_kind, sample_rows


def random_unit(rows, dim=16, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_store(path, kind, vectors):
    sample = vectors[: sample_rows(kind, len(vectors))]
    store = FaissVectors.create(path, kind=kind, sample=sample, rows=len(vectors))
    for part in np.array_split(vectors, 3):
        store.add(part)
    return store


def brute_force(store, queries, k, deleted=()):
    vectors = store.vectors(range(len(store)))
    cosines = queries @ vectors.T
    cosines[:, [*deleted]] = -2
    return np.argsort(-cosines, 1)[:, :k], -np.sort(-cosines, 1)[:, :k]


def test_flat_search_is_exact(tmp_path):
    store, queries = make_store(tmp_path / "s", "flat", random_unit(300)), random_unit(20, seed=1)
    scores, ids = store.search(queries, 10)
    wanted_ids, wanted = brute_force(store, queries, 10)
    np.testing.assert_array_equal(ids, wanted_ids)
    np.testing.assert_allclose(scores, wanted, atol=1e-6)


@pytest.mark.parametrize(("kind", "least"), [("hnsw", 0.95), ("ivf", 0.3)])
def test_approximate_search_finds_most_of_the_nearest(tmp_path, kind, least):
    # Random vectors have no cells: those of text are found far more often.
    store, queries = make_store(tmp_path / "s", kind, random_unit(3000)), random_unit(50, seed=1)
    _, ids = store.search(queries, 10)
    wanted, _ = brute_force(store, queries, 10)
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(ids, wanted, strict=True)])
    assert recall > least


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_deleted_vectors_are_skipped_and_added_ones_found(tmp_path, kind):
    vectors = random_unit(200)
    store = make_store(tmp_path / "s", kind, vectors)
    store.save()
    store = FaissVectors.open(tmp_path / "s", kind=kind)
    assert store.search(vectors[5:6], 1)[1].tolist() == [[5]]
    store.delete([5, 6])
    assert 5 not in store.search(vectors[5:6], 50)[1]
    new = random_unit(1, seed=9)
    store.add(new)
    assert len(store) == 201
    assert store.search(new, 1)[1].tolist() == [[200]]
    np.testing.assert_allclose(store.vectors([200, 3]), [new[0], vectors[3]], atol=1e-3)


def test_deleted_ids_are_listed_once_for_many_searches(tmp_path, monkeypatch):
    select, made = faiss.IDSelectorBatch, []
    monkeypatch.setattr(faiss, "IDSelectorBatch", lambda ids: made.append([*ids]) or select(ids))
    vectors = random_unit(200)
    store = make_store(tmp_path / "s", "flat", vectors)
    for deleted in ([5], [9, 6]):
        store.delete(deleted)
        for query in (5, 6, 7):
            found = store.search(vectors[query : query + 1], 1)[1].item()
            assert (found == query) == (query in store)
    assert made == [[5], [5, 6, 9]]


@pytest.mark.parametrize(("kind", "least"), [("flat", 1), ("hnsw", 0.9), ("ivf", 0.9)])
def test_the_few_vectors_that_are_not_deleted_are_found(tmp_path, kind, least):
    store, queries = make_store(tmp_path / "s", kind, random_unit(3000)), random_unit(50, seed=1)
    deleted = [id_ for id_ in range(3000) if id_ % 100]
    store.delete(deleted)
    _, ids = store.search(queries, 10)
    wanted, _ = brute_force(store, queries, 10, deleted)
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(ids, wanted, strict=True)])
    assert recall >= least


def test_a_k_beyond_the_number_of_vectors_gives_all(tmp_path):
    store = make_store(tmp_path / "s", "flat", random_unit(3))
    store.delete([1])
    assert sorted(store.search(random_unit(1), 10)[1][0].tolist()) == [0, 2]
    store.delete([0, 2])
    assert store.search(random_unit(1), 10)[1].shape == (1, 0)


def test_a_number_takes_two_bytes(tmp_path):
    make_store(tmp_path / "s", "flat", random_unit(5000)).save()
    assert (tmp_path / "s").stat().st_size < 5000 * 16 * 2.1


def test_the_kind_follows_from_the_number_of_vectors():
    assert [choose_kind(rows) for rows in (1, 10**6, 10**7)] == ["flat", "hnsw", "ivf"]


@pytest.mark.parametrize("num_bytes", [0, 20, 300])
def test_a_damaged_file_is_named(tmp_path, num_bytes):
    make_store(tmp_path / "s", "flat", random_unit(50)).save()
    (tmp_path / "s").write_bytes((tmp_path / "s").read_bytes()[:num_bytes])
    with pytest.raises(FormatError, match=r"s: FAISS cannot read it .* build the index again"):
        FaissVectors.open(tmp_path / "s", kind="flat")
    (tmp_path / "s").write_bytes(b"garbage" * 100)
    with pytest.raises(FormatError, match="FAISS cannot read it"):
        FaissVectors.open(tmp_path / "s", kind="flat")


def test_a_missing_faiss_is_reported_with_its_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install 'elmokit\[search\]'"):
        FaissVectors.open(tmp_path / "s", kind="flat")


def test_a_search_leaves_the_number_of_faiss_threads_alone(tmp_path):
    vectors = make_store(tmp_path / "s", "flat", random_unit(50))
    before = faiss.omp_get_max_threads()
    vectors.search(random_unit(1), 3)
    assert faiss.omp_get_max_threads() == before


def test_a_file_of_another_index_is_refused(tmp_path):
    untrained = faiss.IndexScalarQuantizer(4, faiss.ScalarQuantizer.QT_8bit)
    other_metric = faiss.IndexScalarQuantizer(4, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_L1)
    for index in (untrained, other_metric):
        faiss.write_index(index, str(tmp_path / "vectors.faiss"))
        with pytest.raises(FormatError, match="not an index of elmokit, or damaged"):
            FaissVectors.open(tmp_path / "vectors.faiss", kind="flat")
