"""Vectors of a layer become tags by one linear map: what the layer tells without more learning."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.tasks.data.example import Tagged

# The words are read so often, in so many updates at least, some of them at a time.
_EPOCHS, _UPDATES, _ROWS = 12, 1500, 512
_RATE = 0.002


def probe_layers(
    embedder: Embedder, train: Sequence[Tagged], dev: Sequence[Tagged], *, seed: int = 0
) -> list[float]:
    """For each layer, the share of the words of `dev` whose tag a linear map of it tells.

    Vectors are centred and scaled by those of `train`; each layer has the same training.
    """
    if not train or not dev:
        raise InputError("a probe needs examples to learn from and others to be judged by")
    labels = sorted({tag for example in train for tag in example.tags})
    if not any(tag in labels for example in dev for tag in example.tags):
        raise InputError("no tag of the examples to judge by is learnt; are both of one task?")
    known, wanted = _ids(train, labels), _ids(dev, labels)
    accuracies = []
    for layer in range(embedder.num_layers):
        features = torch.from_numpy(_words(embedder, train, layer))
        mean, deviation = features.mean(0), features.std(0, correction=0).clamp(min=1e-6)
        features.sub_(mean).div_(deviation)
        weight, bias = fit_linear(features, known, len(labels), seed=seed)
        shown = (torch.from_numpy(_words(embedder, dev, layer)) - mean) / deviation
        right = (shown @ weight.t() + bias).argmax(1) == wanted
        accuracies.append(float(right.double().mean()))
    return accuracies


def fit_linear(
    features: Tensor, labels: Tensor, count: int, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The weight and bias of a softmax regression, by AdamW with a rate that falls to zero."""
    weight = torch.zeros(count, features.shape[1], requires_grad=True)
    bias = torch.zeros(count, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=_RATE, weight_decay=0.01)
    batches = -(-len(features) // _ROWS)
    epochs = max(_EPOCHS, -(-_UPDATES // batches))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, epochs * batches)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        for _ in range(epochs):
            for rows in torch.randperm(len(features), generator=generator).split(_ROWS):
                optimizer.zero_grad()
                scores = features[rows] @ weight.t() + bias
                F.cross_entropy(scores, labels[rows]).backward()
                optimizer.step()
                schedule.step()
    return weight.detach(), bias.detach()


def _words(
    embedder: Embedder, examples: Iterable[Tagged], layer: int
) -> npt.NDArray[np.float32]:  # (words, dim)
    sentences = (example.words for example in examples)
    vectors: npt.NDArray[np.float32]
    (vectors,) = np.concatenate([*embedder.embed_stream(sentences, layers=layer)], 1)
    return vectors


def _ids(examples: Sequence[Tagged], labels: Sequence[str]) -> Tensor:
    """The place of each word's tag; a tag that was never learnt is never right."""
    places = {label: place for place, label in enumerate(labels)}
    return torch.tensor([places.get(tag, -1) for example in examples for tag in example.tags])
