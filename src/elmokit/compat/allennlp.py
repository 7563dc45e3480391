"""AllenNLP's ELMo by its own names: 0.9's ElmoEmbedder, 2.10's Elmo, batch_to_ids, ScalarMix."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Literal, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit import formats
from elmokit.batching import Batch, check_words
from elmokit.compat.allennlp_import_hook import install, main
from elmokit.errors import ConfigError
from elmokit.file_embedding import HDF5Writer, model_attributes
from elmokit.model.bilm import State
from elmokit.model.scalar_mix import mix_layers
from elmokit.model_config import BiLMConfig
from elmokit.pooling import Vectors
from elmokit.vocab import CharacterIndexer

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

# The URLs in old programs; nothing is downloaded, so the files must be had by other means.
_MODELS = "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
DEFAULT_OPTIONS_FILE = _MODELS + "elmo_2x4096_512_2048cnn_2xhighway_options.json"
DEFAULT_WEIGHT_FILE = _MODELS + "elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5"
DEFAULT_BATCH_SIZE = 64

_MAX_CHARACTERS = 50
_INDEXER = CharacterIndexer(_MAX_CHARACTERS)

logger = logging.getLogger(__name__)


class ConfigurationError(ConfigError):
    """What AllenNLP raised for a wrong setting."""


class ElmoEmbedder:
    """AllenNLP 0.9's embedder.

    As there, each sentence continues from the state of the sentence in the same row of the last
    batch, unless `stateful` is False.
    """

    def __init__(
        self,
        options_file: str | Path = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
        *,
        stateful: bool = True,
    ) -> None:
        self.indexer = ELMoTokenCharactersIndexer()
        self.elmo_bilm = ElmoBiLm(options_file, weight_file, stateful=stateful)
        if cuda_device >= 0:
            self.elmo_bilm = self.elmo_bilm.cuda(cuda_device)
            self.elmo_bilm.reset_states()
        self.cuda_device = cuda_device

    @torch.no_grad()
    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Layers (sentences, layers, words, dim) and mask (sentences, words)."""
        output = self.elmo_bilm(batch_to_ids(batch, max_characters=self.elmo_bilm.max_characters))
        mask = output["mask"][:, 2:]
        layers = torch.stack(output["activations"], 1)[:, :, 1:-1]
        return layers * mask[:, None, :, None], mask

    def embed_sentence(self, sentence: Sequence[str]) -> Vectors:
        """The layers of a sentence, (layers, words, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Vectors]:
        """The layers of each sentence; a single empty one does not change the state."""
        if [*map(len, batch)] == [0]:
            return [np.zeros((self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim()), "f4")]
        embeddings, mask = self.batch_to_embeddings(batch)
        arrays = embeddings.cpu().numpy()
        lengths = mask.sum(1).tolist()
        return [array[:, :length].copy() for array, length in zip(arrays, lengths, strict=True)]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[Vectors]:
        """The layers of each sentence, `batch_size` sentences at a time."""
        remaining = iter(sentences)
        while batch := [*islice(remaining, batch_size)]:
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: Literal["all", "top", "average"] = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed a file with a sentence a line, split at white space, into an HDF5 file.

        Closes the input file.
        """
        if output_format not in ("all", "top", "average"):
            raise ConfigurationError(
                f"output_format is {output_format!r}, expected 'all', 'top' or 'average'"
            )
        with (
            input_file,
            HDF5Writer(
                Path(output_file_path),
                {**self.elmo_bilm.describe(), "form": output_format, "split": "whitespace"},
                forget_sentences=forget_sentences,
                sentence_keys=use_sentence_keys,
                overwrite=True,
            ) as writer,
        ):
            lines = (line.strip() for line in input_file)
            while texts := [*islice(lines, batch_size)]:
                arrays = self.embed_batch([text.split() for text in texts])
                if output_format == "top":
                    arrays = [array[-1] for array in arrays]
                elif output_format == "average":
                    arrays = [array.mean(0) for array in arrays]
                writer.append(texts, arrays)
            writer.finish()


class Representations(TypedDict):
    """The output of AllenNLP's Elmo."""

    elmo_representations: list[Tensor]
    mask: Tensor


class Activations(TypedDict):
    """The output of AllenNLP's biLM: its layers, with boundaries, and the mask of tokens."""

    activations: list[Tensor]
    mask: Tensor


class Elmo(nn.Module):
    """AllenNLP 2.10's Elmo; as there, state is carried from call to call, unless not `stateful`."""

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
                raise ConfigurationError(
                    "no model given; give options_file and weight_file, or module"
                )
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
        dim: int = self._elmo_lstm.get_output_dim()  # type: ignore[operator]
        return dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> Representations:
        """Representations of character ids, (..., words, 50), with dropout, and their mask.

        `word_inputs`, (..., words), are the words' indices in `vocab_to_cache`.
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
        output = self._elmo_lstm(inputs, word_inputs)
        representations = []
        for number in range(self._mixes):
            mixed = self.get_submodule(f"scalar_mix_{number}")(
                output["activations"], output["mask"]
            )
            mask = output["mask"]
            if not self._keep_sentence_boundaries:
                mask = mask[:, 2:]  # a word is where the next token is not padding
                mixed = mixed[:, 1:-1] * mask[..., None]
            mixed = self._dropout(mixed)
            representations.append(mixed.view(*leading, *mixed.shape[1:]))
        mask = mask.reshape(*leading, mask.shape[1])
        return {"elmo_representations": representations, "mask": mask}


class ElmoBiLm(nn.Module):
    """AllenNLP's biLM: layers with boundaries; row k continues from row k of the last call."""

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
        self._pretrained = formats.load(options_file, weight_file)  # only its bilm is a submodule
        self.bilm = self._pretrained.model.bilm
        characters = self.bilm.config.characters
        if characters is None:
            raise ConfigurationError(
                "this is a word-level model, which has no character ids; use elmokit.load"
            )
        self.bilm.requires_grad_(requires_grad)
        self.num_layers = self.bilm.config.num_layers + 1
        self._indexer = CharacterIndexer(characters.max_characters)
        self.stateful = stateful
        self._words: list[str] = []
        if vocab_to_cache and requires_grad:
            logger.warning("ELMo is fine-tuned, so words are not cached: their vectors change.")
        elif vocab_to_cache:
            self._words = ["<S>", "</S>", *vocab_to_cache]
        self._cached_vectors: Tensor | None = None
        self._cache_version: list[tuple[object, ...]] = []
        self.register_load_state_dict_pre_hook(_rename_weights)  # type: ignore[no-untyped-call]
        self.reset_states()

    @property
    def _elmo_lstm(self) -> "ElmoBiLm":
        """AllenNLP's path to reset_states."""
        return self

    @property
    def max_characters(self) -> int:
        """How many character ids a word of this model has."""
        return self._indexer.max_characters

    def describe(self) -> dict[str, str]:
        """The attributes of an HDF5 file that describe the model."""
        return model_attributes(self._pretrained)

    @property
    def _states(self) -> State | None:
        """Set to None to reset the state, as in AllenNLP."""
        return self._state

    @_states.setter
    def _states(self, state: State | None) -> None:
        self.reset_states()
        if state is not None:
            self._state = state

    def get_output_dim(self) -> int:
        return self.bilm.config.output_size

    def reset_states(self) -> None:
        """Start fresh: the next sentences do not continue from earlier ones."""
        self._state = State.zeros(self.bilm.config, 0, like=next(self.bilm.parameters()))

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> Activations:
        """All layers of character ids, (sentences, words, 50), or of cached words by index."""
        device = self.bilm.device
        if word_inputs is not None and self._all_cached(word_inputs):
            types, words = self._cached_types(), self._cached_indices(word_inputs.to(device))
        else:
            if inputs.shape[-1] != self.max_characters:
                raise ConfigurationError(
                    f"words have {inputs.shape[-1]} character ids, expected {self.max_characters}; "
                    f"make them with batch_to_ids(batch, max_characters={self.max_characters})"
                )
            batch = Batch.from_ids(inputs.to(device), self._indexer)
            types, words = self.bilm.encode(batch.chars), batch.words
        layers, state = self.bilm.run_lstms(types, words, self._state_of(len(words)))
        if self.stateful:
            rows = torch.arange(len(words), device=device)
            self._state = self._state.with_rows(rows, state.detach())
        return {"activations": [*layers], "mask": words > 0}

    def _all_cached(self, word_inputs: Tensor) -> bool:
        """Whether all words are cached; else, as in AllenNLP, the character ids are used."""
        return bool(self._words) and bool((word_inputs + 2 < len(self._words)).all())

    @torch.no_grad()
    def _cached_types(self) -> Tensor:  # -> (words + 3, dim)
        """Vectors of padding, <S>, </S> and the cached words, computed again if weights change."""
        if self._cached_vectors is None or self._cache_version != self.bilm.version():
            rows = torch.from_numpy(self._indexer.encode(self._words)[0]).to(self.bilm.device)
            self._cached_vectors = self.bilm.encode(F.pad(rows, (0, 0, 1, 0)))
            self._cache_version = self.bilm.version()
        return self._cached_vectors

    def _state_of(self, num_sentences: int) -> State:
        like = next(self.bilm.parameters())
        if not self.stateful:
            return State.zeros(self.bilm.config, num_sentences, like=like)
        self._state = self._state.to(like)
        missing = num_sentences - self._state.num_sentences
        if missing > 0:
            fresh = State.zeros(self.bilm.config, missing, like=self._state.hidden)
            self._state = self._state.followed_by(fresh)
        return self._state.rows(torch.arange(num_sentences, device=self.bilm.device))

    def _cached_indices(self, word_inputs: Tensor) -> Tensor:
        """The rows of words and their boundaries in the cached vectors; word 0 is padding."""
        words = F.pad(torch.where(word_inputs > 0, word_inputs + 3, 0), (1, 1))
        words[:, 0] = 1
        ends = (word_inputs > 0).sum(1) + 1
        words[torch.arange(len(words), device=words.device), ends] = 2
        return words


def _rename_weights(module: ElmoBiLm, weights: dict[str, Tensor], prefix: str, *_: object) -> None:
    _translate_checkpoint(weights, prefix, module.bilm.config)


class ScalarMix(nn.Module):
    """A weighted sum of tensors, with AllenNLP's names of the parameters."""

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        initial = initial_scalar_parameters
        if initial is None:
            initial = [0.0] * mixture_size
        if len(initial) != mixture_size:
            raise ConfigurationError(
                f"Length of initial_scalar_parameters {initial} differs "
                f"from mixture_size {mixture_size}"
            )
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(value)]), requires_grad=trainable) for value in initial
        )
        self.gamma = nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """The mix of tensors of one shape; layer norm needs the mask of words."""
        if len(tensors) != self.mixture_size:
            raise ConfigurationError(
                f"{len(tensors)} tensors were passed, but the module was initialized to "
                f"mix {self.mixture_size} tensors."
            )
        if self.do_layer_norm and mask is None:
            raise ConfigurationError("do_layer_norm needs a mask, and none was passed")
        weights = torch.cat([*self.scalar_parameters])
        layers = torch.stack([*tensors])
        if self.do_layer_norm:
            return mix_layers(layers, weights, self.gamma, "allennlp", mask)
        return mix_layers(layers, weights, self.gamma)


def batch_to_ids(
    batch: Sequence[Sequence[str]], *, max_characters: int = _MAX_CHARACTERS
) -> Tensor:
    """Character ids of sentences without boundaries, (sentences, words, max_characters).

    0 is padding. As in AllenNLP, a string is a sentence of characters.
    """
    sentences = [check_words(list(s), f"sentence {number}")[0] for number, s in enumerate(batch)]
    ids = np.zeros((len(sentences), max(map(len, sentences), default=0), max_characters), np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)], _ = CharacterIndexer(max_characters).encode(sentence)
    return torch.from_numpy(ids)


class ELMoCharacterMapper:
    """A word as 50 character ids; a word of `tokens_to_add` has a single id of its own."""

    max_word_length = _MAX_CHARACTERS
    beginning_of_sentence_character = 256
    end_of_sentence_character = 257
    beginning_of_word_character = 258
    end_of_word_character = 259
    padding_character = 260
    bos_token = "<S>"
    eos_token = "</S>"

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoCharacterMapper) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def convert_word_to_char_ids(self, word: str) -> list[int]:
        """The ids of a word; a byte b has the id b + 1."""
        rows, _ = _INDEXER.encode(["x" if word in self.tokens_to_add else word])
        ids: list[int] = rows[0].tolist()
        if word in self.tokens_to_add:
            ids[1] = self.tokens_to_add[word] + 1
        return ids


class ELMoTokenCharactersIndexer:
    """Turns tokens (strings, or objects with a `text`) into lists of character ids."""

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._mapper = ELMoCharacterMapper(tokens_to_add)

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        return {"elmo_tokens": []}

    def tokens_to_indices(
        self, tokens: Iterable[object], vocabulary: object = None, index_name: str = "elmo_tokens"
    ) -> dict[str, list[list[int]]]:
        """The ids of each token; the vocabulary is ignored."""
        ids = []
        for token in tokens:
            text = getattr(token, "text", token)
            if not isinstance(text, str):
                raise ConfigurationError(f"the text of a token is {text!r}, expected a string")
            ids.append(self._mapper.convert_word_to_char_ids(text))
        return {index_name: ids}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, list[list[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The ids as tensors, padded with zeros to these numbers of words."""
        padded = {}
        for name, rows in tokens.items():
            ids = torch.zeros(padding_lengths[name], _MAX_CHARACTERS, dtype=torch.long)
            rows = rows[: padding_lengths[name]]  # noqa: PLW2901
            if rows:
                ids[: len(rows)] = torch.tensor(rows)
            padded[name] = ids
        return padded


def _translate_checkpoint(weights: dict[str, Tensor], prefix: str, config: BiLMConfig) -> None:
    """Rename and rearrange AllenNLP's weights of a biLM under a prefix, in place."""
    encoder, lstm = f"{prefix}_token_embedder.", f"{prefix}_elmo_lstm."
    ours = f"{prefix}bilm."
    characters = config.characters
    if f"{encoder}_char_embedding_weights" not in weights or characters is None:
        return
    translated = {"encoder.embedding.weight": weights.pop(f"{encoder}_char_embedding_weights")}
    for number in range(len(characters.filters)):
        name = f"{encoder}char_conv_{number}."
        kernel = weights.pop(f"{name}weight")  # (filters, embedding_size, width)
        translated[f"encoder.filters.{number}.weight"] = kernel.transpose(1, 2).flatten(1)
        translated[f"encoder.filters.{number}.bias"] = weights.pop(f"{name}bias")
    for number in range(characters.highway_layers):
        for kind in ("weight", "bias"):
            # AllenNLP's gate passes the vector itself, ours the transformed one.
            transform, gate = weights.pop(f"{encoder}_highways._layers.{number}.{kind}").chunk(2)
            translated[f"encoder.highways.{number}.transform.{kind}"] = transform
            translated[f"encoder.highways.{number}.gate.{kind}"] = -gate
    weights.pop(f"{prefix}_word_embedding.weight", None)  # of cached words: computed again
    for kind in ("weight", "bias"):
        translated[f"encoder.projection.{kind}"] = weights.pop(f"{encoder}_projection.{kind}")
    for number, direction in enumerate(config.directions):
        for layer in range(config.num_layers):
            name, own = f"{lstm}{direction}_layer_{layer}.", f"lstms.{number}.layers.{layer}."
            for theirs, kind in (("input", "input"), ("state", "recurrent")):
                gates = weights.pop(f"{name}{theirs}_linearity.weight")
                translated[f"{own}{kind}_weight"] = _our_gates(gates)
            # AllenNLP keeps the forget gate's bias with its 1.0 added.
            bias = _our_gates(weights.pop(f"{name}state_linearity.bias"))
            bias[config.cell_size : 2 * config.cell_size] -= config.forget_bias
            translated[f"{own}bias"] = bias
            translated[f"{own}projection"] = weights.pop(f"{name}state_projection.weight")
    weights.update({ours + name: tensor for name, tensor in translated.items()})


def _our_gates(gates: Tensor) -> Tensor:
    """AllenNLP's gates are input, forget, candidate, output; ours end in the candidate."""
    blocks = gates.chunk(4)
    return torch.cat([blocks[number] for number in (0, 1, 3, 2)])


if __name__ == "__main__":
    main()
