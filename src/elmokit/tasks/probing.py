"""Linear probes: how well each layer alone predicts the tags of words."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.tasks.datasets.example_records import TaggedSentence

_EPOCHS, _MIN_UPDATES = 12, 1500
_WORDS_PER_BATCH = 512
_LEARNING_RATE = 0.002


def probe_layers(
    embedder: Embedder,
    train: Sequence[TaggedSentence],
    dev: Sequence[TaggedSentence],
    *,
    seed: int = 0,
) -> list[float]:
    """The accuracy on `dev` of a linear classifier of each layer's vectors.

    Vectors are standardized by those of `train`; every layer is trained alike.
    """
    if not train or not dev:
        raise InputError("a probe needs examples to train on and others to be evaluated on")
    labels = sorted({tag for example in train for tag in example.tags})
    if not any(tag in labels for example in dev for tag in example.tags):
        raise InputError("no tag of the dev examples is in training; are both of one task?")
    train_ids, dev_ids = _tag_ids(train, labels), _tag_ids(dev, labels)
    accuracies = []
    for layer in range(embedder.num_layers):
        features = torch.from_numpy(_word_vectors(embedder, train, layer))
        mean, deviation = features.mean(0), features.std(0, correction=0).clamp(min=1e-6)
        features.sub_(mean).div_(deviation)
        weight, bias = fit_linear(features, train_ids, len(labels), seed=seed)
        dev_features = (torch.from_numpy(_word_vectors(embedder, dev, layer)) - mean) / deviation
        correct = (dev_features @ weight.t() + bias).argmax(1) == dev_ids
        accuracies.append(float(correct.double().mean()))
    return accuracies


def fit_linear(
    features: Tensor, labels: Tensor, num_labels: int, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The weight and bias of a softmax regression, trained by AdamW with a falling rate."""
    weight = torch.zeros(num_labels, features.shape[1], requires_grad=True)
    bias = torch.zeros(num_labels, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=_LEARNING_RATE, weight_decay=0.01)
    batches = -(-len(features) // _WORDS_PER_BATCH)
    epochs = max(_EPOCHS, -(-_MIN_UPDATES // batches))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, epochs * batches)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        for _ in range(epochs):
            order = torch.randperm(len(features), generator=generator)
            for rows in order.split(_WORDS_PER_BATCH):
                optimizer.zero_grad()
                scores = features[rows] @ weight.t() + bias
                F.cross_entropy(scores, labels[rows]).backward()
                optimizer.step()
                schedule.step()
    return weight.detach(), bias.detach()


def _word_vectors(
    embedder: Embedder, examples: Iterable[TaggedSentence], layer: int
) -> npt.NDArray[np.float32]:  # (words, dim)
    sentences = (example.words for example in examples)
    vectors: npt.NDArray[np.float32]
    (vectors,) = np.concatenate([*embedder.embed_stream(sentences, layers=layer)], 1)
    return vectors


def _tag_ids(examples: Sequence[TaggedSentence], labels: Sequence[str]) -> Tensor:
    """The id of each word's tag; -1 for a tag that is not in training."""
    ids = {label: number for number, label in enumerate(labels)}
    return torch.tensor([ids.get(tag, -1) for example in examples for tag in example.tags])
