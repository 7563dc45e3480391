"""ELMo for today: run published models exactly and fast, pretrain new ones, use them.

Importing torch takes seconds, so each public name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.batching import Batch as Batch
    from elmokit.catalogue import PublishedModel as PublishedModel
    from elmokit.catalogue import download as download
    from elmokit.catalogue import models as models
    from elmokit.embedder import Embedder as Embedder
    from elmokit.embedder import LoadOptions as LoadOptions
    from elmokit.embedder import load as load
    from elmokit.errors import ConfigError as ConfigError
    from elmokit.errors import DownloadError as DownloadError
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
    from elmokit.file_embedding import embed_fasta as embed_fasta
    from elmokit.file_embedding import embed_file as embed_file
    from elmokit.formats import Pretrained as Pretrained
    from elmokit.formats import convert as convert
    from elmokit.head_fitting import fit_whitened as fit_whitened
    from elmokit.language_model_results import Perplexity as Perplexity
    from elmokit.language_model_results import Prediction as Prediction
    from elmokit.language_model_results import Score as Score
    from elmokit.model.bilm import BiLM as BiLM
    from elmokit.model.bilm import State as State
    from elmokit.model.elmo import Elmo as Elmo
    from elmokit.model.scalar_mix import ScalarMix as ScalarMix
    from elmokit.model_config import BiLMConfig as BiLMConfig
    from elmokit.model_config import CharacterConfig as CharacterConfig
    from elmokit.model_package import write_package as write_package
    from elmokit.onnx_export import export_onnx as export_onnx
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

_NAMES_OF = {
    "batching": ["Batch"],
    "catalogue": ["PublishedModel", "download", "models"],
    "embedder": ["Embedder", "LoadOptions", "load"],
    "errors": [
        "ConfigError",
        "DownloadError",
        "ElmokitError",
        "FormatError",
        "InputError",
        "NumericError",
        "OutputError",
        "RankError",
        "ServiceError",
    ],
    "export": ["check_table", "export_softmax", "export_states", "export_words", "write_vectors"],
    "file_embedding": ["embed_fasta", "embed_file"],
    "formats": ["Pretrained", "convert"],
    "head_fitting": ["fit_whitened"],
    "language_model_results": ["Perplexity", "Prediction", "Score"],
    "model.bilm": ["BiLM", "State"],
    "model.elmo": ["Elmo"],
    "model.scalar_mix": ["ScalarMix"],
    "model_config": ["BiLMConfig", "CharacterConfig"],
    "model_package": ["write_package"],
    "onnx_export": ["export_onnx"],
    "pretraining.corpus": ["Corpus"],
    "pretraining.prepare": ["prepare"],
    "pretraining.settings": ["PretrainingSettings"],
    "pretraining.trainer": ["pretrain"],
    "scoring": ["perplexity"],
    "tasks.saved_model": ["TaskModel", "load_task"],
    "tasks.trainer": ["train_task"],
    "whitening": ["Whitening"],
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}
__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name == "ray":  # so that elmokit.ray.embed is there without a further import
        try:
            return import_module("elmokit.ray")
        except ValueError as error:  # the InputError that says what to install
            raise AttributeError(str(error)) from error
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}")
    return getattr(import_module(f"elmokit.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
