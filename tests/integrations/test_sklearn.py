"""scikit-learn's own checks, and the claims they make of numbers, made of texts."""

import importlib
import pickle
import subprocess
import sys
import warnings
from itertools import product

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks, get_tags

import elmokit
from elmokit.integrations.opened_models import in_worker_process, open_once
from elmokit.integrations.sklearn import ElmoVectorizer
from elmokit.model.bilm import BiLM
from elmokit.model.scalar_mix import ScalarMix
from elmokit.pooling import HEADS, POOLINGS
from random_models import make_folder

TEXTS = ["I ate an apple. It was good.", "A shop.", "", ("New", "shops"), "A shop.", "What?"] * 3
LAYERS = ["all", "top", "mean", "sum", "concat", 0, 1, -1, [0, 2], [0]]
LABELS = [0, 1, 0, 1, 1, 0] * 3

CHECKS = [
    "estimator_cloneable", "estimator_tags_renamed", "valid_tag_types", "estimator_repr",
    "no_attributes_set_in_init", "do_not_raise_errors_in_init_or_set_params", "mixin_order",
    "parameters_default_constructible", "get_params_invariance", "set_params", "dict_unchanged",
    "set_output_transform", "set_output_transform_pandas", "set_output_transform_polars",
    "global_output_transform_pandas", "global_set_output_transform_polars",
    "estimators_pickle", "fit_idempotent", "estimators_overwrite_params",
    "methods_subset_invariance",
    "methods_sample_order_invariance", "dont_overwrite_parameters", "fit_check_is_fitted",
    "estimators_fit_returns_self", "f_contiguous_array_estimator", "readonly_memmap_input",
]  # fmt: skip


class NumberVectorizer(ElmoVectorizer):
    """Takes numbers in two dimensions, which is all that scikit-learn's checks have."""

    def fit(self, X, y=None):  # noqa: N803
        return super().fit(spell(X))

    def fit_transform(self, X, y=None):  # noqa: N803
        return super().fit_transform(spell(X))

    def transform(self, X):  # noqa: N803
        return super().transform(spell(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.no_validation = False  # or most checks return at once
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = False
        return tags


def spell(rows):
    """The words of each row; of a table of pandas, a column with its index."""
    spelled = [[f"{number:.3g}" for number in row] for row in np.asarray(rows)]
    if hasattr(rows, "iloc"):
        return importlib.import_module("pandas").Series(spelled, index=rows.index)
    return spelled


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(make_folder(tmp_path_factory.mktemp("model"), softmax_words=9))  # for `idf`


@pytest.mark.parametrize("whitening", [None, "centre"])
@pytest.mark.parametrize("check", CHECKS)
def test_scikit_learns_checks_pass(check, whitening, folder):
    vectorizer = NumberVectorizer(folder, whitening=whitening)
    getattr(estimator_checks, f"check_{check}")("NumberVectorizer", vectorizer)


def test_transform_needs_fit_only_to_whiten(folder):
    name, vectorizer = "NumberVectorizer", NumberVectorizer(folder)
    estimator_checks.check_transformers_unfitted_stateless(name, vectorizer)
    assert not get_tags(vectorizer).requires_fit
    whitening = vectorizer.set_params(whitening="zca")
    estimator_checks.check_transformers_unfitted(name, whitening)
    with pytest.raises(NotFittedError):
        ElmoVectorizer(folder).fit(["a"]).set_params(whitening="zca").transform(["a"])


@pytest.mark.parametrize("cache_bytes", [0, 3000, 2**20])
def test_vectors_are_those_of_encode(cache_bytes, folder):
    model = elmokit.load(folder)
    for layers, pooling in product(
        [*LAYERS, ScalarMix(3)], [n for n in POOLINGS if n not in HEADS]
    ):
        vectorizer = ElmoVectorizer(folder, layers=layers, pooling=pooling, cache_bytes=cache_bytes)
        expected = model.encode(TEXTS, layers=layers, pooling=pooling).reshape(len(TEXTS), -1)
        for texts in (TEXTS, np.array(TEXTS, object)):
            np.testing.assert_array_equal(vectorizer.transform(texts), expected)
        names = vectorizer.get_feature_names_out()
        assert [names[0], len(names)] == ["elmovectorizer0", expected.shape[1]]
        assert vectorizer.transform([]).shape == (0, expected.shape[1])


def test_a_texts_vector_does_not_depend_on_order_or_neighbours(folder):
    together = ElmoVectorizer(folder, cache_bytes=0).transform(TEXTS)
    backwards = ElmoVectorizer(folder, cache_bytes=0).transform(TEXTS[::-1])
    alone = [ElmoVectorizer(folder, cache_bytes=0).transform([text])[0] for text in TEXTS]
    np.testing.assert_array_equal(backwards[::-1], together)
    np.testing.assert_array_equal(alone, together)


def test_whitening_is_that_of_encode(folder):
    model, vectorizer = elmokit.load(folder), ElmoVectorizer(folder, whitening="zca")
    whitening = elmokit.Whitening.fit(model.encode(TEXTS))
    expected = model.encode(TEXTS, whitening=whitening)
    np.testing.assert_array_equal(vectorizer.fit_transform(TEXTS), expected)
    restored = pickle.loads(pickle.dumps(vectorizer))
    np.testing.assert_allclose(restored.transform(TEXTS[2:]), expected[2:], atol=1e-6)
    np.testing.assert_array_equal(clone(vectorizer).fit(TEXTS).transform(TEXTS), expected)


def test_a_pickle_is_small_and_refuses_another_model(folder, tmp_path):
    pipeline = make_pipeline(ElmoVectorizer(folder), LogisticRegression()).fit(TEXTS, LABELS)
    saved = pickle.dumps(pipeline)
    assert len(saved) < 10_000
    restored = pickle.loads(saved)
    np.testing.assert_array_equal(restored.predict(TEXTS), pipeline.predict(TEXTS))
    restored[0].model = make_folder(tmp_path, size=2.0)
    with pytest.raises(elmokit.InputError, match=r"ElmoVectorizer was made with another model"):
        restored.predict(TEXTS)


def test_a_grid_search_runs_the_model_once_for_each_text(tmp_path, monkeypatch):
    runs, run_lstms = [], BiLM.run_lstms

    def counting(self, vectors, words, *arguments, **options):
        runs.append(len(words))
        return run_lstms(self, vectors, words, *arguments, **options)

    monkeypatch.setattr(BiLM, "run_lstms", counting)
    grid = {"elmovectorizer__layers": ["top", 1, [1, 2], "mean", "concat"]}
    grid["elmovectorizer__pooling"] = ["mean", "max", "last"]
    pipeline = make_pipeline(ElmoVectorizer(make_folder(tmp_path)), LogisticRegression())
    GridSearchCV(pipeline, grid, cv=2).fit(TEXTS, LABELS)
    assert sum(runs) == 5  # sentences of the distinct texts
    pipeline.set_params(elmovectorizer__layers=0).fit(TEXTS, LABELS).predict(TEXTS)
    assert sum(runs) == 10  # the lowest layer alone, without the LSTMs


def test_the_cache_keeps_to_its_size_and_part_of_what_is_read_in_turn(folder):
    opened = open_once(elmokit.LoadOptions(folder, tokens_per_batch=4095))
    cache, texts = opened._pooled_texts, [f"text {number}" for number in range(40)]
    opened.encode(texts, layers="mean", pooling="mean", cache_bytes=1)
    assert cache._bytes == len(cache._keys) == len(cache._values) == 0
    opened.encode(texts, layers="mean", pooling="mean", cache_bytes=2**20)
    one_text = cache._bytes // len(texts)
    opened.encode(["more"], layers="mean", pooling="mean", cache_bytes=30 * one_text)
    remaining = [text for text in texts if cache.get((text, "3 layers"))]
    assert cache._bytes == 30 * one_text
    assert len(cache._keys) == len(cache._values) == 30
    assert len(remaining) >= 29
    assert remaining != texts[-len(remaining) :]  # not the oldest were dropped


@pytest.mark.full
def test_a_grid_search_in_two_processes_equals_a_loop_by_hand(folder):
    layers, poolings = [0, 1, 2, "mean", "concat"], ["mean", "max"]
    pipeline = make_pipeline(ElmoVectorizer(folder), LogisticRegression())
    grid = {"elmovectorizer__layers": layers, "elmovectorizer__pooling": poolings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # joblib: a worker takes long to start
        search = GridSearchCV(pipeline, grid, cv=3, n_jobs=2).fit(TEXTS, LABELS)
        in_workers = joblib.Parallel(n_jobs=2)(joblib.delayed(threads_used)(folder) for _ in "ab")
    model = elmokit.load(folder)
    by_hand = [
        cross_val_score(
            LogisticRegression(), model.encode(TEXTS, layers=layer, pooling=pooling), LABELS, cv=3
        ).mean()
        for layer, pooling in product(layers, poolings)
    ]
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], by_hand)
    assert in_workers == [(True, 1), (True, 1)]
    assert not in_worker_process()


def threads_used(folder):
    opened = open_once(elmokit.LoadOptions(folder))
    return in_worker_process(), opened.embedder.session._threads


def test_a_model_is_loaded_once_until_its_folder_changes(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    make_folder(folder)
    first = ElmoVectorizer(folder).transform(["a"])
    opened = open_once(elmokit.LoadOptions(folder))
    assert open_once(elmokit.LoadOptions(folder)) is opened
    folder.rename(tmp_path / "old")
    folder.mkdir()
    make_folder(folder, size=2.0)
    assert not np.array_equal(ElmoVectorizer(folder).transform(["a"]), first)


def test_a_column_of_a_pandas_table_is_taken_by_its_name(folder):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(
        {"text": ["A shop.", "", "What?"], "price": [1, 2, 3]}, index=[7, 5, 7]
    )
    vectorizer = ElmoVectorizer(folder)
    columns = ColumnTransformer([("elmo", vectorizer, "text")], remainder="passthrough")
    expected = elmokit.load(folder).encode(list(table["text"]))
    np.testing.assert_array_equal(columns.fit_transform(table)[:, :-1], expected)
    shown = clone(vectorizer).set_output(transform="pandas").fit_transform(table["text"])
    np.testing.assert_array_equal(shown.to_numpy(), expected)
    assert list(shown.index) == [7, 5, 7]
    wrong = ColumnTransformer([("elmo", vectorizer, ["text"])])
    with pytest.raises(
        elmokit.InputError, match=r"a DataFrame of shape \(3, 1\), expected one col"
    ):
        wrong.fit_transform(table)


@pytest.mark.parametrize("method", ["fit", "transform", "fit_transform"])
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("A shop.", "X is one string, expected a list of texts"),
        (
            np.array([["A shop."]]),
            r"X is a ndarray of shape \(1, 1\), expected one column of texts",
        ),
    ],
)
def test_what_is_not_a_list_of_texts_is_refused(method, texts, message, folder):
    with pytest.raises(elmokit.InputError, match=message):
        getattr(ElmoVectorizer(folder), method)(texts)


def test_mistakes_are_explained(folder, model):
    with pytest.raises(
        TypeError, match=r"text 1 is None, expected a string .* drop missing values"
    ):
        ElmoVectorizer(folder).transform(["a", None])
    with pytest.raises(elmokit.InputError, match=r"pooling is 'median', expected one of mean"):
        ElmoVectorizer(folder, pooling="median").transform(["a"])
    with pytest.raises(elmokit.InputError, match=r"model has 0 to 2"):
        ElmoVectorizer(folder, layers=3).transform(["a"])
    with pytest.raises(elmokit.InputError, match=r"the model is an Embedder .* expected its name"):
        ElmoVectorizer(model).transform(["a"])
    with pytest.raises(elmokit.InputError, match=r"method is 'pca', expected one of zca"):
        ElmoVectorizer(folder, whitening="pca").fit(["a"])


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "elmokit.integrations.sklearn")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(elmokit.InputError, match=r"pip install 'elmokit\[sklearn\]'"):
        importlib.import_module("elmokit.integrations.sklearn")


def test_the_package_imports_no_tool():
    code = "import sys, elmokit.integrations; sys.exit(bool({'torch', 'sklearn'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
