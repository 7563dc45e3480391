"""A stand-in for the `allennlp` package, so that old programs run on elmokit's ELMo."""

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from elmokit.compat.allennlp import boundaries, embedder, indexer, modules, token_embedders
from elmokit.errors import ElmokitError

_USAGE = """\
usage: python -m elmokit.compat.allennlp SCRIPT [ARGUMENT ...]
       python -m elmokit.compat.allennlp -m MODULE [ARGUMENT ...]
       python -m elmokit.compat.allennlp elmo INPUT OUTPUT (--all | --top | --average) ..."""

# What is not here, by the beginning of its name: what it was, and what to use.
_NOT_HERE = {
    "allennlp": ("AllenNLP's framework", "elmokit's own API (docs/migrate.md)"),
    "allennlp.commands": ("a command", "`elmo --help`"),
    "allennlp.commands.evaluate": ("a command", "`elmo evaluate`"),
    "allennlp.commands.predict": ("a command", "`elmo apply`"),
    "allennlp.commands.train": ("a command", "`elmo train`"),
    "allennlp.common": ("configuration files and registries", "Python's own arguments"),
    "allennlp.common.file_utils": (
        "the download of files",
        "the address or the path itself: elmokit resolves it",
    ),
    "allennlp.data": (
        "the reading and indexing of datasets",
        "batch_to_ids(sentences), or elmokit.Elmo, which takes lists of words",
    ),
    "allennlp.interpret": ("explanations of predictions", "AllenNLP itself"),
    "allennlp.models": ("models of tasks", "elmokit.train_task and elmokit.load_task"),
    "allennlp.modules": ("layers of task models", "torch.nn"),
    "allennlp.modules.ConditionalRandomField": (
        "conditional random fields",
        "elmokit.tasks.crf.CRF",
    ),
    "allennlp.modules.conditional_random_field": (
        "conditional random fields",
        "elmokit.tasks.crf.CRF",
    ),
    "allennlp.modules.sampled_softmax_loss": ("the softmax of pretraining", "`elmo pretrain`"),
    "allennlp.modules.seq2seq_encoders": ("encoders of sentences", "torch.nn.LSTM"),
    "allennlp.modules.text_field_embedders": (
        "combinations of embeddings",
        "torch.cat of their vectors",
    ),
    "allennlp.modules.token_embedders": ("word embeddings", "torch.nn.Embedding"),
    "allennlp.nn": ("functions on tensors", "torch"),
    "allennlp.predictors": ("predictions of trained models", "elmokit.load_task"),
    "allennlp.service": ("an HTTP service", "`elmo serve`"),
    "allennlp.training": ("training and metrics", "elmokit.train_task and elmokit.tasks.metrics"),
}


def install() -> None:
    """Make `from allennlp.commands.elmo import ElmoEmbedder`, and the like, find elmokit's."""
    present = sys.modules.get("allennlp")
    if present is not None and not isinstance(present, _StandIn):
        raise ElmokitError(
            "AllenNLP itself has been imported already; call install() before that, or not at all"
        )
    contents_of = _modules()
    for name, contents in contents_of.items():
        module = _StandIn(name)
        vars(module).update(contents)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent and child not in contents_of[parent]:
            setattr(sys.modules[parent], child, module)
    if not any(isinstance(finder, _Explainer) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Explainer())


def main() -> None:
    """Run a script or a module as Python would, with elmokit in AllenNLP's place, or a command."""
    sys.argv = sys.argv[1:]
    install()
    match sys.argv:
        case ["elmo", *_]:
            sys.argv.insert(0, "allennlp")
            try:
                embedder.run_command()
            except (ElmokitError, OSError) as error:
                sys.exit(f"allennlp: {error}")
        case ["-m", module, *_]:
            sys.argv.pop(0)
            sys.path[0] = ""
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *_] if Path(script).is_file():
            sys.path[0] = str(Path(script).resolve().parent)
            runpy.run_path(script, run_name="__main__")
        case [script, *_] if not script.startswith("-"):
            sys.exit(f"{script}: no such script")
        case _:
            sys.exit(_USAGE)


def _modules() -> dict[str, dict[str, object]]:
    """The contents of each module of AllenNLP that is replaced."""
    character_indexer: dict[str, object] = {
        "ELMoCharacterMapper": indexer.ELMoCharacterMapper,
        "ELMoTokenCharactersIndexer": indexer.ELMoTokenCharactersIndexer,
    }
    sentence_boundaries: dict[str, object] = {
        "add_sentence_boundary_token_ids": boundaries.add_sentence_boundary_token_ids,
        "remove_sentence_boundaries": boundaries.remove_sentence_boundaries,
    }
    elmo: dict[str, object] = {
        "Elmo": modules.Elmo,
        "ElmoLstm": modules.ElmoLstm,
        "ScalarMix": modules.ScalarMix,
        "_ElmoBiLm": modules.ElmoBiLm,
        "_ElmoCharacterEncoder": modules.ElmoCharacterEncoder,
        "batch_to_ids": indexer.batch_to_ids,
        **character_indexer,
        **sentence_boundaries,
    }
    one_language: dict[str, object] = {"ElmoTokenEmbedder": token_embedders.ElmoTokenEmbedder}
    languages: dict[str, object] = {
        "ElmoTokenEmbedderMultiLang": token_embedders.ElmoTokenEmbedderMultiLang
    }
    lazy_groups_of: dict[str, object] = {"lazy_groups_of": embedder.lazy_groups_of}
    error: dict[str, object] = {"ConfigurationError": indexer.ConfigurationError}
    return {
        "allennlp": {"__version__": "2.10.1"},
        "allennlp.commands": {"main": embedder.run_command},
        "allennlp.commands.elmo": {
            "DEFAULT_BATCH_SIZE": embedder.DEFAULT_BATCH_SIZE,
            "DEFAULT_OPTIONS_FILE": modules.DEFAULT_OPTIONS_FILE,
            "DEFAULT_WEIGHT_FILE": modules.DEFAULT_WEIGHT_FILE,
            "ElmoEmbedder": embedder.ElmoEmbedder,
            "_ElmoBiLm": modules.ElmoBiLm,
            "batch_to_ids": indexer.batch_to_ids,
            "empty_embedding": embedder.empty_embedding,
            "remove_sentence_boundaries": boundaries.remove_sentence_boundaries,
            **lazy_groups_of,
            **error,
        },
        "allennlp.common": {},
        "allennlp.common.checks": error,
        "allennlp.common.util": lazy_groups_of,
        "allennlp.data": {},
        "allennlp.data.token_indexers": character_indexer,
        "allennlp.data.token_indexers.elmo_indexer": character_indexer,
        "allennlp.modules": {"Elmo": modules.Elmo, "ScalarMix": modules.ScalarMix},
        "allennlp.modules.elmo": elmo,
        "allennlp.modules.elmo_lstm": {"ElmoLstm": modules.ElmoLstm},
        "allennlp.modules.scalar_mix": {"ScalarMix": modules.ScalarMix},
        "allennlp.modules.token_embedders": {**one_language, **languages},
        "allennlp.modules.token_embedders.elmo_token_embedder": one_language,
        "allennlp.modules.token_embedders.elmo_token_embedder_multilang": languages,
        "allennlp.nn": {},
        "allennlp.nn.util": {
            **sentence_boundaries,
            "get_lengths_from_binary_sequence_mask": (
                boundaries.get_lengths_from_binary_sequence_mask
            ),
            "get_mask_from_sequence_lengths": boundaries.get_mask_from_sequence_lengths,
            "get_text_field_mask": boundaries.get_text_field_mask,
        },
    }


class _StandIn(ModuleType):
    """A module of AllenNLP with what belongs to ELMo."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "elmokit's stand-in for AllenNLP's ELMo")
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> object:
        raise AttributeError(_explanation(f"{self.__name__}.{name}"))


class _Explainer(MetaPathFinder):
    """Explains why a module of AllenNLP, or a name in it, cannot be imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.startswith("allennlp."):
            # With the full name, `from ... import` would replace the message by one of its own.
            raise ModuleNotFoundError(_explanation(name), name="allennlp")
        return None


def _explanation(name: str) -> str:
    """What a missing name of AllenNLP was, and what to use."""
    known = max((prefix for prefix in _NOT_HERE if f"{name}.".startswith(f"{prefix}.")), key=len)
    what, instead = _NOT_HERE[known]
    return f"{name} belongs to {what}; elmokit stands in for AllenNLP's ELMo only: use {instead}"
