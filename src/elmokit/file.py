"""A file of lines becomes a file of their vectors, line by line, in bounded memory."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from elmokit import __version__
from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.plan import Asked, in_windows
from elmokit.pooling import Vectors
from elmokit.progress import Progress
from elmokit.store import Store
from elmokit.text.split import check_splitter, splitter

Form = Literal["all", "top", "average"] | tuple[int, ...]

# With a carried state, about so many lines are a part of the file, or as many words as these
# batches have.
_CARRIED_LINES, _CARRIED_BATCHES = 256, 4


class Line(NamedTuple):
    """A line of the input, and its words."""

    text: str
    words: list[str]


def embed_file(
    embedder: Embedder,
    lines: Iterable[str],
    target: str | Path,
    *,
    form: Form = "all",
    dtype: Literal["float32", "float16"] = "float32",
    split: str = "spaces",
    batch_size: int = 1,
    forget_sentences: bool = False,
    sentence_keys: bool = False,
    total: int | None = None,
    progress: bool | None = None,
) -> int:
    """Embed a sentence a line into an HDF5 file; the number of lines, which is that of its keys.

    A line's key is its number from 0, or with `sentence_keys` the line itself. Its dataset is
    (layers, words, dim), or (words, dim) for `top` and `average`; a blank line has no words. The
    file appears under its name only when whole; killed and called again, this goes on. Where the
    embedder carries its state, line k goes on where line k - `batch_size` ended, the first from
    zero.
    """
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}, expected 1 or more")
    wanted = "all" if form == "average" else form
    Asked.of(embedder.bilm.config, wanted, "both", boundaries=False)  # refuses what is not there
    check_splitter(split)
    carry = embedder.state_way == "carry"
    settings = {
        **describe(embedder.pretrained),
        "precision": embedder.precision,
        "state": f"carry, {batch_size}" if carry else embedder.state_way,
        "form": form if isinstance(form, str) else ",".join(map(str, form)),
        "split": split,
        "tokens_per_batch": str(embedder.tokens_per_batch),
    }
    texts = (line.strip(" \t\r\n") for line in lines)
    with Store(
        Path(target),
        settings,
        dtype=dtype,
        forget_sentences=forget_sentences,
        sentence_keys=sentence_keys,
    ) as store:
        state = store.skip_known(texts)
        if store.finished:
            return store.done
        if carry and state is None:
            embedder.reset_state()
        elif state is not None:
            embedder.state = state
        with Progress(total, shown=progress, done=store.done) as shown:
            for window in _windows(texts, embedder, split, batch_size):
                sentences = [line.words for line in window]
                arrays: list[Vectors] = []
                for batch in _batches(sentences, batch_size if carry else len(sentences)):
                    arrays += embedder.embed(batch, layers=wanted, progress=False)
                store.append(
                    [line.text for line in window],
                    [shaped(array, form) for array in arrays],
                    state=embedder.state if carry else None,
                )
                shown.advance(sentences=len(window), words=sum(map(len, sentences)))
        store.finish()
        return store.done


def describe(pretrained: Pretrained) -> dict[str, str]:
    """What a file of vectors says of the model that made them."""
    return {
        "elmokit": __version__,
        "model": pretrained.fingerprint(),
        "config": json.dumps(asdict(pretrained.model.bilm.config)),
    }


def shaped(array: Vectors, form: Form) -> Vectors:
    """A sentence's layers, as a form wants them computed, in the shape that it has in the file."""
    if form == "average":
        mean: Vectors = array.mean(0)
        return mean
    return array[0] if form == "top" else array


def _windows(
    texts: Iterator[str], embedder: Embedder, split: str, batch_size: int
) -> Iterator[list[Line]]:
    """Lines that become a part together: the same ones, wherever a killed run goes on."""
    way = splitter(split)
    read = (Line(text, way.words(text)) for text in texts)
    if embedder.state_way != "carry":
        yield from in_windows(read, embedder.tokens_per_batch, lambda line: len(line.words))
        return
    window: list[Line] = []
    while batch := [*islice(read, batch_size)]:
        window += batch
        words = sum(len(line.words) for line in window)
        if len(window) >= _CARRIED_LINES or words >= _CARRIED_BATCHES * embedder.tokens_per_batch:
            yield window
            window = []
    if window:
        yield window


def _batches(sentences: list[list[str]], size: int) -> Iterator[list[list[str]]]:
    for start in range(0, len(sentences), size):
        yield sentences[start : start + size]
