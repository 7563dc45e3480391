"""Nearest-neighbour search with FAISS: unit vectors in float16 in one file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.atomic import rename_atomically
from elmokit.errors import FormatError, needs_extra
from elmokit.pooling import Vectors
from elmokit.search.passage_vectors import Kind
from elmokit.threads import allowed_threads

Ids = npt.NDArray[np.int64]

# "auto" is "flat" (exact) up to the first number of vectors, "hnsw" (a graph) up to the second.
MAX_FLAT_VECTORS, MAX_HNSW_VECTORS = 100_000, 2_000_000

_HNSW_LINKS, _HNSW_EF_CONSTRUCTION, _HNSW_EF_SEARCH = 32, 200, 128
_TRAINING_VECTORS_PER_CELL = 64
_CELLS_PER_PROBE, _MIN_PROBES = 16, 8


class FaissVectors:
    """Unit vectors with the ids 0, 1 … in the order they were added.

    FAISS cannot take a vector out of a graph: deleted ones stay in the file and are skipped by
    searches. The file does not say which they are: call `delete` again after opening it.
    """

    def __init__(self, path: Path, index: Any, kind: Kind) -> None:
        self._path, self._index, self.kind = path, index, kind
        self._deleted: set[int] = set()
        self._selector: Any = None  # of all other ids; made by the first search that needs it

    @classmethod
    def create(cls, path: Path, *, kind: Kind, sample: Vectors, rows: int) -> "FaissVectors":
        """An empty index for about so many rows; `sample`, (sample, dim), is to train it."""
        faiss = load_faiss()
        half, inner = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        dim = sample.shape[1]
        if kind == "flat":
            index = faiss.IndexScalarQuantizer(dim, half, inner)
        elif kind == "hnsw":
            index = faiss.IndexHNSWSQ(dim, half, _HNSW_LINKS, inner)
            index.hnsw.efConstruction = _HNSW_EF_CONSTRUCTION
        else:
            cells = min(cells_of(rows), len(sample))
            coarse = faiss.IndexFlatIP(dim)
            index = faiss.IndexIVFScalarQuantizer(coarse, dim, cells, half, inner)
            index.cp.min_points_per_centroid = 1  # FAISS prints its doubts on stderr otherwise
        with _openmp_threads(allowed_threads()):
            index.train(sample)
        if kind == "ivf":
            index.make_direct_map()
        return cls(path, index, kind)

    @classmethod
    def open(cls, path: Path, *, kind: Kind) -> "FaissVectors":
        """The index in a file."""
        faiss = load_faiss()
        path.stat()  # clearer than FAISS where there is no such file
        try:
            index = faiss.read_index(str(path))
        except (RuntimeError, MemoryError) as error:
            reason = str(error).strip().splitlines()[-1] if str(error) else "out of memory"
            raise FormatError(
                f"{path}: FAISS cannot read it ({reason}); was the file cut short? build the index "
                "again"
            ) from None
        if not index.is_trained or index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise FormatError(f"{path}: not an index of elmokit, or damaged; build the index again")
        return cls(path, index, kind)

    @property
    def dim(self) -> int:
        return int(self._index.d)

    def __len__(self) -> int:
        """How many were ever added, deleted ones included: the id of the next."""
        return int(self._index.ntotal)

    def __contains__(self, id_: int) -> bool:
        """Whether it was added and not deleted."""
        return 0 <= id_ < len(self) and id_ not in self._deleted

    def add(self, vectors: Vectors) -> None:
        """Add vectors, (rows, dim)."""
        with _openmp_threads(allowed_threads()):
            self._index.add(vectors)

    def delete(self, ids: Sequence[int]) -> None:
        """Skip these in every search from now on."""
        self._deleted.update(ids)
        self._selector = None

    def search(self, queries: Vectors, k: int) -> tuple[Vectors, Ids]:
        """Cosines and ids of the nearest, (queries, k) each, best first; id -1 fills up a row.

        There are fewer than k columns if there are fewer vectors.
        """
        k = min(k, len(self) - len(self._deleted))
        if k < 1:
            shape = len(queries), 0
            return np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        # A query is searched by one thread; OpenMP's others would only wait and spin meanwhile.
        with _openmp_threads(1 if len(queries) == 1 else allowed_threads()):
            scores, ids = self._index.search(queries, k, params=self._search_parameters(k))
        return scores, ids

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """The vectors of these ids, (ids, dim), rounded to float16."""
        vectors: Vectors = self._index.reconstruct_batch(np.asarray(ids, np.int64))
        return vectors

    def save(self) -> None:
        """Write the file, atomically."""
        unfinished = self._path.with_name(f".{self._path.name}.unfinished")
        try:
            load_faiss().write_index(self._index, str(unfinished))
            rename_atomically(unfinished, self._path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _search_parameters(self, k: int) -> Any:
        """How wide to search, and which ids to skip."""
        faiss = load_faiss()
        options = {}
        wider = len(self) / (len(self) - len(self._deleted))  # deleted ones are visited too
        if self._deleted:
            if self._selector is None:
                deleted = faiss.IDSelectorBatch(np.array(sorted(self._deleted), np.int64))
                self._selector = faiss.IDSelectorNot(deleted)
            options["sel"] = self._selector
        if self.kind == "hnsw":
            width = int(max(_HNSW_EF_SEARCH, 2 * k) * wider)
            return faiss.SearchParametersHNSW(efSearch=width, **options)
        if self.kind == "ivf":
            probes = int(max(_MIN_PROBES, self._index.nlist // _CELLS_PER_PROBE) * wider)
            return faiss.SearchParametersIVF(nprobe=probes, **options)
        return faiss.SearchParameters(**options)


def choose_kind(rows: int) -> Kind:
    """The kind of index for that many vectors."""
    if rows <= MAX_FLAT_VECTORS:
        return "flat"
    return "hnsw" if rows <= MAX_HNSW_VECTORS else "ivf"


def sample_rows(kind: Kind, rows: int) -> int:
    """How many of the vectors are needed to train an index of that kind."""
    return min(rows, _TRAINING_VECTORS_PER_CELL * cells_of(rows)) if kind == "ivf" else min(rows, 1)


def cells_of(rows: int) -> int:
    """The number of cells ("ivf") for that many vectors."""
    return max(1, int(4 * rows**0.5))


@contextmanager
def _openmp_threads(threads: int) -> Iterator[None]:
    """Let FAISS use so many threads meanwhile, when it is called by this thread."""
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def load_faiss() -> Any:
    """FAISS; InputError with its install line where it is missing."""
    with needs_extra("searching needs FAISS", "search"):
        import faiss  # noqa: PLC0415  an extra
    return faiss
