"""AllenNLP's modules: Elmo, its biLM with the two parts of it, and the scalar mix."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit import formats
from elmokit.character_ids import CharacterIndexer
from elmokit.compat.allennlp.ids_and_masks import (
    ConfigurationError,
    add_sentence_boundary_token_ids,
    get_lengths_from_binary_sequence_mask,
    get_mask_from_sequence_lengths,
    remove_sentence_boundaries,
)
from elmokit.errors import InputError
from elmokit.file_embedding import model_attributes
from elmokit.formats.bilm_tf import read_lstms
from elmokit.formats.manylangs import cnn_parameters, lstm_parameters
from elmokit.model.bilm import BiLM, State
from elmokit.model.lstm import LSTMStack, ProjectedLSTM
from elmokit.model.scalar_mix import mix_layers
from elmokit.model_config import BiLMConfig
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END

logger = logging.getLogger(__name__)

Part = TypeVar("Part", "ElmoCharacterEncoder", "ElmoLstm")

# The addresses in old programs.
_MODELS = "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
DEFAULT_OPTIONS_FILE = _MODELS + "elmo_2x4096_512_2048cnn_2xhighway_options.json"
DEFAULT_WEIGHT_FILE = _MODELS + "elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5"


class Representations(TypedDict):
    """The output of AllenNLP's Elmo."""

    elmo_representations: list[Tensor]
    mask: Tensor


class TokenEmbedding(TypedDict):
    """The output of AllenNLP's character encoder: word vectors with boundaries, and their mask."""

    token_embedding: Tensor
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
        self._scalar_mixes = [
            ScalarMix(
                module.num_layers,  # type: ignore[arg-type]
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            for _ in range(num_output_representations)
        ]
        for number, mix in enumerate(self._scalar_mixes):
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
        for number in range(len(self._scalar_mixes)):
            mask = output["mask"]
            mix = self.get_submodule(f"scalar_mix_{number}")
            mixed = mix(output["activations"], mask)
            if not self._keep_sentence_boundaries:
                mixed, mask = remove_sentence_boundaries(mixed, mask)
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
        self._pretrained = formats.load(options_file, weight_file)
        self.bilm.requires_grad_(requires_grad)
        self.num_layers = self.bilm.config.num_layers + 1
        self._token_embedder = _part_of(self.bilm, ElmoCharacterEncoder)
        self._elmo_lstm = _part_of(self.bilm, ElmoLstm)
        self._elmo_lstm.stateful = stateful
        self._words: list[str] = []
        if vocab_to_cache and requires_grad:
            logger.warning("ELMo is fine-tuned, so words are not cached: their vectors change.")
        elif vocab_to_cache:
            self._words = ["<S>", "</S>", *vocab_to_cache]
        self._cached_vectors: Tensor | None = None
        self._cache_version: list[tuple[object, ...]] = []
        self.register_load_state_dict_pre_hook(_rename_bilm)  # type: ignore[no-untyped-call]

    @property
    def bilm(self) -> BiLM:
        """elmokit's biLM; its encoder and LSTMs are those of AllenNLP's two parts."""
        return self._pretrained.model.bilm

    @property
    def max_characters(self) -> int:
        """How many character ids a word of this model has."""
        return self._token_embedder.characters.max_characters

    def describe(self) -> dict[str, str]:
        """The attributes of an HDF5 file that describe the model."""
        return model_attributes(self._pretrained)

    def get_output_dim(self) -> int:
        return self.bilm.config.output_size

    def reset_states(self) -> None:
        """Start fresh: the next sentences do not continue from earlier ones."""
        self._elmo_lstm.reset_states()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> Activations:
        """All layers of character ids, (sentences, words, 50), or of cached words by index."""
        device = self.bilm.device
        if word_inputs is not None and self._all_cached(word_inputs):
            words = self._cached_indices(word_inputs.to(device))
            embedding, mask = self._cached_types()[words], words > 0
        else:
            output = self._token_embedder(inputs.to(device))
            embedding, mask = output["token_embedding"], output["mask"]
        layers = self._elmo_lstm(embedding, mask)
        context_free = torch.cat([embedding] * len(self.bilm.config.directions), -1)
        all_layers = torch.stack([context_free * mask[..., None], *layers])
        aligned = self.bilm.align(all_layers, range(len(all_layers)))
        return {"activations": [*aligned], "mask": mask}

    def _all_cached(self, word_inputs: Tensor) -> bool:
        """Whether all words are cached; else, as in AllenNLP, the character ids are used."""
        return bool(self._words) and bool((word_inputs + 2 < len(self._words)).all())

    @torch.no_grad()
    def _cached_types(self) -> Tensor:  # -> (words + 3, dim)
        """Vectors of padding, <S>, </S> and the cached words, computed again if weights change."""
        if self._cached_vectors is None or self._cache_version != self.bilm.version():
            rows, _ = CharacterIndexer(self.max_characters).encode(self._words)
            chars = F.pad(torch.from_numpy(rows).to(self.bilm.device), (0, 0, 1, 0))
            self._cached_vectors = self.bilm.encode(chars)
            self._cache_version = self.bilm.version()
        return self._cached_vectors

    def _cached_indices(self, word_inputs: Tensor) -> Tensor:
        """The rows of words and their boundaries in the cached vectors; word 0 is padding."""
        is_word = word_inputs > 0
        rows = torch.where(is_word, word_inputs + 3, 0)
        return add_sentence_boundary_token_ids(rows, is_word, 1, 2)[0]


class ElmoCharacterEncoder(nn.Module):
    """AllenNLP's character encoder: the context-free vectors of words and of added boundaries."""

    def __init__(
        self, options_file: str | Path, weight_file: str | Path, requires_grad: bool = False
    ) -> None:
        super().__init__()
        self._take(formats.load(options_file, weight_file).model.bilm)
        self.requires_grad_(requires_grad)

    def _take(self, bilm: BiLM) -> None:
        if bilm.config.characters is None:
            raise ConfigurationError(
                "this is a word-level model, which has no character ids; use elmokit.load"
            )
        self.characters = bilm.config.characters
        self.encoder = bilm.encoder
        self.output_dim = bilm.config.projection_size
        self.register_load_state_dict_pre_hook(_rename_encoder)  # type: ignore[no-untyped-call]

    def get_output_dim(self) -> int:
        return self.output_dim

    def forward(self, inputs: Tensor) -> TokenEmbedding:
        """The vectors of character ids, (sentences, words, 50), with two boundaries each.

        As in AllenNLP, those of padding are not zero.
        """
        max_characters, limit = self.characters.max_characters, self.characters.num_characters
        if inputs.shape[-1] != max_characters:
            raise ConfigurationError(
                f"words have {inputs.shape[-1]} character ids, expected {max_characters}; "
                f"make them with batch_to_ids(batch, max_characters={max_characters})"
            )
        if inputs.numel() and not 0 <= int(inputs.min()) <= int(inputs.max()) < limit:
            raise InputError(
                f"ids from {int(inputs.min())} to {int(inputs.max())}, expected 0 to {limit - 1}"
            )
        boundaries, _ = CharacterIndexer(max_characters).encode([SENTENCE_BEGIN, SENTENCE_END])
        ids, mask = add_sentence_boundary_token_ids(inputs, (inputs > 0).any(-1), *boundaries)
        types, rows = ids.flatten(0, 1).unique(dim=0, return_inverse=True)
        with torch.autocast(ids.device.type, enabled=False):
            vectors = self.encoder(types)
        return {"token_embedding": vectors[rows].view(*mask.shape, self.output_dim), "mask": mask}


class ElmoLstm(nn.Module):
    """AllenNLP's LSTMs of both directions; row k continues from row k of the last call.

    `_states` are None, or the hidden states, (layers, sentences, 2 * hidden_size), and the cell
    states, (layers, sentences, 2 * cell_size), after the last call. They may be assigned.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell_size: int,
        num_layers: int,
        requires_grad: bool = False,
        recurrent_dropout_probability: float = 0.0,
        memory_cell_clip_value: float | None = None,
        state_projection_clip_value: float | None = None,
    ) -> None:
        super().__init__()
        if recurrent_dropout_probability:
            raise ConfigurationError(
                f"recurrent_dropout_probability is {recurrent_dropout_probability}, expected 0: "
                "elmokit has no such dropout; train a biLM with `elmo pretrain`"
            )
        config = BiLMConfig(
            projection_size=hidden_size,
            cell_size=cell_size,
            num_layers=num_layers,
            characters=None,
            vocabulary_size=1,
            cell_clip=memory_cell_clip_value or None,
            projection_clip=state_projection_clip_value or None,
        )
        bilm = BiLM(config)
        for stack in bilm.lstms:
            weight = nn.init.xavier_uniform_(torch.empty(4 * cell_size, input_size))
            _first_layer(stack).input_weight = nn.Parameter(weight)
        self._take(bilm)
        self.requires_grad = requires_grad

    def _take(self, bilm: BiLM) -> None:
        self.bilm = BiLM.__new__(BiLM)  # only its LSTMs are run
        nn.Module.__init__(self.bilm)
        self.bilm.config, self.bilm.lstms = bilm.config, bilm.lstms
        self.input_size = _first_layer(bilm.lstms[0]).input_weight.shape[1]
        self.hidden_size, self.cell_size = bilm.config.projection_size, bilm.config.cell_size
        self.num_layers = bilm.config.num_layers
        self.requires_grad = next(bilm.lstms.parameters()).requires_grad
        self.stateful = True
        self._states: Sequence[Tensor] | None = None
        self.register_load_state_dict_pre_hook(_rename_lstms)  # type: ignore[no-untyped-call]

    def load_weights(self, weight_file: str | Path) -> None:
        """Take the LSTMs of a weights file; they are trained if `requires_grad` is set."""
        self.bilm.load_state_dict(
            read_lstms(formats.locate(weight_file, file_of_pair=True).path, self.bilm.config)
        )
        self.requires_grad_(self.requires_grad)

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Forget the states, or those of the rows where the mask, (sentences,), is True."""
        if mask is None or self._states is None:
            self._states = None
            return
        if len(mask) != self._states[0].shape[1]:
            raise InputError(
                f"the mask has {len(mask)} rows, expected {self._states[0].shape[1]}, one for each "
                "row of the states"
            )
        self._states = tuple(state.masked_fill(mask.bool()[:, None], 0) for state in self._states)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """The layers, (layers, sentences, steps, 2 * hidden_size), of vectors; 0 at padding.

        As in AllenNLP, as many steps of a sentence are read as its mask has words, from the first.
        """
        num_sentences, num_steps = mask.shape
        lengths = get_lengths_from_binary_sequence_mask(mask)
        numbers = torch.arange(1, mask.numel() + 1, device=mask.device).view_as(mask)
        words = torch.where(get_mask_from_sequence_lengths(lengths, num_steps), numbers, 0)
        types = F.pad(inputs.flatten(0, 1), (0, 0, 1, 0))
        layers, state = self.bilm.run_lstms(
            types,
            words,
            self._initial_state(num_sentences, like=types),
            layers=range(1, self.num_layers + 1),
        )
        if self.stateful:
            self._carry(state.detach())
        return layers

    def _initial_state(self, num_sentences: int, like: Tensor) -> State:
        state = State.zeros(self.bilm.config, num_sentences, like=like)
        if not self.stateful or self._states is None:
            return state
        carried = self._carried(like)
        rows = torch.arange(min(num_sentences, carried.num_sentences), device=like.device)
        return state.with_rows(rows, carried.rows(rows))

    def _carry(self, state: State) -> None:
        """Keep the states after a call, and those of the rows that it did not have."""
        if self._states is not None:
            carried = self._carried(state.hidden)
            rows = torch.arange(carried.num_sentences, device=state.hidden.device)
            state = state.followed_by(carried.rows(rows[state.num_sentences :]))
        self._states = tuple(
            values.permute(1, 2, 0, 3).flatten(2) for values in (state.hidden, state.cell)
        )

    def _carried(self, like: Tensor) -> State:
        """The states with an axis of directions, with the device and type of a tensor."""
        assert self._states is not None
        hidden, cell = (
            values.unflatten(2, (len(self.bilm.config.directions), -1)).permute(2, 0, 1, 3)
            for values in self._states
        )
        return State(hidden, cell).to(like)


def _part_of(bilm: BiLM, kind: type[Part]) -> Part:
    """A part of a biLM that is loaded already; they share their weights."""
    part = kind.__new__(kind)
    nn.Module.__init__(part)
    part._take(bilm)
    return part


def _first_layer(stack: nn.Module) -> ProjectedLSTM:
    assert isinstance(stack, LSTMStack)
    layer = stack.layers[0]
    assert isinstance(layer, ProjectedLSTM)
    return layer


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
        initial = [0.0] * mixture_size if initial is None else initial
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
        norm = ("allennlp", mask) if self.do_layer_norm else ()
        return mix_layers(torch.stack([*tensors]), weights, self.gamma, *norm)


def _rename_bilm(module: ElmoBiLm, weights: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Rename the weights that earlier versions of elmokit saved, in place."""
    new_prefix = {
        f"{prefix}bilm.encoder.": f"{prefix}_token_embedder.encoder.",
        f"{prefix}bilm.lstms.": f"{prefix}_elmo_lstm.bilm.lstms.",
    }
    for old, new in new_prefix.items():
        for name in [name for name in weights if name.startswith(old)]:
            weights[new + name.removeprefix(old)] = weights.pop(name)
    weights.pop(f"{prefix}_word_embedding.weight", None)  # of cached words: computed again


def _rename_encoder(
    module: ElmoCharacterEncoder, weights: dict[str, Tensor], prefix: str, *_: object
) -> None:
    """Rename and rearrange AllenNLP's weights of a character encoder, in place."""
    if f"{prefix}_char_embedding_weights" not in weights:
        return
    ours = f"{prefix}encoder."
    weights[f"{ours}embedding.weight"] = weights.pop(f"{prefix}_char_embedding_weights")
    for kind in ("weight", "bias"):
        weights[f"{ours}projection.{kind}"] = weights.pop(f"{prefix}_projection.{kind}")

    def take(name: str, *_: int) -> Tensor:
        return weights.pop(prefix + name)

    parameters = cnn_parameters(take, module.characters, "char_conv_", "_highways")
    weights |= {ours + name: tensor for name, tensor in parameters.items()}


def _rename_lstms(module: ElmoLstm, weights: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Rename and rearrange AllenNLP's weights of LSTMs, in place."""
    if f"{prefix}forward_layer_0.input_linearity.weight" not in weights:
        return

    def take(name: str, *_: int) -> Tensor:
        return weights.pop(prefix + name)

    parameters = lstm_parameters(take, module.bilm.config)
    weights |= {f"{prefix}bilm.{name}": tensor for name, tensor in parameters.items()}
