"""Weights by AllenNLP's names become ours, so that models it trained can be loaded."""

import torch
from torch import Tensor

from elmokit.config import BiLMConfig


def translate(weights: dict[str, Tensor], prefix: str, config: BiLMConfig) -> None:
    """Rename and rearrange AllenNLP's biLM weights under a prefix, in place; others stay."""
    encoder, lstm = f"{prefix}_token_embedder.", f"{prefix}_elmo_lstm."
    ours = f"{prefix}bilm."
    characters = config.characters
    if f"{encoder}_char_embedding_weights" not in weights or characters is None:
        return
    moved = {"encoder.embedding.weight": weights.pop(f"{encoder}_char_embedding_weights")}
    for place in range(len(characters.filters)):
        name = f"{encoder}char_conv_{place}."
        kernel = weights.pop(f"{name}weight")  # (features, character_dim, seen)
        moved[f"encoder.filters.{place}.weight"] = kernel.transpose(1, 2).flatten(1)
        moved[f"encoder.filters.{place}.bias"] = weights.pop(f"{name}bias")
    for place in range(characters.highway_layers):
        for kind in ("weight", "bias"):
            # AllenNLP's gate lets the vector as it came through, ours the transformed one.
            transform, gate = weights.pop(f"{encoder}_highways._layers.{place}.{kind}").chunk(2)
            moved[f"encoder.highways.{place}.transform.{kind}"] = transform
            moved[f"encoder.highways.{place}.gate.{kind}"] = -gate
    weights.pop(f"{prefix}_word_embedding.weight", None)  # of cached words: worked out again
    for kind in ("weight", "bias"):
        moved[f"encoder.projection.{kind}"] = weights.pop(f"{encoder}_projection.{kind}")
    for place, direction in enumerate(config.directions):
        for layer in range(config.num_layers):
            name, own = f"{lstm}{direction}_layer_{layer}.", f"lstms.{place}.layers.{layer}."
            for theirs, kind in (("input", "input"), ("state", "recurrent")):
                gates = weights.pop(f"{name}{theirs}_linearity.weight")
                moved[f"{own}{kind}_weight"] = _our_gates(gates)
            # AllenNLP keeps the forget gate's bias with its 1.0 added.
            bias = _our_gates(weights.pop(f"{name}state_linearity.bias"))
            bias[config.cell_size : 2 * config.cell_size] -= config.forget_bias
            moved[f"{own}bias"] = bias
            moved[f"{own}projection"] = weights.pop(f"{name}state_projection.weight")
    weights.update({ours + name: tensor for name, tensor in moved.items()})


def _our_gates(gates: Tensor) -> Tensor:
    """AllenNLP has its gates as input, forget, candidate, output; we have the candidate last."""
    blocks = gates.chunk(4)
    return torch.cat([blocks[place] for place in (0, 1, 3, 2)])
