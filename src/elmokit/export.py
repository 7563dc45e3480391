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
from elmokit.batching import check_sentences, token_windows
from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.inference_session import InferenceSession
from elmokit.model.softmax import Softmax
from elmokit.model_config import Direction
from elmokit.pooling import Vectors
from elmokit.progress import Progress
from elmokit.scoring import Scorer

# So many words are encoded, and about so many states computed, before they are written.
_WORDS_PER_BATCH = 4096
_STATES_PER_BATCH = 512


def export_softmax(embedder: Embedder, target: str | Path) -> int:
    """Write the softmax, one row per word of the vocabulary; returns the number of rows.

    `.npz` holds `weight` and `bias`; `.npy` the weight, with the bias beside it in `.bias.npy`;
    both have the words beside them in `.words.txt`. `.txt` is word2vec's text format, which has no
    bias.

    Example:
        elmokit.export_softmax(model, "softmax.npz")
    """
    target = check_target(Path(target), ".npz", ".npy", ".txt")
    scorer = Scorer(embedder.session)
    words = [*scorer.vocabulary]
    if not isinstance(scorer.softmax, Softmax):
        raise InputError(
            "an adaptive softmax is not one matrix: its rarer words have smaller vectors"
        )
    weight = scorer.softmax.weight.detach().float().cpu().numpy()
    bias = scorer.softmax.bias.detach().float().cpu().numpy()
    if target.suffix == ".npz":
        _write_words(words, target)
        _write(target, lambda file: np.savez(file, weight=weight, bias=bias))
        return len(words)
    if target.suffix == ".npy":
        _write(check_target(target.with_suffix(".bias.npy")), lambda file: np.save(file, bias))
    _write_table(target, words, weight.shape[1], iter([weight]))
    return len(words)


def export_words(
    embedder: Embedder,
    target: str | Path,
    words: Iterable[str] | None = None,
    *,
    show_progress_bar: bool | None = None,
) -> int:
    """Write the context-free vectors of words (None: the vocabulary); returns their number.

    `.txt` is word2vec's text format: a line with the sizes, then one line per word. `.npy` is the
    matrix, with the words beside it in `.words.txt`.

    Example:
        elmokit.export_words(model, "words.txt", ["apple", "apples", "pear"])
    """
    target = check_target(Path(target), ".txt", ".npy")
    if words is None:
        words = embedder.pretrained.vocabulary
        if words is None:
            raise InputError("the model has no vocabulary of its own; name a file, one word a line")
    listed = [*words]

    def encoded() -> Iterator[Vectors]:
        progress = Progress(len(listed), shown=show_progress_bar, unit="words")
        with progress, embedder.session.reporting_truncated_words():
            for start in range(0, len(listed), _WORDS_PER_BATCH):
                batch = listed[start : start + _WORDS_PER_BATCH]
                yield embedder.session.encode(batch).float().cpu().numpy()
                progress.advance(len(batch), words=len(batch))

    _write_table(target, listed, embedder.bilm.config.projection_size, encoded())
    return len(listed)


def export_states(
    embedder: Embedder,
    target: str | Path,
    sentences: Iterable[Sequence[str]],
    *,
    show_progress_bar: bool | None = None,
) -> int:
    """Write the LSTMs' states after each word to a `.npz`; returns the number of sentences.

    Sentence k has `k/words` (with `<S>` and `</S>`), `k/output` (directions, layers, words,
    projection size), the hidden states before any skip connection is added, and `k/memory`
    (directions, layers, words, cell size), the cell states.

    Example:
        elmokit.export_states(model, "states.npz", [["I", "ate", "an", "apple"]])
    """
    target = check_target(Path(target), ".npz")
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        progress = Progress(None, shown=show_progress_bar)
        with zipfile.ZipFile(file, "w") as archive, progress:
            for batch in token_windows(check_sentences(sentences), _STATES_PER_BATCH // 2, len):
                for words, states in zip(batch, _states(embedder.session, batch), strict=True):
                    _add(archive, f"{count}/words", np.array(["<S>", *words, "</S>"]))
                    for name, array in states.items():
                        _add(archive, f"{count}/{name}", array)
                    count += 1
                progress.advance(len(batch), words=sum(map(len, batch)))

    with embedder.session.reporting_truncated_words():
        _write(target, write)
    return count


def _states(session: InferenceSession, sentences: list[list[str]]) -> Iterator[dict[str, Vectors]]:
    """The states after each word of sentences that are run side by side, step by step."""
    rows = [["<S>", *sentence, "</S>"] for sentence in sentences]
    directions = [_states_of(session, rows, d) for d in session.bilm.config.directions]
    for row in range(len(sentences)):
        yield {
            name: np.stack([states[row][name] for states in directions])
            for name in directions[0][row]
        }


def _states_of(
    session: InferenceSession, rows: list[list[str]], direction: Direction
) -> list[dict[str, Vectors]]:  # output (layers, words, dim) and memory (layers, words, cell size)
    """Those of one direction for each row, in the order of the text."""
    step = 1 if direction == "forward" else -1
    half = session.bilm.config.directions.index(direction)
    in_order = [row[::step] for row in rows]
    state, after = None, []
    for position in range(max(map(len, in_order))):
        words = [row[position : position + 1] for row in in_order]
        _, state = session.run(words, state, boundaries=False, directions=[direction])
        after.append({"output": state.hidden[half], "memory": state.cell[half]})
    stacked = {
        name: torch.stack([states[name] for states in after], 1).float().cpu().numpy()
        for name in ("output", "memory")
    }  # (layers, words, rows, dim)
    return [
        {name: states[:, : len(row), number][:, ::step] for name, states in stacked.items()}
        for number, row in enumerate(rows)
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
    for index, word in enumerate(words):
        if not word or " " in word or "\n" in word:
            raise InputError(
                f"word {index}, {word!r}, cannot be written to word2vec's text format; write a "
                ".npy file"
            )

    def write_text(file: BinaryIO) -> None:
        file.write(f"{len(words)} {dim}\n".encode())
        names = iter(words)
        for block in blocks:
            for row in block:
                file.write(f"{next(names)} {' '.join(map(str, row))}\n".encode())

    _write(target, write_text)


def _write_words(words: list[str], target: Path) -> None:
    """Write the names of a matrix's rows beside it, one per line."""
    target = check_target(target.with_suffix(".words.txt"))
    if word := next((word for word in words if "\n" in word), None):
        raise InputError(f"{word!r} cannot be a line of {target}; replace its line feed")
    _write(target, "".join(f"{word}\n" for word in words))


def check_target(target: Path, *endings: str) -> Path:
    """The name of a new file; InputError if there is such a file, or it has another ending."""
    if endings and target.suffix not in endings:
        expected = " or ".join(endings)
        raise InputError(f"{target}: ends in {target.suffix or 'nothing'}, expected {expected}")
    if target.exists():
        raise InputError(f"{target}: exists already; delete it, or give another name")
    return target


def _write(target: Path, content: str | Callable[[BinaryIO], object]) -> None:
    try:
        write_atomically(target, content)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})") from None


def write_vectors(vectors: Vectors, target: str | Path | None) -> None:
    """The rows in a new file, its kind given by its ending; without a target, TSV on stdout.

    Example:
        elmokit.write_vectors(model.encode(["I ate.", "We left."]), "vectors.npy")
    """
    if target is None:
        _write_tsv(vectors, sys.stdout.buffer)
        return
    target = Path(target)
    check_table(target)
    write = _WRITERS[target.suffix]
    _write(target, lambda file: write(vectors, file))


def check_table(target: str | Path) -> None:
    """Refuse a name that cannot be written to, before any work is done.

    Example:
        elmokit.check_table("vectors.npy")
    """
    check_target(Path(target), *TABLE_ENDINGS)


def _write_tsv(vectors: Vectors, file: BinaryIO) -> None:
    for row in vectors:
        file.write(("\t".join(map(str, row)) + "\n").encode())


def _write_jsonl(vectors: Vectors, file: BinaryIO) -> None:
    for row in vectors.tolist():
        file.write((json.dumps(row) + "\n").encode())


_WRITERS: dict[str, Callable[[Vectors, BinaryIO], object]] = {
    ".npy": lambda vectors, file: np.save(file, vectors),
    ".tsv": _write_tsv,
    ".jsonl": _write_jsonl,
}
TABLE_ENDINGS = tuple(_WRITERS)
