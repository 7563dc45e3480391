"""Fitting sentence heads: whitening from plain text, and the inputs that a head is trained on."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch

from elmokit.batching import check_texts
from elmokit.embedder import Embedder, Text
from elmokit.errors import InputError
from elmokit.model.sentence_head import HeadInput, SentenceHead, SentenceHeadConfig
from elmokit.pooling import Vectors
from elmokit.text_pooling import head_input
from elmokit.whitening import Whitening

_TEXTS_PER_BATCH = 4096


def fit_whitened(embedder: Embedder, texts: Iterable[Text]) -> SentenceHead:
    """A head that whitens the IDF mean of layer 0, fitted to some thousand texts or more.

    It is for comparing texts without a collection to fit a whitening to.

    Example:
        model = elmokit.load()
        model.add_head("whitened", elmokit.fit_whitened(model, texts))
        model.encode(texts, pooling="whitened")
        model.save("with-head")
    """
    size = embedder.bilm.config.projection_size  # both directions of layer 0 are the same

    def batches() -> Iterator[Vectors]:
        remaining = iter(check_texts(texts))
        while batch := [*islice(remaining, _TEXTS_PER_BATCH)]:
            vectors = embedder.encode(batch, layers=0, pooling="idf", show_progress_bar=False)
            yield vectors[vectors.any(1), :size]

    whitening = Whitening.fit_batches(batches(), dim=size)
    head = SentenceHead(SentenceHeadConfig(size, size))
    with torch.no_grad():
        head.projection.weight.copy_(torch.from_numpy(whitening.matrix.T))
        head.projection.bias.copy_(torch.from_numpy(-whitening.mean @ whitening.matrix))
    return head


def head_inputs(
    embedder: Embedder, config: SentenceHeadConfig, texts: Sequence[Text]
) -> list[HeadInput]:
    """What a head of this configuration reads of each text, to train it on; each needs a word."""
    vocabulary = embedder.pretrained.vocabulary
    if vocabulary is None:
        raise InputError("a sentence head needs a model with a vocabulary, and this one has none")
    tokenized = [embedder.tokenize(text) for text in texts]
    for number, sentences in enumerate(tokenized):
        if not any(sentences):
            raise InputError(f"text {number} ({texts[number]!r}) has no words, expected some")
    stream = embedder.embed_stream(
        (sentence for sentences in tokenized for sentence in sentences),
        layers=[0, *config.context_layers],
    )
    inputs = []
    for sentences in tokenized:
        words = [word for sentence in sentences for word in sentence]
        array = np.concatenate([*islice(stream, len(sentences))], 1)  # (layers, words, dim)
        inputs.append(head_input(config, array, words, vocabulary))
    next(stream, None)  # to its end, where truncated words are reported
    return inputs
