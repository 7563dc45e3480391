import pytest

from elmokit.model.parallel import using_threads


@pytest.fixture(autouse=True)
def _one_thread():
    """Small products wait for a second thread longer than they take."""
    with using_threads(1):
        yield
