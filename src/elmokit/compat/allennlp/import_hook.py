"""A stand-in for the `allennlp` package, so that old programs run on elmokit's ELMo."""

import sys
from collections.abc import Mapping
from types import ModuleType

from elmokit.compat.allennlp import embedder, ids_and_masks, modules, token_embedders
from elmokit.compat.replaced_packages import ReplacedPackage, run_program
from elmokit.errors import ElmokitError

_USAGE = """\
usage: python -m elmokit.compat.allennlp SCRIPT [ARGUMENT ...]
       python -m elmokit.compat.allennlp -m MODULE [ARGUMENT ...]
       python -m elmokit.compat.allennlp elmo INPUT OUTPUT (--all | --top | --average) ..."""

_CRF = ("conditional random fields", "elmokit.tasks.crf.CRF")

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
    "allennlp.modules.ConditionalRandomField": _CRF,
    "allennlp.modules.conditional_random_field": _CRF,
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
    ReplacedPackage(
        "allennlp",
        title="AllenNLP",
        part="AllenNLP's ELMo",
        modules=_modules(),
        not_here=_NOT_HERE,
    ).install()


def main() -> None:
    """Run a script or a module as Python would, with elmokit in AllenNLP's place, or a command."""
    sys.argv = sys.argv[1:]
    install()
    if sys.argv[:1] != ["elmo"]:
        run_program(_USAGE)
        return
    sys.argv.insert(0, "allennlp")
    try:
        embedder.run_command()
    except (ElmokitError, OSError) as error:
        sys.exit(f"allennlp: {error}")


def _modules() -> dict[str, Mapping[str, object]]:
    """The contents of each module of AllenNLP that is replaced."""
    character_indexer = _named(ids_and_masks, "ELMoCharacterMapper", "ELMoTokenCharactersIndexer")
    error = _named(ids_and_masks, "ConfigurationError")
    sentence_boundaries = _named(
        ids_and_masks, "add_sentence_boundary_token_ids", "remove_sentence_boundaries"
    )
    masks = _named(
        ids_and_masks,
        "get_lengths_from_binary_sequence_mask",
        "get_mask_from_sequence_lengths",
        "get_text_field_mask",
    )
    batch_to_ids = _named(ids_and_masks, "batch_to_ids")
    groups = _named(embedder, "lazy_groups_of")
    one_language = _named(token_embedders, "ElmoTokenEmbedder")
    languages = _named(token_embedders, "ElmoTokenEmbedderMultiLang")
    bilm = {"_ElmoBiLm": modules.ElmoBiLm}
    command = {
        **_named(embedder, "DEFAULT_BATCH_SIZE", "ElmoEmbedder", "empty_embedding"),
        **_named(modules, "DEFAULT_OPTIONS_FILE", "DEFAULT_WEIGHT_FILE"),
        **_named(ids_and_masks, "remove_sentence_boundaries"),
    }
    elmo = {
        **_named(modules, "Elmo", "ElmoLstm", "ScalarMix"),
        "_ElmoCharacterEncoder": modules.ElmoCharacterEncoder,
    }
    return {
        "allennlp": {"__version__": "2.10.1"},
        "allennlp.commands": {"main": embedder.run_command},
        "allennlp.commands.elmo": command | bilm | batch_to_ids | groups | error,
        "allennlp.common": {},
        "allennlp.common.checks": error,
        "allennlp.common.util": groups,
        "allennlp.data": {},
        "allennlp.data.token_indexers": character_indexer,
        "allennlp.data.token_indexers.elmo_indexer": character_indexer,
        "allennlp.modules": _named(modules, "Elmo", "ScalarMix"),
        "allennlp.modules.elmo": (
            elmo | bilm | batch_to_ids | character_indexer | sentence_boundaries
        ),
        "allennlp.modules.elmo_lstm": _named(modules, "ElmoLstm"),
        "allennlp.modules.scalar_mix": _named(modules, "ScalarMix"),
        "allennlp.modules.token_embedders": one_language | languages,
        "allennlp.modules.token_embedders.elmo_token_embedder": one_language,
        "allennlp.modules.token_embedders.elmo_token_embedder_multilang": languages,
        "allennlp.nn": {},
        "allennlp.nn.util": sentence_boundaries | masks,
    }


def _named(module: ModuleType, *names: str) -> dict[str, object]:
    return {name: getattr(module, name) for name in names}
