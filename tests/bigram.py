"""A model that is known through and through: each reader sees one word, and says what it likes."""

from itertools import pairwise

import numpy as np
import torch

import elmokit
from elmokit.model.bilm import LanguageModel
from elmokit.model.softmax import Softmax
from elmokit.model_config import BiLMConfig
from elmokit.vocab import Vocabulary

MARKS = ["<S>", "</S>", "<UNK>"]
_SAID = np.tanh(np.tanh(5.0))  # what an open gate lets through of a candidate of 5


def bigram_model(sentences, *, directions=("forward", "backward"), **settings):
    """An embedder whose probabilities are the bigrams of sentences, counted with 0.01 more."""
    words = MARKS + sorted({word for sentence in sentences for word in sentence.split()})
    after = np.full((len(words), len(words)), 0.01)  # [next, word]
    for sentence in sentences:
        places = [words.index(word) for word in ["<S>", *sentence.split(), "</S>"]]
        for word, following in pairwise(places):
            after[following, word] += 1
    liked = [np.log(after / after.sum(0)), np.log(after.T / after.T.sum(0))]

    size = len(words)
    config = BiLMConfig(
        2 * size, 2 * size, 1, None, vocabulary_size=size, directions=directions,
        cell_clip=None, projection_clip=None,
    )  # fmt: skip
    model = LanguageModel(elmokit.BiLM(config), Softmax(size, 2 * size))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.bilm.encoder.embedding.weight[1:, :size] = torch.eye(size)
        for direction, reader in zip(directions, model.bilm.lstms, strict=True):
            layer = reader.layers[0]
            input_, forget, out, candidate = layer.bias.split(2 * size)
            input_ += 50
            forget -= 50
            out += 50
            start = 3 * 2 * size + (0 if direction == "forward" else size)
            layer.input_weight[start : start + size, :size] = 5 * torch.eye(size)
            assert not candidate.any()
        model.softmax.weight.copy_(torch.from_numpy(np.hstack(liked) / _SAID))
    pretrained = elmokit.Pretrained(model, Vocabulary(words), tokenizer="spaces")
    return elmokit.Embedder(pretrained, elmokit.LoadOptions(**settings))
