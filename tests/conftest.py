import os
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import elmokit
from databases import start_server
from elmokit.catalogue import cache_folder
from elmokit.model.kernels import choose_kernel
from random_models import make_folder

# Examples are chosen by the test's name alone: a run that passed yesterday passes today.
settings.register_profile("elmokit", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("elmokit")

# One thread for each worker of pytest-xdist, and for what is not elmokit's own. Tests of threads
# ask for more.
os.environ["OMP_NUM_THREADS"] = "1"
# Compiled layers stay where they are, and one is compiled before a test looks at stderr.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))
choose_kernel("auto", "float32", torch.empty(0))
# Nothing is downloaded, and no model that the user has downloaded is found.
os.environ["ELMOKIT_OFFLINE"] = "1"
os.environ["ELMOKIT_CACHE"] = tempfile.mkdtemp()
torch.set_num_threads(1)

SHARED = Path(os.environ.get("ELMOKIT_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared():
    """The folder beside a checkout with fixtures of reference implementations, and the corpora."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the fixtures in {SHARED.name}/ beside the project, which are not here")
    return SHARED


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def model(model_folder):
    return elmokit.load(model_folder)


@pytest.fixture(scope="session")
def postgres():
    """A server of PostgreSQL with pgvector, for all tests that want one."""
    with start_server() as server:
        yield server
