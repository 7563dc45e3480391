"""A text file embedded line by line into HDF5; a killed run resumes."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple
from zipfile import BadZipFile

import h5py
import numpy as np
import torch

from elmokit import __version__
from elmokit.atomic import ResumableDirectory
from elmokit.batching import token_windows
from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained, stored_config
from elmokit.inference_session import Layers, LayerSelection
from elmokit.model.bilm import State
from elmokit.model.scalar_mix import ScalarMix
from elmokit.pooling import Vectors
from elmokit.progress import Progress
from elmokit.tokenizers import check_tokenizer, get_tokenizer

# With a carried state, a part has about so many lines, or as many words as so many batches.
_LINES_PER_CARRIED_PART, _BATCHES_PER_CARRIED_PART = 256, 4


def embed_file(
    embedder: Embedder,
    lines: Iterable[str],
    target: str | Path,
    *,
    layers: Layers = "all",
    dtype: Literal["float32", "float16"] = "float32",
    tokenizer: str = "spaces",
    batch_size: int = 1,
    forget_sentences: bool = False,
    sentence_keys: bool = False,
    total: int | None = None,
    show_progress_bar: bool | None = None,
) -> int:
    """Embed one sentence per line into an HDF5 file; returns the number of lines.

    The key of a line is its number from 0, or with `sentence_keys` the line itself. Its dataset is
    (layers, words, dim), or (words, dim) where `layers` is "top" or combines layers; a blank line
    has no words. The file appears under its name only when it is complete; killed and called
    again, this resumes. Where the embedder carries its state, line k goes on where line
    k - `batch_size` ended, the first ones from zero.
    """
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}, expected 1 or more")
    selection = LayerSelection.of(embedder.bilm.config, layers)
    one_layer = layers == "top" or selection.combination is not None
    check_tokenizer(tokenizer)
    carry = embedder.state_mode == "carry"
    attributes = {  # by the names of version 0.1
        **model_attributes(embedder.pretrained),
        "precision": embedder.precision,
        "state": f"carry, {batch_size}" if carry else embedder.state_mode,
        "form": _stored_layers(layers),
        "split": tokenizer,
        "tokens_per_batch": str(embedder.tokens_per_batch),
    }
    texts = (line.strip(" \t\r\n") for line in lines)
    with (
        embedder.session.reporting_truncated_words(),
        HDF5Writer(
            Path(target),
            attributes,
            dtype=dtype,
            forget_sentences=forget_sentences,
            sentence_keys=sentence_keys,
        ) as writer,
    ):
        state = writer.skip_done(texts)
        if writer.finished:
            return writer.done
        if carry and state is None:
            embedder.reset_state()
        elif state is not None:
            embedder.state = state
        with Progress(total, shown=show_progress_bar, done=writer.done) as progress:
            for window in _windows(texts, embedder, tokenizer, batch_size):
                sentences = [line.words for line in window]
                size = batch_size if carry else len(sentences)
                arrays: list[Vectors] = []
                for start in range(0, len(sentences), size):
                    arrays += embedder.embed(
                        sentences[start : start + size], layers=layers, show_progress_bar=False
                    )
                writer.append(
                    [line.text for line in window],
                    [array[0] for array in arrays] if one_layer else arrays,
                    state=embedder.state if carry else None,
                )
                progress.advance(len(window), words=sum(map(len, sentences)))
        writer.finish()
        return writer.done


def model_attributes(pretrained: Pretrained) -> dict[str, str]:
    """What a file of vectors says of the model that computed them."""
    return {
        "model": pretrained.fingerprint(),
        "config": json.dumps(stored_config(pretrained.model.bilm.config)),
    }


def _stored_layers(layers: Layers) -> str:
    """The choice of layers as files name it."""
    if layers == "mean":
        return "average"
    if isinstance(layers, ScalarMix):
        weights = torch.cat([layers.weights.detach().cpu(), layers.scale.detach().cpu()[None]])
        digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
        return f"mix {digest[:16]}, {layers.normalize}"
    if isinstance(layers, str):
        return layers
    return str(layers) if isinstance(layers, int) else ",".join(map(str, layers))


class _Line(NamedTuple):
    text: str
    words: list[str]


def _windows(
    texts: Iterator[str], embedder: Embedder, tokenizer_name: str, batch_size: int
) -> Iterator[list[_Line]]:
    """Lines that make a part; the same ones, wherever a killed run resumes."""
    tokenizer = get_tokenizer(tokenizer_name)
    lines = (_Line(text, tokenizer.tokenize(text)) for text in texts)
    if embedder.state_mode != "carry":
        yield from token_windows(lines, embedder.tokens_per_batch, lambda line: len(line.words))
        return
    max_words = _BATCHES_PER_CARRIED_PART * embedder.tokens_per_batch
    window: list[_Line] = []
    while batch := [*islice(lines, batch_size)]:
        window += batch
        words = sum(len(line.words) for line in window)
        if len(window) >= _LINES_PER_CARRIED_PART or words >= max_words:
            yield window
            window = []
    if window:
        yield window


class HDF5Writer:
    """An HDF5 file of vectors that is written in parts, and complete when it has its name.

    `attributes` describe the vectors and become attributes of the file; unfinished work with other
    attributes is not resumed. `done` counts the lines on disk. Where the file exists and a kill
    left only its directory of parts, `finished` is true. With `overwrite`, an existing file is
    replaced when the new one is complete, and nothing is resumed.
    """

    def __init__(
        self,
        target: Path,
        attributes: dict[str, str],
        *,
        dtype: str = "float32",
        forget_sentences: bool = False,
        sentence_keys: bool = False,
        overwrite: bool = False,
    ) -> None:
        if target.is_dir() or not target.name:
            raise InputError(f"{target}: is a folder; name a file")
        self._target, self._overwrite, self._dtype = target, overwrite, dtype
        self._keys = _SentenceKeys() if sentence_keys else None
        self._indexed = not forget_sentences and not sentence_keys
        self._attributes = {
            **attributes,
            "dtype": dtype,
            "keys": "sentences" if sentence_keys else "numbers",
            "sentence_to_index": str(self._indexed),
        }
        ending = f".{os.getpid()}.partial" if overwrite else ".partial"
        self._directory = ResumableDirectory(
            target.with_name(target.name + ending),
            self._attributes,
            label=str(target),
            manifest_name="settings.json",
        )
        self._lines_digest = hashlib.sha256()
        self.done = 0
        self.finished = False

    def __enter__(self) -> "HDF5Writer":
        path = self._directory.path
        if self._target.exists() and not self._overwrite:
            self._finished_attributes()  # refuses another file
            self.finished = True
            return self
        if self._overwrite and (path / "settings.json").exists():
            shutil.rmtree(path)  # left by a killed process that had this one's number
        self._directory.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._overwrite and self._directory.path.exists():
            self._clear()  # nobody would resume it
        self._directory.close()

    def skip_done(self, texts: Iterator[str]) -> State | None:
        """Take the lines that are done from the input; returns the state after them, if any."""
        if self.finished:
            for text in texts:
                self._count(text)
            if self._lines_digest.hexdigest() != self._finished_attributes()["lines"]:
                self._refuse_existing()
            self._clear()
            return None
        state = None
        for path in self._directory.parts():
            part = self._load(path)
            self._check_keys(part.texts)
            for text in part.texts:
                if text != next(texts, None):
                    raise InputError(
                        f"line {self.done + 1} of the input is not the one that was embedded into "
                        f"{self._target} before; delete {self._directory.path} to start again"
                    )
                self._count(text)
            state = part.state
        return state

    def append(
        self, texts: list[str], arrays: list[Vectors], *, state: State | None = None
    ) -> None:
        """Add the next lines and their vectors; they are safe on disk when this returns."""
        self._check_keys(texts)
        contents = {
            "texts": np.frombuffer(json.dumps(texts).encode(), np.uint8),
            "words": np.array([array.shape[-2] for array in arrays]),
            "vectors": np.concatenate(arrays, -2).astype(self._dtype),
        }
        if state is not None:
            contents |= {"output": state.hidden.cpu().numpy(), "memory": state.cell.cpu().numpy()}
        self._directory.write_part(
            self.done,
            lambda file: np.savez(file, **contents),  # type: ignore[arg-type]
        )
        for text in texts:
            self._count(text)

    def finish(self) -> None:
        """Put the parts together, and give the file its name."""
        with self._directory.explaining_errors():
            complete = self._directory.path / "whole.hdf5"
            self._reserve(complete)
            with h5py.File(complete, "w") as file:
                self._fill(file)
            self._directory.publish(complete.name, self._target)

    def _fill(self, file: h5py.File) -> None:
        index = {}
        number = 0
        for path in self._directory.parts():
            part = self._load(path)
            for text, array in zip(part.texts, part.arrays(), strict=True):
                file.create_dataset(text if self._keys else str(number), data=array)
                if self._indexed:
                    index[text] = str(number)
                number += 1
        assert number == self.done, f"{number} lines in the parts, but {self.done} were embedded"
        if self._indexed:
            dataset = file.create_dataset("sentence_to_index", (1,), h5py.string_dtype())
            dataset[0] = json.dumps(index, ensure_ascii=False)
        file.attrs.update(
            self._attributes,
            elmokit=__version__,
            sentences=number,
            lines=self._lines_digest.hexdigest(),
        )

    def _reserve(self, path: Path) -> None:
        """Fail now if the disk is too full: HDF5 may take the process down when it finds out."""
        parts = self._directory.parts()
        needed = sum(part.stat().st_size + 2**16 for part in parts) + 4096 * self.done
        if hasattr(os, "posix_fallocate"):
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, needed + 2**20)

    def _finished_attributes(self) -> dict[str, object]:
        """The attributes of a file that a run like this one finished before it was killed.

        No file is overwritten, but a kill may have come after the file had its name.
        """
        attributes: dict[str, object] = {}
        path = self._directory.path
        left = {file.name for file in path.iterdir()} if path.is_dir() else None
        if left is not None and (not left or "settings.json" in left):
            try:
                with h5py.File(self._target) as file:
                    attributes = dict(file.attrs)
            except OSError:
                pass  # not an HDF5 file, so not one of ours
        if {name: attributes.get(name) for name in self._attributes} != self._attributes:
            self._refuse_existing()
        return attributes

    def _refuse_existing(self) -> None:
        raise InputError(f"{self._target}: exists already; delete it, or give another name")

    def _clear(self) -> None:
        self._directory.clear("whole.hdf5")

    def _load(self, path: Path) -> "_Part":
        try:
            with open(path, "rb") as file, np.load(file) as arrays:
                state = None
                if "output" in arrays:
                    state = State(*(torch.from_numpy(arrays[k]) for k in ("output", "memory")))
                texts = json.loads(arrays["texts"].tobytes())
                return _Part(texts, arrays["words"].tolist(), arrays["vectors"], state)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InputError(
                f"{path}: is damaged ({error}); delete {self._directory.path} to start again"
            ) from None

    def _count(self, text: str) -> None:
        self._lines_digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        self.done += 1

    def _check_keys(self, texts: list[str]) -> None:
        for number, text in enumerate(texts, self.done + 1):
            if self._keys is not None and (reason := self._keys.add(text)):
                raise InputError(
                    f"line {number} ({text[:60]!r}) cannot be a key: {reason}; "
                    "use line numbers as keys instead"
                )


class _Part(NamedTuple):
    """Some lines, the number of words of each, the vectors of all, and the state after them."""

    texts: list[str]
    words: list[int]
    vectors: Vectors  # (..., words, dim)
    state: State | None

    def arrays(self) -> Iterable[Vectors]:
        """The vectors of each line."""
        return np.split(self.vectors, np.cumsum(self.words)[:-1], axis=-2)


class _SentenceKeys:
    """The sentences that are keys of an HDF5 file, where "/" makes groups and "." is no name."""

    def __init__(self) -> None:
        self._datasets: set[str] = set()
        self._groups: set[str] = set()

    def add(self, text: str) -> str | None:
        """Add a sentence; returns the reason if it cannot be a key."""
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
