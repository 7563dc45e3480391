"""How an index's vectors are computed, and models and numbers that are refused."""

import json

import numpy as np
import pytest

import elmokit
from elmokit.errors import InputError, NumericError
from elmokit.search.index import Index
from random_models import make_options, make_weights, write_files

TEXT = "It rained.\nA quiet day. A day.\n"


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return str(tmp_path / "text.txt")


@pytest.fixture
def broken(tmp_path):
    """A model whose words with a q have a given number in their vectors."""

    def make(number):
        options = make_options()
        weights = make_weights(options)
        weights["char_embed"][ord("q")] = number
        (tmp_path / "broken").mkdir()
        folder = write_files(tmp_path / "broken", options, weights)
        return elmokit.load(folder, allow_nonfinite=True)

    return make


@pytest.mark.parametrize(("state", "other"), [("zero", "warm"), ("warm", "zero")])
def test_a_model_with_another_start_state_is_refused(model_folder, text, tmp_path, state, other):
    model = elmokit.load(model_folder, state=state)
    Index.build(tmp_path / "index", [text], model).close()
    with Index.open(tmp_path / "index", model) as index:
        assert index.config.state == state
        assert index.search("It rained.", k=1)[0].cosine == pytest.approx(1, abs=2e-3)
    with pytest.raises(
        InputError, match=f"index: built with state '{state}', .* load it with '{state}"
    ):
        Index.open(tmp_path / "index", elmokit.load(model_folder, state=other))


def test_an_index_without_a_start_state_has_zero(model_folder, model, text, tmp_path):
    Index.build(tmp_path / "index", [text], model).close()
    path = tmp_path / "index" / "index.json"
    settings = json.loads(path.read_text())
    assert settings.pop("state") == "zero"
    path.write_text(json.dumps(settings))
    Index.open(tmp_path / "index", model).close()
    with pytest.raises(InputError, match="built with state 'zero'"):
        Index.open(tmp_path / "index", elmokit.load(model_folder, state="warm"))


def test_a_build_is_resumed_in_its_own_precision_only(model_folder, location, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"One good line is here.\n" * 9 + b"\xff\n")
    for precision, refused in [
        ("half", "not UTF-8"),
        ("float32", "was started with"),
    ]:
        model = elmokit.load(model_folder, precision=precision, tokens_per_batch=1)
        with pytest.raises(InputError, match=refused):
            Index.build(location("index"), [str(path)], model)


@pytest.mark.parametrize("unit", ["sentences", "paragraphs", "words"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e7])  # the last is beyond float16 only
def test_a_vector_beyond_float16_is_reported_with_its_line(broken, text, tmp_path, unit, number):
    model, chosen = broken(number), {"unit": unit, "layers": 0}
    with pytest.raises(NumericError, match=r"text.txt, line 2: the model gives a vector that is"):
        Index.build(tmp_path / "index", [text], model, **chosen)
    (tmp_path / "fine.txt").write_text("It rained.\n")
    with Index.build(tmp_path / "fine", [str(tmp_path / "fine.txt")], model, **chosen) as index:
        with pytest.raises(NumericError, match=r"text.txt, line 2: the model gives a vector that"):
            index.add([text])
        assert len(index) == 1


def test_a_query_that_is_not_finite_is_reported(broken, tmp_path):
    (tmp_path / "fine.txt").write_text("It rained.\n")
    with (
        Index.build(tmp_path / "index", [str(tmp_path / "fine.txt")], broken(np.nan)) as index,
        pytest.raises(NumericError, match="query 'quiet': the model gives a vector that"),
    ):
        index.search("quiet")
