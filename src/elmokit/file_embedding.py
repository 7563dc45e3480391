"""Lines of text, or proteins, embedded into an HDF5 file; a killed run resumes."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
from elmokit.fasta import Identifiers, Protein, count_proteins, read_fasta
from elmokit.files import find_files
from elmokit.formats.pretrained import Pretrained, stored_config
from elmokit.inference_session import Layers, LayerSelection
from elmokit.model.bilm import State
from elmokit.model.scalar_mix import ScalarMix
from elmokit.pooling import HEADS, Vectors
from elmokit.progress import Progress
from elmokit.text_pooling import TextPooling
from elmokit.tokenizers import check_tokenizer, get_tokenizer

# With a carried state, a part has about so many lines, or as many words as so many batches.
_LINES_PER_CARRIED_PART, _BATCHES_PER_CARRIED_PART = 256, 4


def embed_file(
    embedder: Embedder,
    lines: Iterable[str],
    target: str | Path,
    *,
    layers: Layers = "all",
    pooling: str | None = None,
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
    has no words. With `pooling`, it is (layers, dim) or (dim,); a sentence head reads layers of
    its own, and gives (dim,). The file appears under its name only when it is complete; killed and
    called again, this resumes. Where the embedder carries its state, line k goes on where line
    k - `batch_size` ended, the first ones from zero.

    Example:
        with open("text.txt", encoding="utf-8") as lines:
            elmokit.embed_file(model, lines, "vectors.hdf5", layers="mean")
    """
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}, expected 1 or more")
    check_tokenizer(tokenizer)
    output = _Output.of(embedder, layers, pooling)
    carry = embedder.state_mode == "carry"
    attributes = {
        **output.attributes(),
        "state": f"carry, {batch_size}" if carry else embedder.state_mode,
        "split": tokenizer,
    }
    writer = HDF5Writer(
        Path(target),
        attributes,
        dtype=dtype,
        forget_sentences=forget_sentences,
        sentence_keys=sentence_keys,
    )
    texts = (line.strip(" \t\r\n") for line in lines)

    def windows(texts: Iterator[str]) -> Iterator[list[list[_Line]]]:
        tokenize = get_tokenizer(tokenizer).tokenize
        lines = (_Line(text, tokenize(text)) for text in texts)
        tokens = embedder.tokens_per_batch
        return _carried_windows(lines, batch_size, tokens) if carry else _windows(lines, tokens)

    return output.write(writer, texts, windows, total, show_progress_bar)


def embed_fasta(
    embedder: Embedder,
    source: str | Path,
    target: str | Path,
    *,
    layers: Layers = "all",
    pooling: str | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    identifiers: Identifiers = Identifiers(),  # noqa: B008  (frozen)
    show_progress_bar: bool | None = None,
) -> int:
    """Embed the proteins of FASTA files into an HDF5 file; returns their number.

    `source` is a file, a folder, a glob, or "-". Each character of a sequence, in upper case, is a
    token. The key of a protein is its identifier; its dataset is (layers, residues, dim), or
    (residues, dim) where `layers` is one layer or combines them, as "sum" does. With `pooling`, it
    is (layers, dim) or (dim,). The file appears, and a killed run resumes, as with `embed_file`.
    Where the embedder carries its state, proteins are sorted by length and put into batches of
    more than `tokens_per_batch` residues, as SeqVec did.

    Example:
        elmokit.embed_fasta(model, "proteins.fasta", "proteins.hdf5", layers="sum", pooling="mean")
    """
    output = _Output.of(embedder, layers, pooling, squeeze=isinstance(layers, int))
    carry = embedder.state_mode == "carry"
    attributes = {
        **output.attributes(),
        "state": embedder.state_mode,
        "split": "characters",
        "identifiers": f"{identifiers.field}, {identifiers.separator}",
    }
    writer = HDF5Writer(
        Path(target), attributes, dtype=dtype, forget_sentences=True, identifiers=identifiers
    )
    is_on_disk = all(file.can_be_read_again for file in find_files([str(source)]))
    total = count_proteins(source, identifiers) if is_on_disk else None
    proteins: Iterable[Protein] = read_fasta(source)
    if carry:
        proteins = sorted(proteins, key=lambda protein: len(protein.sequence))

    def windows(texts: Iterator[str]) -> Iterator[list[list[_Line]]]:
        lines = (_Line(text, Protein.parse(text).residues) for text in texts)
        tokens = embedder.tokens_per_batch
        return _seqvec_windows(lines, tokens) if carry else _windows(lines, tokens)

    return output.write(writer, map(str, proteins), windows, total, show_progress_bar)


class _Line(NamedTuple):
    """A line of the input as it is stored, and the words that are embedded."""

    text: str
    words: list[str]


@dataclass(frozen=True)
class _Output:
    """What is computed for each line, and written."""

    embedder: Embedder
    layers: Layers
    one_layer: bool  # the axis of layers is left out
    pooling: TextPooling | None

    @classmethod
    def of(
        cls, embedder: Embedder, layers: Layers, pooling: str | None, *, squeeze: bool = False
    ) -> "_Output":
        selection = LayerSelection.of(embedder.bilm.config, layers)
        one_layer = squeeze or layers == "top" or selection.combination is not None
        if pooling is None:
            return cls(embedder, layers, one_layer, None)
        has_own_layers = pooling in HEADS and layers == "all"
        pool = TextPooling.of(embedder.pretrained, None if has_own_layers else layers, pooling)
        return cls(embedder, pool.layers, one_layer or has_own_layers, pool)

    def attributes(self) -> dict[str, str]:
        """What the file says of its vectors, by the names of version 0.1."""
        pooling = None if self.pooling is None else self.pooling.name
        return {
            **model_attributes(self.embedder.pretrained, pooling),
            "precision": self.embedder.precision,
            "form": stored_layers(self.layers),
            **({} if pooling is None else {"pooling": pooling}),
            "tokens_per_batch": str(self.embedder.tokens_per_batch),
        }

    def write(
        self,
        writer: "HDF5Writer",
        texts: Iterator[str],
        windows: Callable[[Iterator[str]], Iterator[list[list[_Line]]]],
        total: int | None,
        show_progress_bar: bool | None,
    ) -> int:
        """Embed texts that are not done yet, a window of batches at a time; their number."""
        embedder = self.embedder
        carry = embedder.state_mode == "carry"
        with embedder.session.reporting_truncated_words(), writer:
            state = writer.skip_done(texts)
            if writer.finished:
                return writer.done
            if carry and state is None:
                embedder.reset_state()
            elif state is not None:
                embedder.state = state
            with Progress(total, shown=show_progress_bar, done=writer.done) as progress:
                for window in windows(texts):
                    arrays = [array for batch in window for array in self._embed(batch)]
                    lines = [line for batch in window for line in batch]
                    writer.append(
                        [line.text for line in lines],
                        [array[0] for array in arrays] if self.one_layer else arrays,
                        state=embedder.state if carry else None,
                    )
                    progress.advance(len(lines), words=sum(len(line.words) for line in lines))
            writer.finish()
            return writer.done

    def _embed(self, batch: list[_Line]) -> list[Vectors]:
        """The vectors of lines embedded together, (layers, words, dim) or (layers, 1, dim)."""
        arrays = self.embedder.embed(
            [line.words for line in batch], layers=self.layers, show_progress_bar=False
        )
        if self.pooling is None:
            return arrays
        return [
            self.pooling([array], line.words)[:, None]
            for array, line in zip(arrays, batch, strict=True)
        ]


def model_attributes(pretrained: Pretrained, pooling: str | None = None) -> dict[str, str]:
    """What a file of vectors says of the model that computed them."""
    return {
        "model": pretrained.fingerprint(pooling),
        "config": json.dumps(stored_config(pretrained.model.bilm.config)),
    }


def stored_layers(layers: Layers) -> str:
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


def _windows(lines: Iterator[_Line], tokens_per_batch: int) -> Iterator[list[list[_Line]]]:
    """Lines that make a part of the output; the same ones, wherever a killed run resumes."""
    for window in token_windows(lines, tokens_per_batch, lambda line: len(line.words)):
        yield [window]


def _carried_windows(
    lines: Iterator[_Line], batch_size: int, tokens_per_batch: int
) -> Iterator[list[list[_Line]]]:
    """As `_windows`, in batches of so many lines, each of which goes on where the last ended."""
    max_words = _BATCHES_PER_CARRIED_PART * tokens_per_batch
    window: list[list[_Line]] = []
    while batch := [*islice(lines, batch_size)]:
        window.append(batch)
        words = sum(len(line.words) for batch in window for line in batch)
        if len(window) * batch_size >= _LINES_PER_CARRIED_PART or words >= max_words:
            yield window
            window = []
    if window:
        yield window


def _seqvec_windows(lines: Iterator[_Line], batch_residues: int) -> Iterator[list[list[_Line]]]:
    """SeqVec's batches: until they have more residues, or a protein has more than half of them."""
    batch: list[_Line] = []
    residues = 0
    for line in lines:
        batch.append(line)
        residues += len(line.words)
        if residues > batch_residues or len(line.words) > batch_residues / 2:
            yield [batch]
            batch, residues = [], 0
    if batch:
        yield [batch]


class HDF5Writer:
    """An HDF5 file of vectors that is written in parts, and complete when it has its name.

    `attributes` describe the vectors and become attributes of the file; unfinished work with other
    attributes is not resumed. `done` counts the lines on disk. Where the file exists and a kill
    left only its directory of parts, `finished` is true. With `overwrite`, an existing file is
    replaced when the new one is complete, and nothing is resumed. With `identifiers`, the texts
    are proteins, and these are their keys.
    """

    def __init__(
        self,
        target: Path,
        attributes: dict[str, str],
        *,
        dtype: str = "float32",
        forget_sentences: bool = False,
        sentence_keys: bool = False,
        identifiers: Identifiers | None = None,
        overwrite: bool = False,
    ) -> None:
        if target.is_dir() or not target.name:
            raise InputError(f"{target}: is a folder; name a file")
        self._target, self._overwrite, self._dtype = target, overwrite, dtype
        self._identifiers = identifiers
        self._keys = _Keys() if sentence_keys or identifiers else None
        self._pooled = "pooling" in attributes
        self._indexed = not forget_sentences and not sentence_keys
        kind = "sentences" if sentence_keys else "identifiers" if identifiers else "numbers"
        self._attributes = {
            **attributes,
            "dtype": dtype,
            "keys": kind,
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
        path = self._directory.path
        if path.exists() and (self._overwrite or not self._directory.parts()):
            self._clear()  # nobody would resume it, or nothing is done
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
                        f"{self._unit} {self.done + 1} of the input is not the one that was "
                        f"embedded into {self._target} before; delete {self._directory.path} to "
                        "start again"
                    )
                self._count(text)
            state = part.state
        return state

    def append(
        self, texts: list[str], arrays: list[Vectors], *, state: State | None = None
    ) -> None:
        """Add the next lines and their vectors; they are safe on disk when this returns."""
        try:
            self._check_keys(texts)
        except InputError:
            self._clear()  # this input cannot be finished with such keys
            raise
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
                if self._pooled:
                    array = array[..., 0, :]  # noqa: PLW2901
                key = str(number) if self._keys is None else self._key(text)
                dataset = file.create_dataset(key, data=array)
                if self._identifiers:
                    dataset.attrs["original_id"] = Protein.parse(text).original_id
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
        if self._keys is None:
            return
        advice = "choose another identifier" if self._identifiers else "use line numbers as keys"
        for number, text in enumerate(texts, self.done + 1):
            key = self._key(text)
            if reason := self._keys.add(key):
                raise InputError(
                    f"{self._unit} {number} ({key[:60]!r}) cannot be a key: {reason}; "
                    f"{advice} instead"
                )

    def _key(self, text: str) -> str:
        return self._identifiers.of(Protein.parse(text)) if self._identifiers else text

    @property
    def _unit(self) -> str:
        return "protein" if self._identifiers else "line"


class _Part(NamedTuple):
    """Some lines, the number of words of each, the vectors of all, and the state after them."""

    texts: list[str]
    words: list[int]
    vectors: Vectors  # (..., words, dim)
    state: State | None

    def arrays(self) -> Iterable[Vectors]:
        """The vectors of each line."""
        return np.split(self.vectors, np.cumsum(self.words)[:-1], axis=-2)


class _Keys:
    """The texts that are keys of an HDF5 file, where "/" makes groups and "." is no name."""

    def __init__(self) -> None:
        self._datasets: set[str] = set()
        self._groups: set[str] = set()

    def add(self, text: str) -> str | None:
        """Add a text; returns the reason if it cannot be a key."""
        names = text.split("/")
        groups = {"/".join(names[:end]) for end in range(1, len(names))}
        if not all(names) or "." in names or "\0" in text:
            return "HDF5 allows no such name"
        if text in self._datasets:
            return "it is the key of an earlier one"
        if text in self._groups or groups & self._datasets:
            return "it and an earlier key cannot be in one HDF5 file"
        self._datasets.add(text)
        self._groups |= groups
        return None
