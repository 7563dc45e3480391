"""Character ids become ELMo representations by AllenNLP's names, its carried state included."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit import formats
from elmokit.batching import Batch
from elmokit.compat.allennlp.checkpoint import translate
from elmokit.compat.allennlp.scalar_mix import ConfigurationError, ScalarMix
from elmokit.embed_file import describe
from elmokit.model.bilm import State
from elmokit.vocab import CharacterIndexer

logger = logging.getLogger(__name__)


class Representations(TypedDict):
    """What AllenNLP's Elmo returns."""

    elmo_representations: list[Tensor]
    mask: Tensor


class Activations(TypedDict):
    """What AllenNLP's biLM returns: its layers with boundaries, and where words stand."""

    activations: list[Tensor]
    mask: Tensor


class Elmo(nn.Module):
    """AllenNLP 2.10's Elmo; state is carried from call to call, as it was, if `stateful`."""

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if module is not None and (options_file is not None or weight_file is not None):
            raise ConfigurationError("Don't provide options_file or weight_file with module")
        if module is None:
            if options_file is None or weight_file is None:
                raise ConfigurationError("give options_file and weight_file, or module")
            module = ElmoBiLm(
                options_file,
                weight_file,
                requires_grad=requires_grad,
                vocab_to_cache=vocab_to_cache,
                stateful=stateful,
            )
        self._elmo_lstm = module
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        self._mixes = num_output_representations
        for number in range(num_output_representations):
            mix = ScalarMix(
                module.num_layers,  # type: ignore[arg-type]
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{number}", mix)

    def get_output_dim(self) -> int:
        """The size of a representation."""
        dim: int = self._elmo_lstm.get_output_dim()  # type: ignore[operator]
        return dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> Representations:
        """Representations of character ids, (..., words, 50), with dropout, and their mask.

        `word_inputs`, (..., words), are the words' numbers in `vocab_to_cache`.
        """
        leading = inputs.shape[:-2]
        if word_inputs is not None and not self._has_cached_vocab:
            logger.warning("Word inputs were passed to ELMo but it does not have a cached vocab.")
            word_inputs = None
        if word_inputs is not None:
            leading = word_inputs.shape[:-1]
            word_inputs = word_inputs.view(-1, word_inputs.shape[-1])
        if inputs.dim() > 3:
            inputs = inputs.flatten(0, -3)
        read = self._elmo_lstm(inputs, word_inputs)
        representations = []
        for number in range(self._mixes):
            mixed = self.get_submodule(f"scalar_mix_{number}")(read["activations"], read["mask"])
            mask = read["mask"]
            if not self._keep_sentence_boundaries:
                mask = mask[:, 2:]  # a word stands where its successor is not padding
                mixed = mixed[:, 1:-1] * mask[..., None]
            mixed = self._dropout(mixed)
            representations.append(mixed.view(*leading, *mixed.shape[1:]))
        mask = mask.reshape(*leading, mask.shape[1])
        return {"elmo_representations": representations, "mask": mask}


class ElmoBiLm(nn.Module):
    """AllenNLP's biLM: layers with boundaries; row k goes on where row k of the last call ended."""

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        self._pretrained = formats.load(options_file, weight_file)  # no module: its bilm is
        self.bilm = self._pretrained.model.bilm
        characters = self.bilm.config.characters
        if characters is None:
            raise ConfigurationError("a word-level model has no character ids; use elmokit.load")
        self.bilm.requires_grad_(requires_grad)
        self.num_layers = self.bilm.config.num_layers + 1
        self._alphabet = CharacterIndexer(characters.max_characters)
        self.stateful = stateful
        self._words: list[str] = []
        if vocab_to_cache and requires_grad:
            logger.warning("ELMo is fine-tuned, so words are not cached: they would not learn.")
        elif vocab_to_cache:
            self._words = ["<S>", "</S>", *vocab_to_cache]
        self._table: Tensor | None = None
        self._table_version: list[tuple[object, ...]] = []
        self.register_load_state_dict_pre_hook(_take_old_names)  # type: ignore[no-untyped-call]
        self.reset_states()

    @property
    def _elmo_lstm(self) -> "ElmoBiLm":
        """Where AllenNLP's users found reset_states."""
        return self

    @property
    def width(self) -> int:
        """How many character ids a word of this model has."""
        return self._alphabet.max_characters

    def describe(self) -> dict[str, str]:
        """What a file of vectors says of the model that made them."""
        return describe(self._pretrained)

    @property
    def _states(self) -> State | None:
        """What AllenNLP's users set to None to forget."""
        return self._state

    @_states.setter
    def _states(self, state: State | None) -> None:
        self.reset_states()
        if state is not None:
            self._state = state

    def get_output_dim(self) -> int:
        """The size of a layer."""
        return self.bilm.config.output_size

    def reset_states(self) -> None:
        """Forget the sentences read so far."""
        self._state = State.zeros(self.bilm.config, 0, like=next(self.bilm.parameters()))

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> Activations:
        """All layers of character ids (sentences, words, 50), or of cached words by number."""
        device = self.bilm.device
        if word_inputs is not None and self._knows(word_inputs):
            types, words = self._cached_types(), self._cached_places(word_inputs.to(device))
        else:
            if inputs.shape[-1] != self.width:
                raise ConfigurationError(
                    f"character ids of width {inputs.shape[-1]} for a model of width {self.width}; "
                    f"make them with batch_to_ids(batch, width={self.width})"
                )
            batch = Batch.from_ids(inputs.to(device), self._alphabet)
            types, words = self.bilm.encode(batch.chars), batch.words
        layers, after = self.bilm.run_lstms(types, words, self._state_of(len(words)))
        if self.stateful:
            rows = torch.arange(len(words), device=device)
            self._state = self._state.with_rows(rows, after.detach())
        return {"activations": [*layers], "mask": words > 0}

    def _knows(self, word_inputs: Tensor) -> bool:
        """AllenNLP took the characters of the whole batch where a word was not cached."""
        return bool(self._words) and bool((word_inputs + 2 < len(self._words)).all())

    @torch.no_grad()
    def _cached_types(self) -> Tensor:  # -> (words + 3, dim)
        """Vectors of padding, <S>, </S> and the cached words, made again when weights change."""
        if self._table is None or self._table_version != self.bilm.version():
            rows = torch.from_numpy(self._alphabet.encode(self._words)[0]).to(self.bilm.device)
            self._table = self.bilm.encode(F.pad(rows, (0, 0, 1, 0)))
            self._table_version = self.bilm.version()
        return self._table

    def _state_of(self, sentences: int) -> State:
        like = next(self.bilm.parameters())
        if not self.stateful:
            return State.zeros(self.bilm.config, sentences, like=like)
        self._state = self._state.to(like)
        missing = sentences - self._state.num_sentences
        if missing > 0:
            fresh = State.zeros(self.bilm.config, missing, like=self._state.hidden)
            self._state = self._state.followed_by(fresh)
        return self._state.rows(torch.arange(sentences, device=self.bilm.device))

    def _cached_places(self, word_inputs: Tensor) -> Tensor:
        """Where cached words and their boundaries stand in the table; word 0 is padding."""
        words = F.pad(torch.where(word_inputs > 0, word_inputs + 3, 0), (1, 1))
        words[:, 0] = 1
        ends = (word_inputs > 0).sum(1) + 1
        words[torch.arange(len(words), device=words.device), ends] = 2
        return words


def _take_old_names(module: ElmoBiLm, weights: dict[str, Tensor], prefix: str, *_: object) -> None:
    translate(weights, prefix, module.bilm.config)
