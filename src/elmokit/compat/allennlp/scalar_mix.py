"""Layers become one tensor by AllenNLP's names."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.model.scalar_mix import mix_layers


class ConfigurationError(ConfigError):
    """What AllenNLP raised for a wrong setting."""


class ScalarMix(nn.Module):
    """A weighted sum of tensors; its parameters have the names that old checkpoints have."""

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
        start = initial_scalar_parameters
        if start is None:
            start = [0.0] * mixture_size
        if len(start) != mixture_size:
            raise ConfigurationError(
                f"Length of initial_scalar_parameters {start} differs "
                f"from mixture_size {mixture_size}"
            )
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(value)]), requires_grad=trainable) for value in start
        )
        self.gamma = nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """The mix of tensors of one shape; with layer norm, `mask` says where words stand."""
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
