"""ELMo for today: run published models exactly and fast, pretrain new ones, use them.

Importing torch takes seconds, so each public name is resolved when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.ask.perplexity import Perplexity as Perplexity
    from elmokit.ask.perplexity import perplexity as perplexity
    from elmokit.ask.predict import Guess as Guess
    from elmokit.ask.score import Score as Score
    from elmokit.config import BiLMConfig as BiLMConfig
    from elmokit.config import CharacterConfig as CharacterConfig
    from elmokit.dump import dump_softmax as dump_softmax
    from elmokit.dump import dump_states as dump_states
    from elmokit.dump import dump_words as dump_words
    from elmokit.embedder import Embedder as Embedder
    from elmokit.embedder import load as load
    from elmokit.errors import ConfigError as ConfigError
    from elmokit.errors import ElmokitError as ElmokitError
    from elmokit.errors import FormatError as FormatError
    from elmokit.errors import InputError as InputError
    from elmokit.errors import NumericError as NumericError
    from elmokit.errors import OutputError as OutputError
    from elmokit.errors import RankError as RankError
    from elmokit.errors import ServiceError as ServiceError
    from elmokit.file import embed_file as embed_file
    from elmokit.formats import Pretrained as Pretrained
    from elmokit.formats import convert as convert
    from elmokit.lm.corpus import Corpus as Corpus
    from elmokit.lm.prepare import prepare as prepare
    from elmokit.lm.settings import Settings as Settings
    from elmokit.lm.trainer import pretrain as pretrain
    from elmokit.model.bilm import BiLM as BiLM
    from elmokit.model.bilm import State as State
    from elmokit.model.elmo import Elmo as Elmo
    from elmokit.model.mix import ScalarMix as ScalarMix
    from elmokit.table import check_table as check_table
    from elmokit.table import write_vectors as write_vectors
    from elmokit.text.batch import Batch as Batch

__version__ = "0.1.0"

_ROOMS = {
    "BiLM": "model.bilm",
    "BiLMConfig": "config",
    "Batch": "text.batch",
    "CharacterConfig": "config",
    "ConfigError": "errors",
    "Corpus": "lm.corpus",
    "Elmo": "model.elmo",
    "ElmokitError": "errors",
    "Embedder": "embedder",
    "FormatError": "errors",
    "Guess": "ask.predict",
    "InputError": "errors",
    "NumericError": "errors",
    "OutputError": "errors",
    "Perplexity": "ask.perplexity",
    "Pretrained": "formats",
    "RankError": "errors",
    "ScalarMix": "model.mix",
    "Score": "ask.score",
    "ServiceError": "errors",
    "State": "model.bilm",
    "convert": "formats",
    "dump_softmax": "dump",
    "dump_states": "dump",
    "dump_words": "dump",
    "embed_file": "file",
    "load": "embedder",
    "prepare": "lm.prepare",
    "pretrain": "lm.trainer",
    "Settings": "lm.settings",
    "perplexity": "ask.perplexity",
    "check_table": "table",
    "write_vectors": "table",
}

__all__ = ["__version__", *_ROOMS]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}")
    return getattr(import_module(f"elmokit.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
