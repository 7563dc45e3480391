import pkgutil
import subprocess
import sys

import pytest

import elmokit


def test_every_public_name_is_there():
    for name in elmokit.__all__:
        assert getattr(elmokit, name) is not None
    assert dir(elmokit) == sorted(elmokit.__all__)


def test_a_name_that_is_not_public_is_refused():
    with pytest.raises(AttributeError, match="module 'elmokit' has no attribute 'Bert'"):
        _ = elmokit.Bert


def test_importing_the_package_does_not_import_torch():
    code = "import sys, elmokit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_public_name_needs_a_tool_that_is_an_extra():
    tools = (
        "datasets", "faiss", "fastapi", "gensim", "huggingface_hub", "keras", "langchain_core",
        "matplotlib", "pandas", "polars", "pyarrow", "ray", "scipy", "sklearn", "spacy", "thinc",
    )  # fmt: skip
    code = (
        "import sys, elmokit, elmokit.integrations\n"
        "for name in elmokit.__all__: getattr(elmokit, name)\n"
        f"sys.exit(' '.join({set(tools)} & {{*sys.modules}}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_error_on_purpose_is_an_elmokit_error():
    for name in elmokit.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(elmokit, name), elmokit.ElmokitError)


def test_no_public_name_is_also_a_module():
    modules = {module.name for module in pkgutil.iter_modules(elmokit.__path__)}
    assert not modules & set(elmokit.__all__)  # importing the module would replace the name
