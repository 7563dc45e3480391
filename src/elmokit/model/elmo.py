"""Elmo: a frozen or trainable biLM with scalar mixes, for use in a supervised model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.batching import Batch
from elmokit.character_ids import CharacterIndexer
from elmokit.errors import ConfigError, InputError, NumericError
from elmokit.model.bilm import BiLM, State
from elmokit.model.lstm import LSTMStack
from elmokit.model.scalar_mix import Normalization, ScalarMix


@dataclass(frozen=True)
class Mixed:
    """The output of Elmo: a tensor for each mix, the mask of words, and the state after."""

    vectors: tuple[Tensor, ...]  # each (..., words, output_size)
    mask: Tensor  # (..., words)
    state: State


class Elmo(nn.Module):
    """Scalar mixes of a biLM's layers, all from one run of the biLM.

    Text is a Batch, a list of sentences (lists of words), or character ids without boundaries,
    (..., words, max_characters), as from `CharacterIndexer`. By default only the mixes are
    trained; the biLM is frozen and keeps no activations. `train_lstms` and `train_char_cnn` set
    the biLM's own requires_grad. `layers` are the layers to mix, all if None.

    Example:
        elmo = elmokit.Elmo(model.bilm, mixes=2, dropout=0.5)
        mixed = elmo([["a", "short", "sentence"], ["words"]])
        at_input, at_output = mixed.vectors  # (sentences, words, dim) each
    """

    def __init__(
        self,
        bilm: BiLM,
        *,
        mixes: int = 1,
        dropout: float = 0.5,
        layers: Sequence[int] | None = None,
        normalize: Normalization | None = None,
        l2: float = 0.0,
        weights: Sequence[float] | None = None,
        train_mix: bool = True,
        train_lstms: bool = False,
        train_char_cnn: bool = False,
        boundaries: bool = False,
    ) -> None:
        super().__init__()
        if mixes < 1:
            raise ConfigError(f"mixes is {mixes}, expected 1 or more")
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout is {dropout}, expected 0 to below 1")
        highest = bilm.config.num_layers
        self.layers = tuple(range(highest + 1) if layers is None else layers)
        if not self.layers or not all(0 <= layer <= highest for layer in self.layers):
            raise ConfigError(f"layers is {layers!r}, expected one or more of 0 to {highest}")
        self.bilm = bilm
        self.mixes = nn.ModuleList(
            ScalarMix(
                len(self.layers), weights=weights, normalize=normalize, l2=l2, trainable=train_mix
            )
            for _ in range(mixes)
        )
        self.dropout = dropout
        self.boundaries = boundaries
        self._normalizes_boundaries = normalize == "allennlp"
        bilm.encoder.requires_grad_(train_char_cnn)
        bilm.lstms.requires_grad_(False)
        for stack in bilm.lstms:
            assert isinstance(stack, LSTMStack)
            # Layers above the highest one to mix are never run.
            stack.layers[: max(self.layers)].requires_grad_(train_lstms)

    def forward(
        self, text: Batch | Tensor | Sequence[Sequence[str]], state: State | None = None
    ) -> Mixed:
        """The mixes of each sentence, 0 at padding; without a state, each starts fresh."""
        leading_shape = text.shape[:-2] if isinstance(text, Tensor) else None
        batch = self._batch(text)
        layers, state = self._run_bilm(batch, state)
        self._check_finite(layers.transpose(0, 1), batch)
        inner = batch.words[:, 2:] > 0  # a word is where the next token is not padding
        mask = batch.mask if self.boundaries else inner

        vectors = []
        for mix in self.mixes:
            if self.boundaries or self._normalizes_boundaries:
                mixed = mix(layers, batch.mask)
                mixed = mixed if self.boundaries else mixed[:, 1:-1]
            else:
                mixed = mix(layers[:, :, 1:-1], inner)
            mixed = mixed * mask[..., None]
            self._check_finite(mixed, batch)
            vectors.append(F.dropout(mixed, self.dropout, self.training))
        if leading_shape is not None:
            vectors = [mixed.view(*leading_shape, *mixed.shape[1:]) for mixed in vectors]
            mask = mask.view(*leading_shape, mask.shape[1])
        return Mixed(tuple(vectors), mask, state)

    def penalty(self) -> Tensor:
        """λ‖w‖² of all mixes, to be added to the loss."""
        return torch.stack([mix.penalty() for mix in self._mixes()]).sum()

    def layer_weights(self) -> list[list[float]]:
        """The softmax of each mix's weights."""
        return [mix.layer_weights.tolist() for mix in self._mixes()]

    def _run_bilm(self, batch: Batch, state: State | None) -> tuple[Tensor, State]:
        """The layers to mix; frozen parts run without gradients."""
        grad = torch.is_grad_enabled()
        with torch.set_grad_enabled(grad and _is_trained(self.bilm.encoder)):
            types = self.bilm.encode(batch.chars)
        with torch.set_grad_enabled(grad and _is_trained(self.bilm)):
            layers, state = self.bilm.run_lstms(types, batch.words, state, layers=self.layers)
            return self.bilm.align(layers, self.layers), state

    def _batch(self, text: Batch | Tensor | Sequence[Sequence[str]]) -> Batch:
        device = self.bilm.device
        if isinstance(text, Batch):
            return text.to(device)
        characters = self.bilm.config.characters
        if characters is None:
            raise InputError(
                "this is a model with a vocabulary or lexicons, which are needed to look words up; "
                "give a Batch, made by Batch.from_sentences with the indexer of the loaded model"
            )
        indexer = CharacterIndexer(characters.max_characters)
        if not isinstance(text, Tensor):
            return Batch.from_sentences(text, indexer).to(device)
        if text.dim() < 3 or text.shape[-1] != characters.max_characters:
            raise InputError(
                f"character ids have the shape {tuple(text.shape)}, "
                f"expected (sentences, words, {characters.max_characters})"
            )
        return Batch.from_ids(text.flatten(0, -3).to(device), indexer)

    def _check_finite(self, vectors: Tensor, batch: Batch) -> None:
        """Raise NumericError if `vectors`, (sentences, ...), hold a NaN or an infinity."""
        if bool(torch.isfinite(vectors).all()):
            return
        sentence = int((~torch.isfinite(vectors)).flatten(1).any(1).nonzero()[0])
        words = ""
        if self.bilm.config.characters is not None:
            decode = CharacterIndexer(batch.chars.shape[1]).decode
            types = batch.words[sentence, 1:].tolist()
            decoded = [decode(batch.chars[index].cpu()) for index in types if index > 0][:-1]
            words = " (" + " ".join(decoded)[:200] + ")"
        raise NumericError(
            f"sentence {sentence}{words} has a vector that is not finite: "
            "the weights hold a NaN or an infinity, or training has diverged "
            "(try a lower learning rate)"
        )

    def _mixes(self) -> list[ScalarMix]:
        return [mix for mix in self.mixes if isinstance(mix, ScalarMix)]


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())
