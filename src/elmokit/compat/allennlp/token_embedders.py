"""AllenNLP's token embedders: one ELMo representation of a text, in one language or in several."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.compat.allennlp.ids_and_masks import ConfigurationError
from elmokit.compat.allennlp.modules import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE, Elmo
from elmokit.formats.alignment import read_matrix


class _Projected(nn.Module):
    """Vectors, projected if `projection_dim` is given."""

    def _set_output_dim(self, dim: int, projection_dim: int | None) -> None:
        self.output_dim = projection_dim or dim
        self._projection = nn.Linear(dim, projection_dim) if projection_dim else nn.Identity()

    def get_output_dim(self) -> int:
        return self.output_dim


class ElmoTokenEmbedder(_Projected):
    """One mix of ELMo's layers, projected if `projection_dim` is given."""

    def __init__(
        self,
        options_file: str | Path = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path = DEFAULT_WEIGHT_FILE,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
        )
        self._set_output_dim(self._elmo.get_output_dim(), projection_dim)

    @classmethod
    def from_params(
        cls, vocab: Any = None, params: Mapping[str, Any] | None = None, **extras: Any
    ) -> "ElmoTokenEmbedder":
        """The embedder of a configuration: a dictionary, or AllenNLP's Params."""
        for name in ("options_file", "weight_file"):
            _archive(params, name)
        return cls(**_settings(vocab, params))

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """The vectors, (..., words, dim), of character ids, (..., words, 50)."""
        mixed = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        projected: Tensor = self._projection(mixed)
        return projected


class ElmoTokenEmbedderMultiLang(_Projected):
    """An ELMo for each language, whose vectors are mapped into one space by a matrix each.

    The matrices are files of `torch.save`; a language without one is not mapped.
    """

    def __init__(
        self,
        options_files: Mapping[str, str | Path],
        weight_files: Mapping[str, str | Path],
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        aligning_files: Mapping[str, str | Path] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if options_files.keys() != weight_files.keys():
            raise ConfigurationError(
                f"options_files are of the languages {sorted(options_files)}, but weight_files of "
                f"{sorted(weight_files)}; give both for each language"
            )
        for language, options_file in options_files.items():
            elmo = Elmo(
                options_file,
                weight_files[language],
                1,
                requires_grad=requires_grad,
                do_layer_norm=do_layer_norm,
                dropout=dropout,
                vocab_to_cache=vocab_to_cache,
                scalar_mix_parameters=scalar_mix_parameters,
                stateful=stateful,
            )
            self.add_module(f"elmo_{language}", elmo)
            dim = elmo.get_output_dim()
            path = (aligning_files or {}).get(language)
            matrix = read_matrix(Path(path), dim) if path else torch.eye(dim)
            aligning = nn.Linear(dim, dim, bias=False)
            aligning.weight = nn.Parameter(matrix, requires_grad=False)
            self.add_module(f"aligning_{language}", aligning)
        dims = {module.get_output_dim() for module in self.children() if isinstance(module, Elmo)}
        if len(dims) != 1:
            raise ConfigurationError(
                f"the models have vectors of {sorted(dims)} dimensions, expected the same of all"
            )
        self._set_output_dim(dims.pop(), projection_dim)

    @classmethod
    def from_params(
        cls, vocab: Any = None, params: Mapping[str, Any] | None = None, **extras: Any
    ) -> "ElmoTokenEmbedderMultiLang":
        """The embedder of a configuration: a dictionary, or AllenNLP's Params."""
        settings = _settings(vocab, params)
        for name in ("options_files", "weight_files"):
            for language in settings[name]:
                _archive(settings[name], language)
        return cls(**settings)

    def forward(self, inputs: Tensor, lang: str, word_inputs: Tensor | None = None) -> Tensor:
        """The vectors, (..., words, dim), of character ids, (..., words, 50), in a language."""
        mixed = getattr(self, f"elmo_{lang}")(inputs, word_inputs)["elmo_representations"][0]
        projected: Tensor = self._projection(getattr(self, f"aligning_{lang}")(mixed))
        return projected


def _settings(vocab: Any, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments that a configuration stands for."""
    settings = dict(params or {})
    settings.pop("type", None)
    if namespace := settings.pop("namespace_to_cache", None):
        settings["vocab_to_cache"] = [*vocab.get_token_to_index_vocabulary(namespace)]
    return settings


def _archive(params: Any, name: str) -> None:
    """Let AllenNLP's Params put a file into the archive of a trained model."""
    if hasattr(params, "add_file_to_archive"):
        params.add_file_to_archive(name)
