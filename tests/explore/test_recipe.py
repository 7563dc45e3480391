"""What a recipe refuses, since no query could repeat it or no index keep it."""

import numpy as np
import pytest

import elmokit
from elmokit.errors import NumericError
from elmokit.explore.build import build_index
from made import make_options, make_weights, write_files

TEXT = "It rained.\nA quiet day. A day.\n"


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return str(tmp_path / "text.txt")


@pytest.fixture
def broken(tmp_path):
    """A model for which a word with a q has such a number."""

    def make(number):
        options = make_options()
        weights = make_weights(options)
        weights["char_embed"][ord("q")] = number
        (tmp_path / "broken").mkdir()
        return elmokit.load(write_files(tmp_path / "broken", options, weights))

    return make


@pytest.mark.parametrize("unit", ["sentences", "paragraphs", "words"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e7])  # the last is beyond float16 only
def test_a_vector_that_is_no_number_is_named_by_its_line(broken, text, tmp_path, unit, number):
    model, chosen = broken(number), {"unit": unit, "layers": 0}
    with pytest.raises(NumericError, match=r"text.txt, line 2: the model gives a vector that is"):
        build_index(model, [text], tmp_path / "index", **chosen)
    (tmp_path / "fine.txt").write_text("It rained.\n")
    with build_index(model, [str(tmp_path / "fine.txt")], tmp_path / "fine", **chosen) as index:
        with pytest.raises(NumericError, match=r"text.txt, line 2: the model gives a vector that"):
            index.add([text])
        assert len(index) == 1


def test_a_query_that_gives_no_number_is_named(broken, tmp_path):
    (tmp_path / "fine.txt").write_text("It rained.\n")
    with (
        build_index(broken(np.nan), [str(tmp_path / "fine.txt")], tmp_path / "index") as index,
        pytest.raises(NumericError, match="query 'quiet': the model gives a vector that"),
    ):
        index.search("quiet")
