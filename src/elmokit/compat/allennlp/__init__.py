"""AllenNLP's ELMo by its own names: 0.9's ElmoEmbedder, 2.10's Elmo, and what goes with them."""

from elmokit.compat.allennlp.embedder import ElmoEmbedder, empty_embedding
from elmokit.compat.allennlp.ids_and_masks import (
    ConfigurationError,
    ELMoCharacterMapper,
    ELMoTokenCharactersIndexer,
    batch_to_ids,
)
from elmokit.compat.allennlp.import_hook import install
from elmokit.compat.allennlp.modules import (
    Elmo,
    ElmoBiLm,
    ElmoCharacterEncoder,
    ElmoLstm,
    ScalarMix,
)
from elmokit.compat.allennlp.token_embedders import ElmoTokenEmbedder, ElmoTokenEmbedderMultiLang

__all__ = [
    "ConfigurationError",
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "Elmo",
    "ElmoBiLm",
    "ElmoCharacterEncoder",
    "ElmoEmbedder",
    "ElmoLstm",
    "ElmoTokenEmbedder",
    "ElmoTokenEmbedderMultiLang",
    "ScalarMix",
    "batch_to_ids",
    "empty_embedding",
    "install",
]
