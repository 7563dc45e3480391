import pytest


@pytest.fixture(scope="session")
def labelled(shared):
    """The folder with the tasks' files."""
    return shared / "data" / "tasks"


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def write(text, name="file.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
