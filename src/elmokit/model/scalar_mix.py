"""The scalar mix: a softmax-weighted sum of layers, and a scale."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError

Normalization = Literal["bilm-tf", "allennlp", "token"]

_EPSILON: dict[str, float] = {"bilm-tf": 1e-12, "allennlp": 1e-13, "token": 1e-5}


class ScalarMix(nn.Module):
    """A weighted sum of layers, times a scale: the ELMo equation.

    `weights` are those before the softmax; `l2` is the λ of the penalty λ‖w‖² on them. With
    `normalize`, layers are normalised first: with `token`, each word's vector gets mean 0 and
    variance 1. With `bilm-tf` and `allennlp`, mean and variance are those of all words and
    dimensions of the batch, as in these packages, so a sentence's vectors depend on the others in
    its batch. The two differ in epsilon, and in that AllenNLP counted the sentence boundaries too,
    which the Elmo module does.

    Example:
        mix = elmokit.ScalarMix(3, weights=[0.0, 1.0, 1.0])
        model.embed([["an", "apple"]], layers=mix)[0].shape  # (1, words, dim)
    """

    def __init__(
        self,
        layers: int,
        *,
        weights: Sequence[float] | None = None,
        scale: float = 1.0,
        normalize: Normalization | None = None,
        l2: float = 0.0,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        if weights is not None and len(weights) != layers:
            raise ConfigError(f"{len(weights)} weights for {layers} layers, expected one for each")
        if normalize is not None and normalize not in _EPSILON:
            raise ConfigError(
                f"normalize is {normalize!r}, expected one of {sorted(_EPSILON)}, or None"
            )
        if l2 < 0:
            raise ConfigError(f"l2 is {l2}, expected 0 or more")
        initial = torch.zeros(layers) if weights is None else torch.tensor(weights).float()
        self.weights = nn.Parameter(initial, requires_grad=trainable)
        self.scale = nn.Parameter(torch.tensor(float(scale)), requires_grad=trainable)
        self.normalize = normalize
        self.l2 = l2

    def forward(self, layers: Tensor, mask: Tensor) -> Tensor:
        """The mix, (..., dim), of layers (layers, ..., dim); `mask` is True for words."""
        if len(layers) != len(self.weights):
            raise ConfigError(
                f"{len(layers)} layers were given to a mix of {len(self.weights)}; give as many"
            )
        return mix_layers(layers, self.weights, self.scale, self.normalize, mask)

    @property
    def layer_weights(self) -> Tensor:  # (layers,)
        """The softmax of the weights."""
        return torch.softmax(self.weights, 0)

    def penalty(self) -> Tensor:
        """λ‖w‖², to be added to the loss; the scale is never penalised."""
        return self.l2 * self.weights.square().sum()


def mix_layers(
    layers: Tensor,
    weights: Tensor,
    scale: Tensor,
    normalize: Normalization | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """scale * Σ softmax(weights)ₖ layersₖ; a mask is needed only to normalise over the batch."""
    layers = layers.to(torch.promote_types(layers.dtype, weights.dtype))
    weights = weights.to(layers.dtype)
    if normalize is not None:
        layers = _normalized(layers, normalize, mask)
    mixed: Tensor = scale * torch.tensordot(torch.softmax(weights, 0), layers, 1)
    return mixed


def _normalized(layers: Tensor, normalize: Normalization, mask: Tensor | None) -> Tensor:
    epsilon = _EPSILON[normalize]
    if normalize == "token":
        return nn.functional.layer_norm(layers, layers.shape[-1:], eps=epsilon)
    assert mask is not None
    is_word = mask[..., None].to(layers)
    count = (is_word.sum() * layers.shape[-1]).clamp(min=1)
    axes = tuple(range(1, layers.dim()))
    mean = (layers * is_word).sum(axes, keepdim=True) / count
    variance = ((layers - mean) * is_word).square().sum(axes, keepdim=True) / count
    return (layers - mean) / torch.sqrt(variance + epsilon)
