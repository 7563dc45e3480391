"""Stand-ins for tensorflow_hub and, where TensorFlow is not installed, for the little of it that
programs need which only embed.

Nothing is put off until a session runs: the module has computed its outputs when it is called, and
a session returns them as they are.
"""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.compat.replaced_packages import ReplacedPackage, run_program
from elmokit.compat.tfhub.module import Module, load
from elmokit.errors import InputError

_USAGE = """\
usage: python -m elmokit.compat.tfhub SCRIPT [ARGUMENT ...]
       python -m elmokit.compat.tfhub -m MODULE [ARGUMENT ...]"""

_FED_LATER = (
    "graphs that are fed in a session",
    "the strings themselves, in the call of the module: it computes at once",
)
_KERAS = (
    "Keras on TensorFlow",
    "vectors that were computed before, or elmokit.Elmo in a model of PyTorch",
)
_TRAINING = ("models of TensorFlow", "elmokit.Elmo in a model of PyTorch, or `elmo train`")
_TENSORS = ("operations on tensors", "torch or NumPy: outputs are tensors of PyTorch")

# What is not here, by the beginning of its name: what it was, and what to use.
_HUB_NOT_HERE = {
    "tensorflow_hub": ("modules other than ELMo", "hub.Module or hub.load of an ELMo module"),
    "tensorflow_hub.KerasLayer": _KERAS,
    "tensorflow_hub.create_module_spec": ("the making of modules", "`elmo convert`"),
    "tensorflow_hub.text_embedding_column": _TRAINING,
}
_TENSORFLOW_NOT_HERE = {
    "tensorflow": _TENSORS,
    "tensorflow.ConfigProto": ("sessions on GPUs", 'elmokit.load(..., device="cuda")'),
    "tensorflow.data": ("pipelines of data", "lists of strings"),
    "tensorflow.estimator": _TRAINING,
    "tensorflow.function": _FED_LATER,
    "tensorflow.keras": _KERAS,
    "tensorflow.layers": _TRAINING,
    "tensorflow.nn": _TRAINING,
    "tensorflow.placeholder": _FED_LATER,
    "tensorflow.python": _TENSORS,
    "tensorflow.train": _TRAINING,
}


def install() -> None:
    """Make `import tensorflow_hub` find elmokit's Module and load.

    If TensorFlow is not installed, `import tensorflow` finds what belongs to them: strings as
    arrays, and sessions, whose `run` returns what the module has computed.
    """
    ReplacedPackage(
        "tensorflow_hub",
        title="TensorFlow Hub",
        part="TensorFlow Hub's ELMo",
        modules={"tensorflow_hub": {"__version__": "0.16.1", "Module": Module, "load": load}},
        not_here=_HUB_NOT_HERE,
    ).install()
    if "tensorflow" in sys.modules or find_spec("tensorflow") is not None:
        return
    contents = _tensorflow()
    names = ("tensorflow", "tensorflow.compat", "tensorflow.compat.v1", "tensorflow.compat.v2")
    not_here = {
        name.replace("tensorflow", prefix, 1): explanation
        for prefix in ("tensorflow", *names[2:])
        for name, explanation in _TENSORFLOW_NOT_HERE.items()
    }
    ReplacedPackage(
        "tensorflow",
        title="TensorFlow",
        part="what surrounds ELMo in TensorFlow",
        modules={name: {} if name == "tensorflow.compat" else contents for name in names},
        not_here=not_here,
    ).install()


def main() -> None:
    """Run a script or a module as Python would, with elmokit in the place of tensorflow_hub."""
    sys.argv = sys.argv[1:]
    install()
    run_program(_USAGE)


class Session(nullcontext[Any]):
    """A session, which has nothing left to compute."""

    def __init__(self, target: str = "", graph: object = None, config: None = None) -> None:
        super().__init__(self)

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """The arrays of tensors, in lists, tuples and dictionaries as they were given."""
        if feed_dict:
            what, instead = _FED_LATER
            raise InputError(f"feed_dict belongs to {what}; elmokit has none: use {instead}")
        if isinstance(fetches, Mapping):
            return {name: self.run(fetch) for name, fetch in fetches.items()}
        if isinstance(fetches, list | tuple):
            arrays = map(self.run, fetches)
            return type(fetches)(*arrays) if hasattr(fetches, "_fields") else type(fetches)(arrays)
        if isinstance(fetches, str):
            raise InputError(f"{fetches!r} is the name of a tensor, expected the tensor itself")
        if isinstance(fetches, _Initializer):
            return None
        return fetches.detach().numpy() if isinstance(fetches, Tensor) else fetches

    def close(self) -> None:
        """There is nothing to close."""


class Graph:
    """A graph, to which nothing is added."""

    def as_default(self) -> AbstractContextManager["Graph"]:
        """A context that is like any other."""
        return nullcontext(self)


class _Initializer:
    """What initialized variables or tables, as they are when the module is loaded."""

    def run(self, session: object = None) -> None:
        pass


class _Logging:
    """The levels of TensorFlow's messages, of which there are none."""

    DEBUG, INFO, WARN, ERROR, FATAL = 10, 20, 30, 40, 50

    def set_verbosity(self, level: int) -> None:
        pass


def _constant(value: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    return np.asarray(value, None if dtype is np.str_ else dtype)  # strings may be bytes


def _reduce_mean(
    input_tensor: Tensor | npt.ArrayLike, axis: int | None = None, keepdims: bool = False
) -> Tensor:
    return torch.as_tensor(input_tensor).mean(axis, keepdim=keepdims)


def _tensorflow() -> dict[str, object]:
    """What is there of the package tensorflow, and of its compat.v1."""
    initializers = (
        "global_variables_initializer", "initialize_all_variables", "local_variables_initializer",
        "tables_initializer",
    )  # fmt: skip
    return {
        "__version__": "1.15.5",
        "Graph": Graph,
        "Session": Session,
        "constant": _constant,
        "convert_to_tensor": _constant,
        "disable_eager_execution": lambda: None,
        "disable_v2_behavior": lambda: None,
        "int32": np.int32,
        "logging": _Logging(),
        "reduce_mean": _reduce_mean,
        "string": np.str_,
        **dict.fromkeys(initializers, _Initializer),
    }
