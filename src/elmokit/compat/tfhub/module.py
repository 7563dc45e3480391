"""TF-Hub's ELMo module: its signatures and outputs, on PyTorch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from elmokit import formats
from elmokit.batching import Batch, check_iterable, describe
from elmokit.compat import decoded
from elmokit.errors import InputError
from elmokit.formats.pretrained import StoredMix
from elmokit.model.scalar_mix import ScalarMix
from elmokit.tokenizers import split_on_whitespace

Signature = Literal["default", "tokens"]
Tokens = Mapping[str, Sequence[Sequence[str]] | Sequence[int]]


class Module(nn.Module):
    """TF-Hub's google/elmo, `hub.Module`: each call starts fresh and computes at once.

    `spec` is any model that `elmokit.load` takes, or a module's address, folder or archive, whose
    own mix is taken over; `weights` is a second file. If `trainable`, four scalars are trained:
    three `aggregation.weights` and `aggregation.scale`. `name` and `tags` have no effect.

    Example:
        elmo = Module("english", trainable=True)
        elmo(["the cat is on the mat"], signature="default", as_dict=True)["elmo"]
    """

    def __init__(
        self,
        spec: str | Path,
        trainable: bool = False,
        name: str = "module",
        tags: object = None,
        *,
        weights: str | Path | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(trainable, bool):
            raise InputError(
                f"trainable is {trainable!r}, expected True or False; a second file of a model is "
                "given as weights="
            )
        self._pretrained = formats.load(spec, weights)
        self.bilm = self._pretrained.model.bilm.requires_grad_(False)
        mix = self._pretrained.mix or ScalarMix(self.bilm.config.num_layers + 1)
        self.aggregation = StoredMix.of(mix).mix(trainable=trainable)

    def forward(
        self,
        inputs: Sequence[str] | Tokens,
        signature: Signature | None = None,
        as_dict: bool | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """The output called default, or all outputs by name, of strings or of tokens.

        Strings are split at spaces; for `tokens`, inputs has the keys tokens, rows of one length,
        padded with "", and sequence_len.

        word_emb is (sentences, words, dim); lstm_outputs1, lstm_outputs2 and elmo, their mix, are
        (sentences, words, 2 * dim); default, (sentences, 2 * dim), is the mean of elmo over the
        words of a sentence. All are zero at padding.
        """
        outputs = self._outputs(inputs, signature or "default")
        return outputs if as_dict else outputs["default"]

    def _outputs(self, inputs: Sequence[str] | Tokens, signature: str) -> dict[str, Tensor]:
        if signature == "tokens":
            sentences, num_steps = _sentences(inputs)
        elif signature == "default":
            sentences = [split_on_whitespace(text) for text in _texts(inputs)]
            num_steps = max(map(len, sentences), default=0)
        else:
            raise InputError(f"signature is {signature!r}, expected 'default' or 'tokens'")
        batch = Batch.from_sentences(sentences, self._pretrained.indexer).to(self.bilm.device)
        with torch.no_grad():
            layers, _ = self.bilm(batch)
        mask = batch.words[:, 2:] > 0
        layers = layers[:, :, 1:-1] * mask[..., None]
        padding = num_steps - mask.shape[1]
        layers = nn.functional.pad(layers, (0, 0, 0, padding))
        elmo = self.aggregation(layers, mask)
        lengths = mask.sum(1, keepdim=True).clamp(min=1)
        return {
            "word_emb": layers[0, ..., : self.bilm.config.projection_size],
            **{f"lstm_outputs{number}": layers[number] for number in range(1, len(layers))},
            "elmo": elmo,
            "default": elmo.sum(1) / lengths,
        }


class LoadedModule:
    """What `hub.load` returns: a module whose `signatures` are functions with named outputs."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.signatures = {"default": self._default, "tokens": self._tokens}

    def _default(self, strings: Sequence[str]) -> dict[str, Tensor]:
        return self._outputs(strings, "default")

    def _tokens(
        self, tokens: Sequence[Sequence[str]], sequence_len: Sequence[int]
    ) -> dict[str, Tensor]:
        return self._outputs({"tokens": tokens, "sequence_len": sequence_len}, "tokens")

    def _outputs(self, inputs: Sequence[str] | Tokens, signature: Signature) -> dict[str, Tensor]:
        outputs: dict[str, Tensor] = self.module(inputs, signature, as_dict=True)
        return outputs


def load(handle: str | Path, tags: object = None, options: object = None) -> LoadedModule:
    """TF-Hub's `hub.load`; `tags` and `options` have no effect.

    Example:
        load("english").signatures["default"](["the cat is on the mat"])["elmo"]
    """
    return LoadedModule(Module(handle))


def _texts(inputs: Sequence[str] | Tokens) -> list[str]:
    """The strings of the default signature."""
    if isinstance(inputs, str | bytes) or getattr(inputs, "shape", None) == ():
        raise TypeError("inputs is one string, expected a list of strings")
    if isinstance(inputs, Mapping):
        raise InputError(
            'the default signature takes a list of strings; signature="tokens" a dictionary'
        )
    texts: list[str] = [*map(decoded, check_iterable(inputs, "inputs", "a list of strings"))]
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} of inputs is {describe(text)}, expected a string")
    return texts


def _sentences(inputs: object) -> tuple[list[list[str]], int]:
    """The tokens of each sentence without padding, and the padded length."""
    if not isinstance(inputs, Mapping) or not {"tokens", "sequence_len"} <= set(inputs):
        raise InputError(
            "the tokens signature takes a dictionary with tokens and sequence_len; give both"
        )
    for number, row in enumerate(inputs["tokens"]):
        if isinstance(row, str | bytes):
            raise InputError(f"row {number} of tokens is one string ({row!r}), expected its tokens")
    rows = [[decoded(token) for token in row] for row in inputs["tokens"]]
    try:
        lengths = [int(length) for length in inputs["sequence_len"]]
    except (TypeError, ValueError):
        raise InputError(
            f"sequence_len is {inputs['sequence_len']!r}, expected a number for each row of tokens"
        ) from None
    if len(rows) != len(lengths):
        raise InputError(f"{len(rows)} rows of tokens, but {len(lengths)} lengths in sequence_len")
    num_steps = max(map(len, rows), default=0)
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if not 0 <= length <= len(row):
            raise InputError(
                f"sequence_len of sentence {number} is {length}, but it has {len(row)} tokens"
            )
    return [row[:length] for row, length in zip(rows, lengths, strict=True)], num_steps
