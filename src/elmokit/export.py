"""Export: softmax, word vectors, LSTM states and tables of vectors for other programs."""

import json
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import torch

from elmokit.atomic import write_atomically
from elmokit.batching import TokenBatch, check_sentences
from elmokit.config import Direction
from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.inference import InferenceSession
from elmokit.model.softmax import Softmax
from elmokit.pooling import Vectors
from elmokit.progress import Progress
from elmokit.scoring import Scorer

# So many words are encoded, and so many states held, before they are written.
_WORDS_AT_ONCE = 4096
_STATES_AT_ONCE = 512


def dump_softmax(embedder: Embedder, target: str | Path) -> int:
    """The table of the softmax, a row a word of the vocabulary; how many there are.

    `.npz` holds `weight` and `bias`; `.npy` the table, with the bias in `.bias.npy` beside; both
    have the words beside, in `.words.txt`. `.txt` is word2vec's text, which has no place for a
    bias.
    """
    target = _check(Path(target), ".npz", ".npy", ".txt")
    oracle = Scorer(embedder.session)
    words = [*oracle.vocabulary]
    if not isinstance(oracle.softmax, Softmax):
        raise InputError("an adaptive softmax is no table: its rarer words share smaller vectors")
    weight = oracle.softmax.weight.detach().float().cpu().numpy()
    bias = oracle.softmax.bias.detach().float().cpu().numpy()
    if target.suffix == ".npz":
        _write_words(words, target)
        _write(target, lambda file: np.savez(file, weight=weight, bias=bias))
        return len(words)
    if target.suffix == ".npy":
        _write(_check(target.with_suffix(".bias.npy"), ".npy"), lambda file: np.save(file, bias))
    _write_table(target, words, weight.shape[1], iter([weight]))
    return len(words)


def dump_words(
    embedder: Embedder,
    target: str | Path,
    words: Iterable[str] | None = None,
    *,
    show_progress_bar: bool | None = None,
) -> int:
    """The context-free vector of each word (of the model's vocabulary, if None); how many.

    `.txt` is word2vec's text: a line with the table's size, then a word and its numbers a line.
    `.npy` is the table, with the words beside in `.words.txt`.
    """
    target = _check(Path(target), ".txt", ".npy")
    if words is None:
        words = embedder.pretrained.vocabulary
        if words is None:
            raise InputError("the model has no vocabulary of its own; name a file, one word a line")
    listed = [*words]

    def encoded() -> Iterator[Vectors]:
        with Progress(len(listed), shown=show_progress_bar, unit="words") as shown:
            for start in range(0, len(listed), _WORDS_AT_ONCE):
                some = listed[start : start + _WORDS_AT_ONCE]
                yield embedder.session.encode(some).float().cpu().numpy()
                shown.advance(len(some), words=len(some))

    _write_table(target, listed, embedder.bilm.config.projection_size, encoded())
    return len(listed)


def dump_states(
    embedder: Embedder,
    target: str | Path,
    sentences: Iterable[Sequence[str]],
    *,
    show_progress_bar: bool | None = None,
) -> int:
    """What the readers hold after each word of each sentence, in a `.npz`; how many sentences.

    Of sentence k there are `k/words` (`<S>` and `</S>` included), `k/output` (directions, layers,
    words, dim), which goes into the next step before any skip connection is added, and `k/memory`
    (directions, layers, words, cell_dim).
    """
    target = _check(Path(target), ".npz")
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        with (
            zipfile.ZipFile(file, "w") as archive,
            Progress(None, shown=show_progress_bar) as shown,
        ):
            for sentence in _groups(check_sentences(sentences)):
                for words, states in zip(
                    sentence, _states(embedder.session, sentence), strict=True
                ):
                    _add(archive, f"{count}/words", np.array(["<S>", *words, "</S>"]))
                    for name, array in states.items():
                        _add(archive, f"{count}/{name}", array)
                    count += 1
                shown.advance(len(sentence), words=sum(map(len, sentence)))

    _write(target, write)
    return count


def _groups(sentences: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """Sentences in their order, as many together as may be held."""
    group: list[list[str]] = []
    for sentence in sentences:
        if group and sum(len(other) + 2 for other in (*group, sentence)) > _STATES_AT_ONCE:
            yield group
            group = []
        group.append(sentence)
    if group:
        yield group


def _states(reading: InferenceSession, sentences: list[list[str]]) -> Iterator[dict[str, Vectors]]:
    """The states after each word of sentences that are read side by side, word by word."""
    marked = [["<S>", *sentence, "</S>"] for sentence in sentences]
    found = [_states_of(reading, marked, direction) for direction in reading.bilm.config.directions]
    for place in range(len(sentences)):
        yield {name: np.stack([half[place][name] for half in found]) for name in found[0][place]}


def _states_of(
    reading: InferenceSession, rows: list[list[str]], direction: Direction
) -> list[dict[str, Vectors]]:  # output (layers, words, dim) and memory (layers, words, cell_dim)
    """Those of one reader, in the order of the text."""
    step = 1 if direction == "forward" else -1
    half = reading.bilm.config.directions.index(direction)
    placed = TokenBatch.from_sentences([row[::step] for row in rows], boundaries=False)
    state, after = None, []
    for column in placed.words.T:
        _, state = reading.run(
            TokenBatch(placed.types, column[:, None]), state, directions=[direction]
        )
        after.append({"output": state.hidden[half], "memory": state.cell[half]})
    stacked = {
        name: torch.stack([states[name] for states in after], 1).float().cpu().numpy()
        for name in ("output", "memory")
    }  # (layers, words, rows, dim)
    return [
        {name: states[:, : len(row), place][:, ::step] for name, states in stacked.items()}
        for place, row in enumerate(rows)
    ]


def _add(archive: zipfile.ZipFile, name: str, array: npt.NDArray[np.generic]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _write_table(target: Path, words: list[str], dim: int, blocks: Iterator[Vectors]) -> None:
    if target.suffix == ".npy":
        _write_words(words, target)
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(words), dim)}

        def write_npy(file: BinaryIO) -> None:
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks:
                file.write(np.ascontiguousarray(block, "<f4").data)

        _write(target, write_npy)
        return
    for place, word in enumerate(words):
        if not word or " " in word or "\n" in word:
            raise InputError(
                f"word {place}, {word!r}, cannot stand in word2vec's text; write a .npy file"
            )

    def write_text(file: BinaryIO) -> None:
        file.write(f"{len(words)} {dim}\n".encode())
        names = iter(words)
        for block in blocks:
            for row in block:
                file.write(f"{next(names)} {' '.join(map(str, row))}\n".encode())

    _write(target, write_text)


def _write_words(words: list[str], target: Path) -> None:
    """The names of a table's rows, one a line, beside it."""
    text = "".join(f"{word}\n" for word in words).encode()
    _write(_check(target.with_suffix(".words.txt"), ".txt"), lambda file: file.write(text))


def _check(target: Path, *endings: str) -> Path:
    """Refuse a name that cannot be written to."""
    if target.suffix not in endings:
        expected = " or ".join(endings)
        raise InputError(f"{target}: ends in {target.suffix or 'nothing'}, expected {expected}")
    if target.exists():
        raise InputError(f"{target}: exists already; delete it, or give another name")
    return target


def _write(target: Path, write: Callable[[BinaryIO], object]) -> None:
    try:
        write_atomically(target, write)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})") from None


def write_vectors(vectors: Vectors, target: Path | None) -> None:
    """The rows in a new file, its kind given by its ending; without a target, TSV on stdout."""
    if target is None:
        _write_tsv(vectors, sys.stdout.buffer)
        return
    check_table(target)
    write = _WRITERS[target.suffix]
    try:
        write_atomically(target, lambda file: write(vectors, file))
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})") from None


def check_table(target: Path) -> None:
    """Refuse a name that cannot be written to, before any work is done."""
    if target.suffix not in _WRITERS:
        raise InputError(f"{target}: ends in none of {', '.join(_WRITERS)}; give another name")
    if target.exists():
        raise InputError(f"{target}: exists already; delete it, or give another name")


def _write_npy(vectors: Vectors, file: BinaryIO) -> None:
    np.save(file, vectors)


def _write_tsv(vectors: Vectors, file: BinaryIO) -> None:
    for row in vectors:
        file.write(("\t".join(map(str, row)) + "\n").encode())


def _write_jsonl(vectors: Vectors, file: BinaryIO) -> None:
    for row in vectors.tolist():
        file.write((json.dumps(row) + "\n").encode())


_WRITERS = {".npy": _write_npy, ".tsv": _write_tsv, ".jsonl": _write_jsonl}
