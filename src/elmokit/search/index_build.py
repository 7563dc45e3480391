"""Building an index: its passages, their vectors, the whitenings and the lexical part."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.files import TextFile
from elmokit.pooling import Vectors
from elmokit.progress import Progress
from elmokit.search.lexical import LexicalPart, get_stemmer, is_content_word, stop_words_of
from elmokit.search.passage_vectors import (
    FEWEST_VECTORS_TO_WHITEN,
    IndexConfig,
    choose_stemmer,
    embed_passages,
)
from elmokit.search.passages import Passage, VectorSource, group_passages, read_passages
from elmokit.search.ranking import fit_word_whitening
from elmokit.search.store import BuildProgress, IndexBuilder, Store, open_builder
from elmokit.whitening import Whitening

_PASSAGES_TO_SAMPLE = 2000  # to whose words their whitening is fitted


@dataclass(frozen=True)
class IndexPart:
    """Passages that are stored together, and their vectors before whitening."""

    passages: Sequence[Passage]
    sources: Sequence[VectorSource]
    vectors: Vectors  # (sources, dim)


class PassageVectors(Protocol):
    """Where the passages of an index and their vectors come from."""

    @property
    def name(self) -> str: ...  # for messages
    def describe(self) -> dict[str, Any]: ...  # what a build that goes on has to have again
    def parts_after(self, done: BuildProgress) -> Iterator[IndexPart]:
        """The parts that are not stored; InputError if the passages are not those of before."""


def build_index(
    location: str | Path,
    source: PassageVectors,
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
    dim = config.dim(embedder)
    manifest = {**asdict(config), **source.describe(), "stemmer": stemmer}
    with open_builder(location, manifest, dim=dim) as builder:
        done = builder.progress()
        with Progress(
            None, unit="passages", shown=show_progress_bar, done=done.passages
        ) as progress:
            for part in source.parts_after(done):
                builder.add_part(part.passages, part.sources, part.vectors.astype(np.float16))
                words = sum(len(passage.words) for passage in part.passages)
                progress.advance(len(part.passages), words=words)
        if not builder.progress().vectors:
            builder.remove()
            raise InputError(f"{source.name}: no words found, expected text to index")
        if builder.progress().vectors < FEWEST_VECTORS_TO_WHITEN:
            config = replace(config, whitening="none")
        whitening = Whitening.fit_batches(builder.parts(), dim=dim, method=config.whitening)
        lexical = None
        if stemmer is not None:
            lexical = sample_lexical_part(builder, embedder, config, stemmer)
        builder.finish(config, whitening, lexical)


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
    vocabulary, stop_words = embedder.pretrained.vocabulary, stop_words_of(config.tokenizer)
    words = (
        [
            word
            for word in config.words(text)
            if is_content_word(word, vocabulary, stop_words=stop_words)
        ]
        for text in texts
    )
    return LexicalPart(stemmer, fit_word_whitening(embedder, words))


class EmbeddedFiles:
    """Passages of text files, whose vectors are computed now."""

    def __init__(self, files: Sequence[TextFile], config: IndexConfig, embedder: Embedder) -> None:
        self.name = ", ".join(file.name for file in files)
        self._files, self._config, self._embedder = files, config, embedder

    def describe(self) -> dict[str, Any]:
        """The files, and the precision of the vectors."""
        # A build that 0.1 started is resumed only while this stays as it is.
        files = [f"{f.name}, {f.size} bytes, changed at {f.modified}" for f in self._files]
        return {"files": files, "precision": self._embedder.precision}

    def parts_after(self, done: BuildProgress) -> Iterator[IndexPart]:
        """The parts that are not stored; InputError if the passages are not those of before."""
        config, embedder = self._config, self._embedder
        passages = read_passages(self._files, tokenizer=config.tokenizer, unit=config.unit)
        last = deque(islice(passages, done.passages), maxlen=1)
        check_progress(done, last)
        for group in group_passages(passages, embedder.tokens_per_batch):
            yield IndexPart(group, *embed_passages(config, embedder, group))


def check_progress(done: BuildProgress, last: Sequence[Passage]) -> None:
    """Raise InputError unless the last passage that is stored is this one."""
    if done.passages and [passage.text for passage in last] != [done.last_text]:  # of stdin, too
        raise InputError(
            f"passage {done.passages} of the text differs from what the interrupted build stored; "
            "give the same text, or remove what was built so far"
        )
