"""Initial values of weights."""

from torch import Tensor, nn


def init_normal(tensor: Tensor, fan_in: int) -> None:
    """Numbers of mean 0 and variance 1 / fan_in, in place, as bilm-tf drew most of its weights."""
    # A tensor without storage, of a model about to be loaded, needs none; torch would import its
    # compiler, which takes more than a second, to find that out.
    if not tensor.is_meta:
        nn.init.normal_(tensor, std=fan_in**-0.5)
