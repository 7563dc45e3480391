"""A text file embedded into HDF5, line by line; a killed run resumes."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple
from zipfile import BadZipFile

import h5py
import numpy as np
import torch

from elmokit import __version__
from elmokit.atomic import DirectoryLock, rename_atomically, write_atomically
from elmokit.batching import token_windows
from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.formats.pretrained import Pretrained, stored_config
from elmokit.inference import LayerSelection
from elmokit.model.bilm import State
from elmokit.pooling import Vectors
from elmokit.progress import Progress
from elmokit.tokenizers import check_tokenizer, get_tokenizer

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
    tokenizer: str = "spaces",
    batch_size: int = 1,
    forget_sentences: bool = False,
    sentence_keys: bool = False,
    total: int | None = None,
    show_progress_bar: bool | None = None,
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
    LayerSelection.of(
        embedder.bilm.config, wanted, "both", boundaries=False
    )  # refuses what is not there
    check_tokenizer(tokenizer)
    carry = embedder.state_mode == "carry"
    settings = {
        **describe(embedder.pretrained),
        "precision": embedder.precision,
        "state": f"carry, {batch_size}" if carry else embedder.state_mode,
        "form": form if isinstance(form, str) else ",".join(map(str, form)),
        "split": tokenizer,
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
        with Progress(total, shown=show_progress_bar, done=store.done) as shown:
            for window in _windows(texts, embedder, tokenizer, batch_size):
                sentences = [line.words for line in window]
                arrays: list[Vectors] = []
                for batch in _batches(sentences, batch_size if carry else len(sentences)):
                    arrays += embedder.embed(batch, layers=wanted, show_progress_bar=False)
                store.append(
                    [line.text for line in window],
                    [shaped(array, form) for array in arrays],
                    state=embedder.state if carry else None,
                )
                shown.advance(len(window), words=sum(map(len, sentences)))
        store.finish()
        return store.done


def describe(pretrained: Pretrained) -> dict[str, str]:
    """What a file of vectors says of the model that made them."""
    return {
        "elmokit": __version__,
        "model": pretrained.fingerprint(),
        "config": json.dumps(stored_config(pretrained.model.bilm.config)),
    }


def shaped(array: Vectors, form: Form) -> Vectors:
    """A sentence's layers, as a form wants them computed, in the shape that it has in the file."""
    if form == "average":
        mean: Vectors = array.mean(0)
        return mean
    return array[0] if form == "top" else array


def _windows(
    texts: Iterator[str], embedder: Embedder, tokenizer: str, batch_size: int
) -> Iterator[list[Line]]:
    """Lines that become a part together: the same ones, wherever a killed run goes on."""
    way = get_tokenizer(tokenizer)
    read = (Line(text, way.tokenize(text)) for text in texts)
    if embedder.state_mode != "carry":
        yield from token_windows(read, embedder.tokens_per_batch, lambda line: len(line.words))
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


class Store:
    """A file of vectors in the making: whole parts in a folder beside it, until all are there.

    `settings` describe the vectors and become attributes of the file; a file begun with other
    settings is not gone on with. `done` counts the lines on disk. Where the file is there already
    and only its folder was left by a kill, `finished` is true. With `overwrite`, an existing file
    is replaced when the new one is whole, and nothing is gone on with.
    """

    def __init__(
        self,
        target: Path,
        settings: dict[str, str],
        *,
        dtype: str = "float32",
        forget_sentences: bool = False,
        sentence_keys: bool = False,
        overwrite: bool = False,
    ) -> None:
        if target.is_dir() or not target.name:
            raise InputError(f"{target}: is a folder; name a file")
        self._target, self._overwrites = target, overwrite
        ending = f".{os.getpid()}.partial" if overwrite else ".partial"
        self._folder = target.with_name(target.name + ending)
        self._dtype = dtype
        self._keys = _SentenceKeys() if sentence_keys else None
        self._indexed = not forget_sentences and not sentence_keys
        self._settings = {
            **settings,
            "dtype": dtype,
            "keys": "sentences" if sentence_keys else "numbers",
            "sentence_to_index": str(self._indexed),
        }
        self._digest = hashlib.sha256()
        self._known_lines: object = None  # the digest of the lines of a file that is there
        self._claim: DirectoryLock | None = None
        self.done = 0
        self.finished = target.exists() and not overwrite
        if self.finished:
            self._refuse_unless_left_over()
            return
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        if self._overwrites and self._folder.exists():
            self._clear()  # nobody would go on with it
        self.close()

    def close(self) -> None:
        """Let another process go on with the file."""
        if self._claim is not None:
            self._claim.release()

    def skip_known(self, texts: Iterator[str]) -> State | None:
        """Take the lines that are done from the input; the state after them, if one was kept."""
        if self.finished:
            self._check_lines(list(texts))
            self._clear()
            return None
        state = None
        for path in self._parts():
            part = self._load(path)
            self._check_keys(part.texts)
            for text in part.texts:
                if text != next(texts, None):
                    raise InputError(
                        f"line {self.done + 1} of the input is not what was embedded into "
                        f"{self._target} before; delete {self._folder} to start anew"
                    )
                self._count(text)
            state = part.state
        return state

    def append(
        self, texts: list[str], arrays: list[Vectors], *, state: State | None = None
    ) -> None:
        """The next lines and their vectors, safe on disk when this returns."""
        self._check_keys(texts)
        contents = {
            "texts": np.frombuffer(json.dumps(texts).encode(), np.uint8),
            "words": np.array([array.shape[-2] for array in arrays]),
            "vectors": np.concatenate(arrays, -2).astype(self._dtype),
        }
        if state is not None:
            contents |= {"output": state.hidden.cpu().numpy(), "memory": state.cell.cpu().numpy()}
        path = self._folder / f"part-{self.done:012d}.npz"
        with self._explaining():
            write_atomically(path, lambda file: np.savez(file, **contents))  # type: ignore[arg-type]
        for text in texts:
            self._count(text)

    def finish(self) -> None:
        """Put the parts together, and give the file its name."""
        unnamed = self._folder / "whole.hdf5"
        with self._explaining():
            self._reserve(unnamed)
            with h5py.File(unnamed, "w") as file:
                self._fill(file)
            rename_atomically(unnamed, self._target)
            self._clear()

    def _fill(self, file: h5py.File) -> None:
        index = {}
        number = 0
        for path in self._parts():
            part = self._load(path)
            for text, array in zip(part.texts, part.arrays(), strict=True):
                file.create_dataset(text if self._keys else str(number), data=array)
                if self._indexed:
                    index[text] = str(number)
                number += 1
        assert number == self.done, f"{number} lines in the parts, but {self.done} were embedded"
        if self._indexed:
            listed = file.create_dataset("sentence_to_index", (1,), h5py.string_dtype())
            listed[0] = json.dumps(index, ensure_ascii=False)
        file.attrs.update(self._settings, sentences=number, lines=self._digest.hexdigest())

    def _reserve(self, unnamed: Path) -> None:
        """Fail now if there is no room: HDF5 may take the process down when it finds none."""
        needed = sum(path.stat().st_size + 2**16 for path in self._parts()) + 4096 * self.done
        if hasattr(os, "posix_fallocate"):
            with open(unnamed, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, needed + 2**20)

    def _begin(self) -> None:
        told = self._folder / "settings.json"
        with self._explaining():
            self._folder.mkdir(exist_ok=True)
            self._claim = DirectoryLock(
                self._folder, f"{self._target}: another process is writing it; wait for its end"
            )
            if self._overwrites:
                self._remove_files()  # of a killed process that had this one's number
            for left in self._folder.glob(".settings.json.*.unfinished"):
                left.unlink()
            if not told.exists() and any(self._folder.iterdir()):
                raise InputError(f"{self._folder}: is in the way, and not of elmokit; move it")
            if not told.exists():
                write_atomically(told, lambda file: file.write(json.dumps(self._settings).encode()))
        before = json.loads(told.read_text("utf-8"))
        if different := [k for k, value in self._settings.items() if before.get(k) != value]:
            name = different[0]
            raise InputError(
                f"{self._folder}: was begun with another {name} ({before.get(name)}, now "
                f"{self._settings[name]}); finish it as it was begun, or delete it"
            )

    def _refuse_unless_left_over(self) -> None:
        """Nothing is written over; but a kill may have come after the file had its name."""
        told: dict[str, object] = {}
        left = self._folder.is_dir() and {path.name for path in self._folder.iterdir()}
        if left == set() or (left and "settings.json" in left):
            try:
                with h5py.File(self._target) as file:
                    told = dict(file.attrs)
            except OSError:
                pass  # not an HDF5 file, so not ours
        if {name: told.get(name) for name in self._settings} != self._settings:
            self._refuse_existing()
        self._known_lines = told.get("lines")

    def _check_lines(self, texts: list[str]) -> None:
        for text in texts:
            self._count(text)
        if self._digest.hexdigest() != self._known_lines:
            self._refuse_existing()

    def _refuse_existing(self) -> None:
        raise InputError(f"{self._target}: exists already; delete it, or give another name")

    def _clear(self) -> None:
        """Remove the folder and what is ours in it; the settings last, as they say it is ours."""
        self.close()
        self._remove_files()
        self._folder.rmdir()

    def _remove_files(self) -> None:
        for path in [*self._folder.glob(".*.unfinished"), *self._parts()]:
            path.unlink()
        for name in ("whole.hdf5", "settings.json"):
            (self._folder / name).unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        return sorted(self._folder.glob("part-*.npz"))

    def _load(self, path: Path) -> "_Part":
        try:
            with open(path, "rb") as file, np.load(file) as kept:
                state = None
                if "output" in kept:
                    state = State(*(torch.from_numpy(kept[k]) for k in ("output", "memory")))
                texts = json.loads(kept["texts"].tobytes())
                return _Part(texts, kept["words"].tolist(), kept["vectors"], state)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InputError(
                f"{path}: is damaged ({error}); delete {self._folder} to start anew"
            ) from None

    def _count(self, text: str) -> None:
        self._digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        self.done += 1

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
        except (OSError, RuntimeError) as error:  # h5py raises either
            reason = getattr(error, "strerror", None) or error
            raise OutputError(
                f"{self._target}: cannot be written ({reason}); "
                + (f"{self.done:,} lines are safe: " if self.done else "")
                + "mend that, and run the same command again"
            ) from None


class _Part(NamedTuple):
    """Some lines, how many words each has, the vectors of all, and the state after them."""

    texts: list[str]
    words: list[int]
    vectors: Vectors  # (..., words, dim)
    state: State | None

    def arrays(self) -> Iterable[Vectors]:
        """The vectors of each line."""
        return np.split(self.vectors, np.cumsum(self.words)[:-1], axis=-2)


class _SentenceKeys:
    """Which sentences may be keys of an HDF5 file, where "/" makes groups and "." is no name."""

    def __init__(self) -> None:
        self._datasets: set[str] = set()
        self._groups: set[str] = set()

    def refuse(self, text: str) -> str | None:
        """Why a sentence cannot be a key; None, and it is noted, if it can."""
        names = text.split("/")
        groups = {"/".join(names[:end]) for end in range(1, len(names))}
        if not all(names) or "." in names or "\0" in text:
            return "HDF5 has no such name"
        if text in self._datasets:
            return "the sentence stands there twice"
        if text in self._groups or groups & self._datasets:
            return "another sentence stands in its way"
        self._datasets.add(text)
        self._groups |= groups
        return None
