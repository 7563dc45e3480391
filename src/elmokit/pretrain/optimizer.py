"""Optimizer, learning-rate schedule and gradient clipping."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from elmokit.pretrain.settings import PretrainingSettings


def make_optimizer(model: nn.Module, settings: PretrainingSettings) -> torch.optim.Optimizer:
    """The optimiser of a run; AdamW lets only matrices decay."""
    if settings.optimizer == "adagrad":
        return torch.optim.Adagrad(
            model.parameters(),
            lr=settings.learning_rate,
            initial_accumulator_value=settings.initial_accumulator,
        )
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(0.9, settings.beta2),
    )


def learning_rate(settings: PretrainingSettings, update: int, updates: int) -> float:
    """The learning rate of an update, counted from 0, of so many."""
    if update < settings.warmup_steps:
        return settings.learning_rate * (update + 1) / settings.warmup_steps
    done = (update - settings.warmup_steps) / max(1, updates - settings.warmup_steps)
    left = {
        "constant": 1.0,
        "linear": 1 - (1 - settings.final_learning_rate) * done,
        "cosine": settings.final_learning_rate
        + (1 - settings.final_learning_rate) * (1 + math.cos(math.pi * done)) / 2,
    }[settings.schedule]
    return settings.learning_rate * left


def clip_gradients(parameters: Iterable[Tensor], longest: float) -> float:
    """Shorten all gradients together to a length, and say how long they were; 0 is no limit."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    numbers = [grad._values() if grad.is_sparse else grad for grad in grads]
    lengths = torch.stack([torch.linalg.vector_norm(part) for part in numbers])
    length = float(torch.linalg.vector_norm(lengths))
    if longest > 0 and length > longest:
        for part in numbers:
            part.mul_(longest / length)
    return length
