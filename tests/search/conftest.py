from itertools import count

import pytest

from elmokit.threads import using_threads


@pytest.fixture(autouse=True)
def _one_thread():
    """Many threads would only wait for each other on models this small."""
    with using_threads(1):
        yield


_tests = count()


@pytest.fixture(params=["folder", "database"])
def location(request, tmp_path):
    """Where the indexes of a test go, by name: in a folder, or in a database."""
    if request.param == "folder":
        return lambda name: tmp_path / name
    server, own = request.getfixturevalue("postgres"), f"test{next(_tests)}"
    return lambda name: server.address(f"{own}_{name}")


@pytest.fixture
def settings_of_0_1():
    """A function from the settings of an index to what 0.1 wrote for them."""

    def rename(settings):
        names = {"tokenizer": "split"}
        renamed = {names.get(name, name): value for name, value in settings.items()}
        return renamed | {"pooling": {"idf": "rare"}.get(settings["pooling"], settings["pooling"])}

    return rename
