"""ELMo for today: run published models exactly and fast, pretrain new ones, use them.

Importing torch takes seconds, so each public name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.batching import Batch as Batch
    from elmokit.embedder import Embedder as Embedder
    from elmokit.embedder import LoadOptions as LoadOptions
    from elmokit.embedder import load as load
    from elmokit.errors import ConfigError as ConfigError
    from elmokit.errors import ElmokitError as ElmokitError
    from elmokit.errors import FormatError as FormatError
    from elmokit.errors import InputError as InputError
    from elmokit.errors import NumericError as NumericError
    from elmokit.errors import OutputError as OutputError
    from elmokit.errors import RankError as RankError
    from elmokit.errors import ServiceError as ServiceError
    from elmokit.export import check_table as check_table
    from elmokit.export import export_softmax as export_softmax
    from elmokit.export import export_states as export_states
    from elmokit.export import export_words as export_words
    from elmokit.export import write_vectors as write_vectors
    from elmokit.file_embedding import embed_file as embed_file
    from elmokit.formats import Pretrained as Pretrained
    from elmokit.formats import convert as convert
    from elmokit.language_model_results import Perplexity as Perplexity
    from elmokit.language_model_results import Prediction as Prediction
    from elmokit.language_model_results import Score as Score
    from elmokit.model.bilm import BiLM as BiLM
    from elmokit.model.bilm import State as State
    from elmokit.model.elmo import Elmo as Elmo
    from elmokit.model.scalar_mix import ScalarMix as ScalarMix
    from elmokit.model_config import BiLMConfig as BiLMConfig
    from elmokit.model_config import CharacterConfig as CharacterConfig
    from elmokit.pretraining.corpus import Corpus as Corpus
    from elmokit.pretraining.prepare import prepare as prepare
    from elmokit.pretraining.settings import PretrainingSettings as PretrainingSettings
    from elmokit.pretraining.trainer import pretrain as pretrain
    from elmokit.scoring import perplexity as perplexity
    from elmokit.tasks.saved_model import TaskModel as TaskModel
    from elmokit.tasks.saved_model import load_task as load_task
    from elmokit.tasks.trainer import train_task as train_task
    from elmokit.whitening import Whitening as Whitening

__version__ = "0.2.0"

_MODULE_OF = {
    "BiLM": "model.bilm",
    "BiLMConfig": "model_config",
    "Batch": "batching",
    "CharacterConfig": "model_config",
    "ConfigError": "errors",
    "Corpus": "pretraining.corpus",
    "Elmo": "model.elmo",
    "ElmokitError": "errors",
    "Embedder": "embedder",
    "FormatError": "errors",
    "Prediction": "language_model_results",
    "InputError": "errors",
    "LoadOptions": "embedder",
    "NumericError": "errors",
    "OutputError": "errors",
    "Perplexity": "language_model_results",
    "Pretrained": "formats",
    "RankError": "errors",
    "ScalarMix": "model.scalar_mix",
    "Score": "language_model_results",
    "ServiceError": "errors",
    "State": "model.bilm",
    "Whitening": "whitening",
    "convert": "formats",
    "export_softmax": "export",
    "export_states": "export",
    "export_words": "export",
    "embed_file": "file_embedding",
    "load": "embedder",
    "prepare": "pretraining.prepare",
    "pretrain": "pretraining.trainer",
    "PretrainingSettings": "pretraining.settings",
    "perplexity": "scoring",
    "TaskModel": "tasks.saved_model",
    "load_task": "tasks.saved_model",
    "train_task": "tasks.trainer",
    "check_table": "export",
    "write_vectors": "export",
}

__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}")
    return getattr(import_module(f"elmokit.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
