"""`import allennlp` becomes elmokit's own ELMo, so that old programs run without AllenNLP."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from elmokit.compat.allennlp import elmo, embedder, indexer, scalar_mix
from elmokit.errors import ElmokitError

_ELMO: dict[str, object] = {
    "Elmo": elmo.Elmo,
    "_ElmoBiLm": elmo.ElmoBiLm,
    "batch_to_ids": indexer.batch_to_ids,
}
_INDEXER: dict[str, object] = {
    "ELMoCharacterMapper": indexer.ELMoCharacterMapper,
    "ELMoTokenCharactersIndexer": indexer.ELMoTokenCharactersIndexer,
}
_MODULES: dict[str, dict[str, object]] = {
    "allennlp": {"__version__": "2.10.1"},
    "allennlp.commands": {},
    "allennlp.commands.elmo": {
        "DEFAULT_BATCH_SIZE": embedder.DEFAULT_BATCH_SIZE,
        "DEFAULT_OPTIONS_FILE": embedder.DEFAULT_OPTIONS_FILE,
        "DEFAULT_WEIGHT_FILE": embedder.DEFAULT_WEIGHT_FILE,
        "ElmoEmbedder": embedder.ElmoEmbedder,
    },
    "allennlp.common": {},
    "allennlp.common.checks": {"ConfigurationError": scalar_mix.ConfigurationError},
    "allennlp.data": {},
    "allennlp.data.token_indexers": _INDEXER,
    "allennlp.data.token_indexers.elmo_indexer": _INDEXER,
    "allennlp.modules": {"Elmo": elmo.Elmo, "ScalarMix": scalar_mix.ScalarMix},
    "allennlp.modules.elmo": _ELMO,
    "allennlp.modules.scalar_mix": {"ScalarMix": scalar_mix.ScalarMix},
}


def install() -> None:
    """Let `from allennlp.commands.elmo import ElmoEmbedder` and its kin find elmokit's."""
    present = sys.modules.get("allennlp")
    if present is not None and not isinstance(present, _StandIn):
        raise ElmokitError(
            "AllenNLP itself has been imported already; call install() before, or do without it"
        )
    for name, contents in _MODULES.items():
        module = _StandIn(name)
        vars(module).update(contents)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent and child not in _MODULES[parent]:
            setattr(sys.modules[parent], child, module)
    if not any(isinstance(finder, _Explainer) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Explainer())


class _StandIn(ModuleType):
    """A module of AllenNLP as far as ELMo needs it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "elmokit's stand-in for AllenNLP's ELMo")
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> object:
        raise AttributeError(
            f"elmokit stands in for AllenNLP's ELMo only: no {self.__name__}.{name}"
        )


class _Explainer(MetaPathFinder):
    """Says why a module of AllenNLP is not there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.startswith("allennlp."):
            raise ModuleNotFoundError(
                f"elmokit stands in for AllenNLP's ELMo only: no module {name}", name=name
            )
        return None
