import pytest

from elmokit.tasks.metrics.score import Score


def test_nothing_found_and_nothing_wanted_is_nothing():
    assert (Score().precision, Score().recall, Score().f1) == (0, 0, 0)
    assert Score(0, 0, 0, 3).f1 == 0


def test_documents_add_up():
    assert Score(1, 2, 1, 4) + Score(2, 2, 2, 2) == Score(3, 4, 3, 6)
    assert (Score(1, 2, 1, 4) + Score(2, 2, 2, 2)).f1 == pytest.approx(0.6)
