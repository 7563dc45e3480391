"""AllenNLP's ELMo, by its own names: 0.9's ElmoEmbedder, 2.10's Elmo, batch_to_ids, ScalarMix."""

from elmokit.compat.allennlp.elmo import Elmo, ElmoBiLm
from elmokit.compat.allennlp.embedder import ElmoEmbedder
from elmokit.compat.allennlp.indexer import (
    ELMoCharacterMapper,
    ELMoTokenCharactersIndexer,
    batch_to_ids,
)
from elmokit.compat.allennlp.scalar_mix import ConfigurationError, ScalarMix
from elmokit.compat.allennlp.shim import install

__all__ = [
    "ConfigurationError",
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "Elmo",
    "ElmoBiLm",
    "ElmoEmbedder",
    "ScalarMix",
    "batch_to_ids",
    "install",
]
