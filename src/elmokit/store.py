"""Vectors become a file: HDF5 as AllenNLP laid it out, resumed where it was killed."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
import torch

from elmokit import __version__
from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.model.bilm import State
from elmokit.plan import in_windows
from elmokit.pooling import Vectors
from elmokit.progress import Progress
from elmokit.text.split import splitter

Form = Literal["all", "top", "average"] | tuple[int, ...]


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
    forget_sentences: bool = False,
    sentence_keys: bool = False,
    total: int | None = None,
    progress: bool | None = None,
) -> int:
    """Embed a sentence a line into an HDF5 file; the number of lines, which is that of its keys.

    A line's key is its number from 0, or with `sentence_keys` the line itself. Its dataset is
    (layers, words, dim), or (words, dim) for `top` and `average`; a blank line has no words. The
    file appears under its name only when whole; killed and called again, this goes on.
    """
    way = splitter(split)
    store = Store(
        Path(target),
        {
            "elmokit": __version__,
            "model": embedder.pretrained.fingerprint(),
            "config": json.dumps(asdict(embedder.bilm.config)),
            "state": embedder.state_way,
            "form": form if isinstance(form, str) else ",".join(map(str, form)),
            "split": split,
            "dtype": dtype,
        },
        forget_sentences=forget_sentences,
        sentence_keys=sentence_keys,
    )
    if store.finished:
        return store.done
    carry = embedder.state_way == "carry"
    texts = (line.strip(" \t") for line in lines)
    state = store.skip_known(texts)
    if carry and state is not None:
        embedder.state = state
    wanted = "all" if form == "average" else form
    read = (Line(text, way.words(text)) for text in texts)
    with Progress(total, shown=progress) as shown:
        shown.advance(sentences=store.done, words=0)
        for window in in_windows(read, embedder.tokens_per_batch, lambda line: len(line.words)):
            sentences = [line.words for line in window]
            if carry:
                arrays = [*embedder.embed_stream(sentences, layers=wanted, progress=False)]
            else:
                arrays = embedder.embed(sentences, layers=wanted, progress=False)
            store.append(
                [line.text for line in window],
                [shaped(array, form) for array in arrays],
                state=embedder.state if carry else None,
            )
            shown.advance(sentences=len(window), words=sum(map(len, sentences)))
    store.finish()
    return store.done


def write_vectors(vectors: Vectors, target: Path | None) -> None:
    """One vector a row: as .npy, .tsv or .jsonl by the name's ending, or as TSV on stdout."""
    if target is None:
        _write_tsv(vectors, sys.stdout.buffer)
        return
    writers = {".npy": _write_npy, ".tsv": _write_tsv, ".jsonl": _write_jsonl}
    if target.suffix not in writers:
        raise InputError(f"{target}: ends in none of {', '.join(writers)}; give another name")
    try:
        _write_whole(target, lambda file: writers[target.suffix](vectors, file))
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})") from None


def _write_npy(vectors: Vectors, file: BinaryIO) -> None:
    np.save(file, vectors)


def _write_tsv(vectors: Vectors, file: BinaryIO) -> None:
    for row in vectors:
        file.write(("\t".join(map(str, row)) + "\n").encode())


def _write_jsonl(vectors: Vectors, file: BinaryIO) -> None:
    for row in vectors.tolist():
        file.write((json.dumps(row) + "\n").encode())


def shaped(array: Vectors, form: Form) -> Vectors:
    """A sentence's layers in the shape that a form has in the file."""
    if form == "average":
        mean: Vectors = array.mean(0)
        return mean
    return array[0] if form == "top" else array


class Store:
    """A file of vectors in the making: whole parts in a folder beside it, until all are there.

    `settings` describe the vectors and become attributes of the file; a file begun with other
    settings is not gone on with, and nothing is written over unless `overwrite`. `done` counts
    the lines on disk; when `finished`, all of them are.
    """

    def __init__(
        self,
        target: Path,
        settings: dict[str, str],
        *,
        forget_sentences: bool = False,
        sentence_keys: bool = False,
        overwrite: bool = False,
    ) -> None:
        self._target = target
        self._folder = target.with_name(target.name + ".partial")
        self._keys = _SentenceKeys() if sentence_keys else None
        self._indexed = not forget_sentences and not sentence_keys
        self._settings = {
            **settings,
            "keys": "sentences" if sentence_keys else "numbers",
            "sentence_to_index": str(self._indexed),
        }
        self.done = 0
        self.finished = False
        if overwrite:
            shutil.rmtree(self._folder, ignore_errors=True)
        elif target.exists():
            self._refuse_or_finish()
        if not self.finished:
            self._begin()

    def skip_known(self, texts: Iterator[str]) -> State | None:
        """Take the lines that are done from the input; the state after them, if one was kept."""
        state = None
        for part in self._parts():
            with np.load(part) as kept:
                known = _texts(kept)
                if "output" in kept:
                    output, memory = (torch.from_numpy(kept[k]) for k in ("output", "memory"))
                    state = State(output, memory)
            self._check_keys(known)
            for text in known:
                if text != next(texts, None):
                    raise InputError(
                        f"line {self.done + 1} of the input is not what was embedded into "
                        f"{self._target} before; delete {self._folder} to start anew"
                    )
                self.done += 1
        return state

    def append(
        self, texts: list[str], arrays: list[Vectors], *, state: State | None = None
    ) -> None:
        """The next lines and their vectors, safe on disk when this returns."""
        self._check_keys(texts)
        contents = {
            "texts": np.frombuffer(json.dumps(texts).encode(), np.uint8),
            "words": np.array([array.shape[-2] for array in arrays]),
            "vectors": np.concatenate(arrays, -2).astype(self._settings["dtype"]),
        }
        if state is not None:
            contents |= {"output": state.output.cpu().numpy(), "memory": state.memory.cpu().numpy()}
        part = self._folder / f"part-{self.done:012d}.npz"
        with self._explaining():
            _write_whole(part, lambda file: np.savez(file, **contents))  # type: ignore[arg-type]
        self.done += len(texts)

    def finish(self) -> None:
        """Put the parts together, and give the file its name."""
        unnamed = self._folder / "whole.hdf5"
        with self._explaining():
            with h5py.File(unnamed, "w") as file:
                self._fill(file)
            with open(unnamed, "rb") as written:
                os.fsync(written.fileno())
            unnamed.replace(self._target)
            shutil.rmtree(self._folder)

    def _fill(self, file: h5py.File) -> None:
        index = {}
        number = 0
        for part in self._parts():
            with np.load(part) as kept:
                ends = kept["words"].cumsum()
                arrays = np.split(kept["vectors"], ends[:-1], axis=-2)
                for text, array in zip(_texts(kept), arrays, strict=True):
                    file.create_dataset(text if self._keys else str(number), data=array)
                    if self._indexed:
                        index[text] = str(number)
                    number += 1
        if self._indexed:
            listed = file.create_dataset("sentence_to_index", (1,), h5py.string_dtype())
            listed[0] = json.dumps(index)
        file.attrs.update(self._settings, sentences=number)

    def _begin(self) -> None:
        told = self._folder / "settings.json"
        with self._explaining():
            self._folder.mkdir(exist_ok=True)
            if not told.exists():
                _write_whole(told, lambda file: file.write(json.dumps(self._settings).encode()))
        before = json.loads(told.read_bytes())
        if different := [k for k, value in self._settings.items() if before.get(k) != value]:
            name = different[0]
            raise InputError(
                f"{self._folder}: was begun with another {name} ({before.get(name)}, now "
                f"{self._settings[name]}); finish it as it was begun, or delete it"
            )

    def _refuse_or_finish(self) -> None:
        """Clean up if it was killed in the last step of finish(); nothing else is written over."""
        try:
            with h5py.File(self._target) as file:
                told = dict(file.attrs)
        except OSError:
            told = {}
        self.done = int(told.pop("sentences", 0))
        self.finished = self._folder.exists() and told == self._settings
        if not self.finished:
            raise InputError(f"{self._target}: exists already; delete it, or give another name")
        shutil.rmtree(self._folder)

    def _parts(self) -> list[Path]:
        return sorted(self._folder.glob("part-*.npz"))

    def _check_keys(self, texts: list[str]) -> None:
        for number, text in enumerate(texts, self.done + 1):
            if self._keys is not None and (why := self._keys.refuse(text)):
                raise InputError(
                    f"line {number} ({text[:60]!r}) cannot be a key: {why}; "
                    "use line numbers as keys instead"
                )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self._target}: cannot be written ({error.strerror or error}); "
                + (f"{self.done:,} lines are safe: " if self.done else "")
                + "mend that, and run the same command again"
            ) from None


class _SentenceKeys:
    """Which sentences may be keys of an HDF5 file, where "/" makes groups and "." is no name."""

    def __init__(self) -> None:
        self._datasets: set[str] = set()
        self._groups: set[str] = set()

    def refuse(self, text: str) -> str | None:
        """Why a sentence cannot be a key; None, and it is noted, if it can."""
        names = text.split("/")
        groups = {"/".join(names[:end]) for end in range(1, len(names))}
        if not all(names) or "." in names:
            return "HDF5 has no such name"
        if text in self._datasets:
            return "the sentence stands there twice"
        if text == "sentence_to_index" or text in self._groups or groups & self._datasets:
            return "another sentence stands in its way"
        self._datasets.add(text)
        self._groups |= groups
        return None


def _texts(kept: Mapping[str, npt.NDArray[np.uint8]]) -> list[str]:
    texts: list[str] = json.loads(kept["texts"].tobytes())
    return texts


def _write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """A file that is there only when all of it is."""
    unnamed = path.with_name(f".{path.name}.unfinished")
    try:
        with open(unnamed, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        unnamed.replace(path)
    finally:
        unnamed.unlink(missing_ok=True)
