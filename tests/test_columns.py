"""Columns of tables as texts and as sentences."""

import numpy as np
import pytest

TEXTS = ["I ate an apple.", "Apple opened a shop.", "", "A shop."]
SENTENCES = [["I", "ate"], ["Apple", "grew", "."], ["A", "shop"]]
REASON = "{} is not installed"


def as_numpy(values):
    array = np.empty(len(values), object)
    array[:] = values
    return [array]


def as_pandas(values):
    pandas = pytest.importorskip("pandas", reason=REASON.format("pandas"))
    columns = [pandas.Series(values, index=[5, 5, 7, 9][: len(values)])]
    if isinstance(values[0], str):
        columns += [pandas.Series(values, dtype=dtype) for dtype in ("string", "category")]
    return columns


def as_polars(values):
    polars = pytest.importorskip("polars", reason=REASON.format("polars"))
    return [polars.Series(values)]


def as_arrow(values):
    pyarrow = pytest.importorskip("pyarrow", reason=REASON.format("pyarrow"))
    return [pyarrow.array(values), pyarrow.chunked_array([values[:1], values[1:]])]


def as_datasets(values):
    datasets = pytest.importorskip("datasets", reason=REASON.format("datasets"))
    table = datasets.Dataset.from_dict({"column": values})
    formats = [None, "numpy", "arrow"]
    return [table.with_format(name)["column"] for name in formats]


KINDS = [as_numpy, as_pandas, as_polars, as_arrow, as_datasets]


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_a_list_of_texts(kind, model):
    for column in kind(TEXTS):
        np.testing.assert_array_equal(model.encode(column), model.encode(TEXTS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_lists_is_a_list_of_sentences(kind, model):
    for column in kind(SENTENCES):
        for own, expected in zip(model.embed(column), model.embed(SENTENCES), strict=True):
            np.testing.assert_array_equal(own, expected)
        np.testing.assert_array_equal(model.encode(column), model.encode(SENTENCES))


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_value_is_refused_with_its_position(kind, model):
    for column in kind(["a", "b", None]):
        with pytest.raises(TypeError, match=r"text 2 is .* drop missing values, or fill them"):
            model.encode(column)
    for column in kind([["a"], ["b"], None]):
        with pytest.raises(TypeError, match=r"sentence 2 is .* drop missing values, or fill them"):
            model.embed(column)


def test_what_pandas_puts_for_a_missing_text_is_one(model):
    pandas = pytest.importorskip("pandas", reason=REASON.format("pandas"))
    for missing in (pandas.NA, pandas.NaT, np.nan):
        with pytest.raises(TypeError, match=r"text 1 is .* drop missing values"):
            model.encode(["a", missing])


def test_a_float_is_not_called_missing(model):
    with pytest.raises(
        TypeError, match=r"text 0 is a float \(0.5\), expected a string or a list of words$"
    ):
        model.encode([0.5])
    with pytest.raises(TypeError, match=r"text 0 is a float \(nan\), .* drop missing values"):
        model.encode([float("nan")])


def test_a_table_instead_of_a_column_is_refused(model):
    tables = [{"text": TEXTS}]
    for name, make in (
        ("pandas", lambda pandas: pandas.DataFrame({"text": TEXTS})),
        ("polars", lambda polars: polars.DataFrame({"text": TEXTS})),
        ("pyarrow", lambda pyarrow: pyarrow.table({"text": TEXTS})),
        ("datasets", lambda datasets: datasets.Dataset.from_dict({"text": TEXTS})),
    ):
        try:
            tables.append(make(__import__(name)))
        except ModuleNotFoundError:
            continue
    for table in tables:
        with pytest.raises(TypeError, match=r"texts is a table \(a .*\), expected a list of texts"):
            model.encode(table)
        with pytest.raises(TypeError, match=r"sentences is a table .* give one of its columns"):
            model.embed(table)
