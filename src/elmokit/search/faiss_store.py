"""An index in a folder: passages in SQLite, vectors in FAISS; and the builder of one."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from elmokit.atomic import DirectoryLock, ResumableDirectory, write_atomically
from elmokit.errors import FormatError, OutputError
from elmokit.pooling import Vectors
from elmokit.search.faiss_vectors import FaissVectors, choose_kind, load_faiss, sample_rows
from elmokit.search.lexical import LexicalPart, TermStatistics
from elmokit.search.passage_metadata import PassageMetadata
from elmokit.search.passage_vectors import IndexConfig, current_manifest
from elmokit.search.passages import Passage, VectorSource
from elmokit.search.store import (
    BuildProgress,
    Counts,
    Files,
    HalfVectors,
    Hit,
    PassageRef,
    no_index_error,
)
from elmokit.whitening import Whitening

_CONFIG, _METADATA = "index.json", "passages.sqlite"
_VECTORS, _WHITENING = "vectors.faiss", "whitening.npy"
_MANIFEST, _PART = "building.json", "parts/{:012d}.npy"  # only while an index is built

_METADATA_FILES = _METADATA, f"{_METADATA}-journal"  # SQLite's names
_VECTORS_PER_CHUNK = 2**15  # of one word, which may have millions


class FaissStore:
    """The store of an index in a folder.

    A vector that the metadata does not list does not exist, whatever FAISS has: FAISS's file is
    written first, so that a kill between the two leaves the index as it was. The vectors are read
    again when another process has changed the metadata.
    """

    def __init__(
        self, folder: Path, config: IndexConfig, whitening: Whitening, metadata: PassageMetadata
    ) -> None:
        self.folder, self.name = folder, str(folder)
        self.config, self.whitening = config, whitening
        self._metadata = metadata
        self._vectors: FaissVectors
        self._version: int | None = None  # of the metadata when the vectors were read
        self._added: list[tuple[Sequence[Passage], Sequence[VectorSource], int]] = []
        self._deleted: list[int] = []
        self._refresh()

    @classmethod
    def open(cls, folder: Path) -> "FaissStore":
        if not (folder / _CONFIG).exists():
            raise no_index_error(str(folder), started=(folder / _METADATA).exists())
        config = IndexConfig.from_json((folder / _CONFIG).read_bytes(), str(folder / _CONFIG))
        path = folder / _WHITENING
        whitening = Whitening.from_bytes(path.read_bytes(), str(path))
        metadata = PassageMetadata.open(folder / _METADATA)
        try:
            return cls(folder, config, whitening, metadata)
        except BaseException:
            metadata.close()
            raise

    @property
    def dim(self) -> int:
        return self._vectors.dim

    def counts(self) -> Counts:
        return self._metadata.counts()

    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    def nearest(self, query: Vectors, k: int, files: Files = None) -> list[Hit]:
        self._refresh()
        if files is not None:
            return self._nearest_of(self._metadata.vectors_of_files(files), query, k)
        scores, ids = self._vectors.search(query[None], k)
        filled = ids[0] >= 0
        return self._hits(ids[0][filled].tolist(), scores[0][filled])

    def nearest_occurrences(
        self, word: str, query: Vectors, k: int, files: Files = None
    ) -> list[Hit]:
        self._refresh()
        ids = self._metadata.occurrences_of(word)
        if files is not None:
            wanted = set(self._metadata.vectors_of_files(files))
            ids = [id_ for id_ in ids if id_ in wanted]
        return self._nearest_of(ids, query, k)

    def cosines(self, query: Vectors, passages: Sequence[int]) -> dict[int, float]:
        self._refresh()
        listed = self._metadata.vectors_of(passages)
        pairs = [(id_, passage) for id_, passage in listed if id_ in self._vectors]
        best = dict[int, float]()
        cosines = self._cosines([id_ for id_, _ in pairs], query)
        for (_, passage), cosine in zip(pairs, cosines.tolist(), strict=True):
            best[passage] = max(cosine, best.get(passage, cosine))
        return best

    def files(self) -> list[str]:
        return self._metadata.files()

    def passages_of(self, file: str) -> list[int]:
        return self._metadata.passages_of(file)

    def missing(self, ids: Sequence[int]) -> list[int]:
        return self._metadata.missing(ids)

    @contextmanager
    def changing(self) -> Iterator[None]:
        # The metadata is written at the end only, so that others can search meanwhile.
        with _lock(self.folder):
            _build_directory(self.folder).clear()  # what a build killed at its very end left
            self._refresh()
            try:
                yield
                self._write_changes()
            except BaseException:
                if self._added:
                    self._version = None  # the vectors in memory have rows that must go
                self._metadata.rollback()
                raise
            finally:
                self._added, self._deleted = [], []

    def add(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: Vectors
    ) -> None:
        self._added.append((passages, sources, len(self._vectors)))
        self._vectors.add(vectors)

    def delete(self, ids: Sequence[int]) -> None:
        self._deleted += ids

    def close(self) -> None:
        self._metadata.close()

    @property
    def lexical_part(self) -> LexicalPart | None:
        return self._metadata.lexical_part()

    def term_statistics(self, terms: Iterable[str]) -> TermStatistics:
        return self._metadata.term_statistics(terms)

    def best_by_terms(
        self, weights: Mapping[str, float], k: int, files: Files = None
    ) -> list[PassageRef]:
        return self._metadata.best_by_terms(weights, k, files)

    def sample_texts(self, limit: int) -> list[str]:
        return self._metadata.sample_texts(limit)

    def make_lexical_part(self, part: LexicalPart) -> None:
        self._metadata.make_terms(part, self.config.words)

    def _refresh(self) -> None:
        """Read the vectors if the metadata has changed since they were read."""
        version = self._metadata.version()
        if version == self._version:
            return
        assert self.config.kind != "auto"
        # The metadata first: whoever adds writes the vectors before it.
        next_id, listed = self._metadata.next_vector_id(), self._metadata.counts().vectors
        vectors = FaissVectors.open(self.folder / _VECTORS, kind=self.config.kind)
        if next_id > len(vectors):
            raise FormatError(
                f"{self.folder / _METADATA}: lists {next_id} vectors, but {_VECTORS} has "
                f"{len(vectors)}; build the index again"
            )
        if listed < len(vectors):
            vectors.delete([*set(range(len(vectors))).difference(self._metadata.vector_ids())])
        self._vectors, self._version = vectors, version

    def _write_changes(self) -> None:
        if self._added:
            self._vectors.save()
        for passages, sources, first in self._added:
            self._metadata.add(passages, sources, first=first)
        deleted_vectors = self._metadata.delete(self._deleted)
        self._metadata.commit()
        self._vectors.delete(deleted_vectors)

    def _nearest_of(self, ids: Sequence[int], query: Vectors, k: int) -> list[Hit]:
        """The nearest of some vectors, compared with each of them."""
        ids = [id_ for id_ in ids if id_ in self._vectors]
        cosines = self._cosines(ids, query)
        best = np.argsort(-cosines, kind="stable")[:k]
        return self._hits([ids[n] for n in best], cosines[best])

    def _cosines(self, ids: Sequence[int], query: Vectors) -> Vectors:  # -> (ids,)
        starts = range(0, len(ids), _VECTORS_PER_CHUNK)
        chunks = (ids[start : start + _VECTORS_PER_CHUNK] for start in starts)
        cosines = [self._vectors.vectors(chunk) @ query for chunk in chunks]
        return np.concatenate([np.zeros(0, np.float32), *cosines])

    def _hits(self, ids: Sequence[int], scores: Vectors) -> list[Hit]:
        refs = self._metadata.passage_refs(ids)  # without those that another process has deleted
        pairs = zip(ids, scores, strict=True)
        return [Hit.by_cosine(score, refs[id_]) for id_, score in pairs if id_ in refs]


class FaissBuilder:
    """A folder where an index is being built: metadata, and one file of vectors for each part."""

    def __init__(self, directory: ResumableDirectory, metadata: PassageMetadata) -> None:
        self.folder, self.name = directory.path, str(directory.path)
        self._directory, self._metadata = directory, metadata

    @classmethod
    @contextmanager
    def open(cls, folder: Path, manifest: Mapping[str, Any]) -> Iterator["FaissBuilder"]:
        """Start a build in a new or empty folder, or resume the same one."""
        load_faiss()  # better missing now than after hours
        if folder.is_file():
            raise OutputError(f"{folder}: is a file, expected the name of a new folder")
        if (folder / _CONFIG).exists():
            with _lock(folder):
                _build_directory(folder).clear()
            raise OutputError(
                f"{folder}: there is an index already; add to it, or name another folder"
            )
        _update_manifest(folder / _MANIFEST)
        with _build_directory(folder, manifest) as directory:
            metadata = PassageMetadata.create(folder / _METADATA, stemmer=manifest.get("stemmer"))
            try:
                yield cls(directory, metadata)
            finally:
                metadata.close()

    def progress(self) -> BuildProgress:
        counts = self._metadata.counts()
        return BuildProgress(counts.passages, counts.vectors, self._metadata.last_text())

    def add_part(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: HalfVectors
    ) -> None:
        first = self._metadata.next_vector_id()
        # A part that a killed build wrote, but not its metadata, has this key too: it is replaced.
        self._directory.write_part(first, lambda file: np.save(file, vectors))
        self._metadata.add(passages, sources, first=first)
        self._metadata.commit()

    def parts(self) -> Iterator[HalfVectors]:
        for path in self._directory.parts():
            yield np.load(path, allow_pickle=False)

    def sample_texts(self, limit: int) -> list[str]:
        return self._metadata.sample_texts(limit)

    def finish(
        self, config: IndexConfig, whitening: Whitening, lexical_part: LexicalPart | None
    ) -> None:
        if lexical_part is not None:
            self._metadata.finish_terms(lexical_part.word_whitening, config.words)
            self._metadata.commit()
        write_atomically(self.folder / _WHITENING, whitening.to_bytes())
        vectors = self._whitened_vectors(config, whitening)
        vectors.save()
        text = replace(config, kind=vectors.kind).to_json()
        write_atomically(self.folder / _CONFIG, text)  # now it is an index
        self._directory.clear()

    def remove(self) -> None:
        self._metadata.close()
        self._directory.clear(*_METADATA_FILES)

    def _whitened_vectors(self, config: IndexConfig, whitening: Whitening) -> FaissVectors:
        rows = self.progress().vectors
        kind = choose_kind(rows) if config.kind == "auto" else config.kind
        stride = rows // sample_rows(kind, rows)  # evenly from all of the text
        sample = whitening.transform(np.concatenate([part[::stride] for part in self.parts()]))
        vectors = FaissVectors.create(self.folder / _VECTORS, kind=kind, sample=sample, rows=rows)
        for part in self.parts():
            vectors.add(whitening.transform(part))
        return vectors


def _lock(folder: Path) -> DirectoryLock:
    return DirectoryLock(
        folder, f"{folder}: another process is writing it; wait until it has ended"
    )


def _update_manifest(path: Path) -> None:
    """Bring the manifest of a build that an earlier version started up to date."""
    # A damaged one is refused by who reads it.
    with suppress(FileNotFoundError, ValueError, RecursionError):
        stored = json.loads(path.read_text("utf-8"))
        if isinstance(stored, dict) and (current := current_manifest(stored)) != stored:
            write_atomically(path, json.dumps(current, indent=1))


def _build_directory(
    folder: Path, manifest: Mapping[str, Any] = MappingProxyType({})
) -> ResumableDirectory:
    return ResumableDirectory(folder, manifest, manifest_name=_MANIFEST, part_name=_PART)
