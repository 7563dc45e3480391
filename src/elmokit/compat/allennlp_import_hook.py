"""A stand-in for the `allennlp` package, so that old programs run on elmokit's ELMo."""

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from elmokit.errors import ElmokitError


def install() -> None:
    """Make `from allennlp.commands.elmo import ElmoEmbedder`, and the like, find elmokit's."""
    present = sys.modules.get("allennlp")
    if present is not None and not isinstance(present, _StandIn):
        raise ElmokitError(
            "AllenNLP itself has been imported already; call install() before that, or not at all"
        )
    modules = _modules()
    for name, contents in modules.items():
        module = _StandIn(name)
        vars(module).update(contents)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent and child not in modules[parent]:
            setattr(sys.modules[parent], child, module)
    if not any(isinstance(finder, _Explainer) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Explainer())


def main() -> None:
    """Run a script as Python would, with elmokit in AllenNLP's place."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m elmokit.compat.allennlp SCRIPT [ARGUMENT ...]")
    if not Path(sys.argv[1]).is_file():
        sys.exit(f"{sys.argv[1]}: no such script")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    install()
    runpy.run_path(sys.argv[0], run_name="__main__")


def _modules() -> dict[str, dict[str, object]]:
    """The contents of each module of AllenNLP that is replaced."""
    from elmokit.compat import allennlp  # noqa: PLC0415  it imports this module

    elmo: dict[str, object] = {
        "Elmo": allennlp.Elmo,
        "_ElmoBiLm": allennlp.ElmoBiLm,
        "batch_to_ids": allennlp.batch_to_ids,
    }
    indexers: dict[str, object] = {
        "ELMoCharacterMapper": allennlp.ELMoCharacterMapper,
        "ELMoTokenCharactersIndexer": allennlp.ELMoTokenCharactersIndexer,
    }
    return {
        "allennlp": {"__version__": "2.10.1"},
        "allennlp.commands": {},
        "allennlp.commands.elmo": {
            "DEFAULT_BATCH_SIZE": allennlp.DEFAULT_BATCH_SIZE,
            "DEFAULT_OPTIONS_FILE": allennlp.DEFAULT_OPTIONS_FILE,
            "DEFAULT_WEIGHT_FILE": allennlp.DEFAULT_WEIGHT_FILE,
            "ElmoEmbedder": allennlp.ElmoEmbedder,
        },
        "allennlp.common": {},
        "allennlp.common.checks": {"ConfigurationError": allennlp.ConfigurationError},
        "allennlp.data": {},
        "allennlp.data.token_indexers": indexers,
        "allennlp.data.token_indexers.elmo_indexer": indexers,
        "allennlp.modules": {"Elmo": allennlp.Elmo, "ScalarMix": allennlp.ScalarMix},
        "allennlp.modules.elmo": elmo,
        "allennlp.modules.scalar_mix": {"ScalarMix": allennlp.ScalarMix},
    }


class _StandIn(ModuleType):
    """A module of AllenNLP with what belongs to ELMo."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "elmokit's stand-in for AllenNLP's ELMo")
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> object:
        raise AttributeError(
            f"elmokit stands in for AllenNLP's ELMo only: no {self.__name__}.{name}"
        )


class _Explainer(MetaPathFinder):
    """Explains why a module of AllenNLP cannot be imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.startswith("allennlp."):
            raise ModuleNotFoundError(
                f"elmokit stands in for AllenNLP's ELMo only: no module {name}", name=name
            )
        return None
