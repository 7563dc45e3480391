"""A folder becomes the site of a build: parts that outlive a kill, then the files of a store."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from elmokit.atomic import write_atomically
from elmokit.errors import InputError, OutputError
from elmokit.search.catalog import Catalog
from elmokit.search.folder import (
    BEGUN,
    CATALOG,
    PARTS,
    RECIPE,
    VECTORS,
    WHITENING,
    claim,
    clear_build,
)
from elmokit.search.nearest import FaissVectors, choose_kind, load_faiss, sample_rows
from elmokit.search.passages import Passage, Row
from elmokit.search.recipe import Begun, Recipe
from elmokit.search.site import HalfVectors, Kept
from elmokit.whitening import Whitening

_OF_CATALOG = CATALOG, f"{CATALOG}-journal"  # SQLite's names
_UNFINISHED = f".{BEGUN}.*.unfinished"  # what a kill leaves of the first file of a build


class FolderSite:
    """A folder where an index is being made: a catalog of passages, and parts of their vectors."""

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self.folder, self.name = folder, str(folder)
        self._catalog = catalog

    @classmethod
    @contextmanager
    def begin(cls, folder: Path, begun: Begun) -> Iterator["FolderSite"]:
        """The site of a build that begins, or goes on."""
        load_faiss()  # better missing now than after hours
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written ({error.strerror})") from None
        with claim(folder):
            _leave_word(folder, begun.text())
            catalog = Catalog.create(folder / CATALOG)
            try:
                yield cls(folder, catalog)
            finally:
                catalog.close()

    def kept(self) -> Kept:
        """What is there already."""
        passages, vectors, _ = self._catalog.count()
        return Kept(passages, vectors, "".join(self._catalog.last_text()))

    def keep(self, passages: Sequence[Passage], rows: Sequence[Row], vectors: HalfVectors) -> None:
        """Keep a part; one that a killed build left is written over."""
        _, first, _ = self._catalog.count()
        path = self.folder / PARTS / f"{first:012}.npy"
        write_atomically(path, lambda file: np.save(file, vectors))
        self._catalog.add(passages, rows, first=first)
        self._catalog.commit()

    def parts(self) -> Iterator[HalfVectors]:
        """The vectors of each part."""
        for path in sorted((self.folder / PARTS).glob("[0-9]*.npy")):
            yield np.load(path, allow_pickle=False)

    def finish(self, recipe: Recipe, whitening: Whitening) -> None:
        """Make the store of all parts."""
        packed = whitening.packed()
        write_atomically(self.folder / WHITENING, lambda file: file.write(packed))
        store = self._fill(recipe, whitening)
        store.save()
        text = replace(recipe, kind=store.kind).text().encode()
        write_atomically(self.folder / RECIPE, lambda file: file.write(text))  # now it is an index
        clear_build(self.folder)

    def remove(self) -> None:
        """Leave nothing of the build, and no folder where it was alone there."""
        self._catalog.close()
        for name in _OF_CATALOG:
            (self.folder / name).unlink(missing_ok=True)
        clear_build(self.folder)
        with suppress(OSError):  # something else is in it
            self.folder.rmdir()

    def _fill(self, recipe: Recipe, whitening: Whitening) -> FaissVectors:
        rows = self.kept().vectors
        kind = choose_kind(rows) if recipe.kind == "auto" else recipe.kind
        stride = rows // sample_rows(kind, rows)  # evenly from all of the corpus
        sample = whitening.apply(np.concatenate([part[::stride] for part in self.parts()]))
        store = FaissVectors.create(self.folder / VECTORS, kind=kind, sample=sample, rows=rows)
        for part in self.parts():
            store.add(whitening.apply(part))
        return store


def _leave_word(folder: Path, begun: str) -> None:
    """Leave word of what is built, or check that it is what was begun."""
    if (folder / RECIPE).exists():
        clear_build(folder)
        raise OutputError(f"{folder}: an index already; add to it, or name another folder")
    if not (folder / BEGUN).exists():
        _check_empty(folder)
        write_atomically(folder / BEGUN, lambda file: file.write(begun.encode()))
    elif (folder / BEGUN).read_bytes() != begun.encode():
        raise InputError(
            f"{folder}: its build was begun with other files, options or another model; repeat "
            "those, or remove the folder"
        )
    (folder / PARTS).mkdir(exist_ok=True)


def _check_empty(folder: Path) -> None:
    """Refuse a folder that has anything in it but what a killed build wrote of its first file."""
    for path in sorted(folder.iterdir()):
        if not path.match(_UNFINISHED):
            raise OutputError(f"{folder}: not empty, {path.name} is there; name a new folder")
    for path in folder.glob(_UNFINISHED):
        path.unlink()
