"""Masks and sentence boundaries of padded tensors, as functions of `allennlp.nn.util`."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from elmokit.errors import InputError


def add_sentence_boundary_token_ids(
    tensor: Tensor, mask: Tensor, sentence_begin_token: Any, sentence_end_token: Any
) -> tuple[Tensor, Tensor]:
    """Ids with a boundary before and after each sentence, and their mask.

    Ids are (sentences, steps), and boundaries numbers; or (sentences, steps, ids), and boundaries
    tensors. As in AllenNLP, the end stands after as many steps as the mask has, even where the
    padding is in front.
    """
    if tensor.dim() not in (2, 3):
        raise InputError(
            f"ids have the shape {tuple(tensor.shape)}, expected (sentences, steps) or "
            "(sentences, steps, ids)"
        )
    num_sentences, num_steps = tensor.shape[:2]
    padded = tensor.new_zeros(num_sentences, num_steps + 2, *tensor.shape[2:])
    padded[:, 1:-1] = tensor
    begin, end = (
        torch.as_tensor(token, dtype=tensor.dtype, device=tensor.device)
        for token in (sentence_begin_token, sentence_end_token)
    )
    padded[:, 0] = begin
    sentences = torch.arange(num_sentences, device=tensor.device)
    padded[sentences, get_lengths_from_binary_sequence_mask(mask) + 1] = end
    return padded, padded != 0 if tensor.dim() == 2 else (padded > 0).any(2)


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors, (sentences, steps, dim), without the first and the last one of each, and their mask.

    Padding becomes zero.
    """
    lengths = get_lengths_from_binary_sequence_mask(mask) - 2
    inner = get_mask_from_sequence_lengths(lengths, max(0, tensor.shape[1] - 2))
    return tensor[:, 1:-1].masked_fill(~inner[..., None], 0), inner.to(mask.dtype)


def get_lengths_from_binary_sequence_mask(mask: Tensor) -> Tensor:
    """The number of words of each sentence, (sentences,), of a mask (sentences, steps)."""
    return mask.sum(-1)


def get_mask_from_sequence_lengths(sequence_lengths: Tensor, max_length: int) -> Tensor:
    """The mask, (sentences, max_length), of sentences with so many words."""
    steps = torch.arange(max_length, device=sequence_lengths.device)
    return steps < sequence_lengths[:, None]


def get_text_field_mask(
    text_field_tensors: Mapping[str, Tensor | Mapping[str, Tensor]],
    num_wrapping_dims: int = 0,
    padding_id: int = 0,
) -> Tensor:
    """Which words of a text field are not padding: of its mask, its word ids or character ids."""
    tensors: list[Tensor] = []
    for name, value in text_field_tensors.items():
        if name == "mask" and isinstance(value, Tensor):
            return value.bool()
        values = value if isinstance(value, Mapping) else {name: value}
        if "mask" in values:
            return values["mask"].bool()
        tensors += values.values()
    ids = min(tensors, key=Tensor.dim)
    if ids.dim() == num_wrapping_dims + 2:
        return ids != padding_id
    return (ids > 0).any(-1)
