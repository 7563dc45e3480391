"""Building an index: its passages, their vectors, the whitenings and the lexical part."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import numpy as np

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.files import TextFile
from elmokit.inference_session import LayerSelection
from elmokit.progress import Progress
from elmokit.search.lexical import LexicalPart, get_stemmer, is_content_word
from elmokit.search.passage_vectors import (
    FEWEST_VECTORS_TO_WHITEN,
    IndexConfig,
    choose_stemmer,
    embed_passages,
)
from elmokit.search.passages import group_passages, read_passages
from elmokit.search.ranking import fit_word_whitening
from elmokit.search.store import IndexBuilder, Store, open_builder
from elmokit.whitening import Whitening

_PASSAGES_TO_SAMPLE = 2000  # to whose words their whitening is fitted


def build_index(
    location: str | Path,
    files: Sequence[TextFile],
    embedder: Embedder,
    config: IndexConfig,
    *,
    stemmer: str | None,
    show_progress_bar: bool | None,
) -> None:
    """Build an index, or finish a build that was interrupted."""
    if stemmer is not None and config.unit == "words":
        raise InputError("an index of words has no lexical part, and so no stemmer")
    stemmer = stemmer or choose_stemmer(config.tokenizer, config.unit)
    if stemmer is not None:
        get_stemmer(stemmer)  # better missing now than after hours
    config.check_model(embedder, str(location))
    LayerSelection.of(embedder.bilm.config, config.layers)  # refuses missing layers
    dim = config.dim(embedder)
    manifest = {
        **asdict(config),
        "files": [*map(_describe, files)],
        "precision": embedder.precision,
        "stemmer": stemmer,
    }
    with open_builder(location, manifest, dim=dim) as builder:
        _embed_files(builder, files, config, embedder, show_progress_bar)
        if not builder.progress().vectors:
            builder.remove()
            names = ", ".join(file.name for file in files)
            raise InputError(f"{names}: no words found, expected text to index")
        if builder.progress().vectors < FEWEST_VECTORS_TO_WHITEN:
            config = replace(config, whitening="none")
        whitening = Whitening.fit_batches(builder.parts(), dim=dim, method=config.whitening)
        part = None if stemmer is None else sample_lexical_part(builder, embedder, config, stemmer)
        builder.finish(config, whitening, part)


def sample_lexical_part(
    passages: IndexBuilder | Store, embedder: Embedder, config: IndexConfig, stemmer: str
) -> LexicalPart:
    """The lexical part of an index, its whitening fitted to the words of some passages."""
    texts = passages.sample_texts(_PASSAGES_TO_SAMPLE)
    return fit_lexical_part(embedder, config, texts, stemmer=stemmer)


def fit_lexical_part(
    embedder: Embedder, config: IndexConfig, texts: Iterable[str], *, stemmer: str
) -> LexicalPart:
    """The lexical part of an index, its whitening fitted to the content words of texts."""
    vocabulary = embedder.pretrained.vocabulary
    words = (
        [word for word in config.words(text) if is_content_word(word, vocabulary)] for text in texts
    )
    return LexicalPart(stemmer, fit_word_whitening(embedder, words))


def _embed_files(
    builder: IndexBuilder,
    files: Sequence[TextFile],
    config: IndexConfig,
    embedder: Embedder,
    show_progress_bar: bool | None,
) -> None:
    """Embed and store the passages that are not stored yet."""
    done = builder.progress()
    passages = read_passages(files, tokenizer=config.tokenizer, unit=config.unit)
    last = deque(islice(passages, done.passages), maxlen=1)
    if done.passages and [passage.text for passage in last] != [done.last_text]:  # of stdin, too
        raise InputError(
            f"{builder.name}: passage {done.passages} of the text differs from what the "
            "interrupted build stored; give the same text, or remove what was built so far"
        )
    with Progress(None, unit="passages", shown=show_progress_bar, done=done.passages) as progress:
        for group in group_passages(passages, embedder.tokens_per_batch):
            sources, vectors = embed_passages(config, embedder, group)
            builder.add_part(group, sources, vectors.astype(np.float16))
            words = sum(len(passage.words) for passage in group)
            progress.advance(len(group), words=words)


def _describe(file: TextFile) -> str:
    # A build that 0.1 started is resumed only while this stays as it is.
    return f"{file.name}, {file.size} bytes, changed at {file.modified}"
