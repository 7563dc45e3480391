import pytest

from elmokit.model.parallel import using_threads


@pytest.fixture(autouse=True)
def _one_thread():
    """Many threads would only wait for each other on models this small."""
    with using_threads(1):
        yield
