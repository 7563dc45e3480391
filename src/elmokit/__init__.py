"""ELMo for today: run published models exactly and fast, pretrain new ones, use them.

Importing torch takes seconds, so each public name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.batching import Batch as Batch
    from elmokit.config import BiLMConfig as BiLMConfig
    from elmokit.config import CharacterConfig as CharacterConfig
    from elmokit.embed_file import embed_file as embed_file
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
    from elmokit.export import dump_softmax as dump_softmax
    from elmokit.export import dump_states as dump_states
    from elmokit.export import dump_words as dump_words
    from elmokit.export import write_vectors as write_vectors
    from elmokit.formats import Pretrained as Pretrained
    from elmokit.formats import convert as convert
    from elmokit.model.bilm import BiLM as BiLM
    from elmokit.model.bilm import State as State
    from elmokit.model.elmo import Elmo as Elmo
    from elmokit.model.scalar_mix import ScalarMix as ScalarMix
    from elmokit.pretrain.corpus import Corpus as Corpus
    from elmokit.pretrain.prepare import prepare as prepare
    from elmokit.pretrain.settings import PretrainingSettings as PretrainingSettings
    from elmokit.pretrain.trainer import pretrain as pretrain
    from elmokit.results import Perplexity as Perplexity
    from elmokit.results import Prediction as Prediction
    from elmokit.results import Score as Score
    from elmokit.scoring import perplexity as perplexity
    from elmokit.tasks.saved_model import TaskModel as TaskModel
    from elmokit.tasks.saved_model import load_task as load_task
    from elmokit.tasks.trainer import train_task as train_task
    from elmokit.whitening import Whitening as Whitening

__version__ = "0.2.0"

_MODULE_OF = {
    "BiLM": "model.bilm",
    "BiLMConfig": "config",
    "Batch": "batching",
    "CharacterConfig": "config",
    "ConfigError": "errors",
    "Corpus": "pretrain.corpus",
    "Elmo": "model.elmo",
    "ElmokitError": "errors",
    "Embedder": "embedder",
    "FormatError": "errors",
    "Prediction": "results",
    "InputError": "errors",
    "LoadOptions": "embedder",
    "NumericError": "errors",
    "OutputError": "errors",
    "Perplexity": "results",
    "Pretrained": "formats",
    "RankError": "errors",
    "ScalarMix": "model.scalar_mix",
    "Score": "results",
    "ServiceError": "errors",
    "State": "model.bilm",
    "Whitening": "whitening",
    "convert": "formats",
    "dump_softmax": "export",
    "dump_states": "export",
    "dump_words": "export",
    "embed_file": "embed_file",
    "load": "embedder",
    "prepare": "pretrain.prepare",
    "pretrain": "pretrain.trainer",
    "PretrainingSettings": "pretrain.settings",
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
