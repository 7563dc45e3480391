"""Vectors become a file of FAISS that finds the nearest of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elmokit.atomic import rename_atomically
from elmokit.errors import FormatError, InputError
from elmokit.pooling import Vectors

Ids = npt.NDArray[np.int64]
Kind = Literal["flat", "hnsw", "ivf"]

# Up to so many vectors all are compared, exactly; up to so many there is a graph of neighbours.
FLAT_ROWS, HNSW_ROWS = 100_000, 2_000_000

_LINKS, _BUILD_WIDTH, _SEARCH_WIDTH = 32, 200, 128  # of a graph
_ROWS_PER_CELL_TRAINED = 64
_SHARE_PROBED, _LEAST_PROBES = 16, 8  # of so many cells one is looked into, and so many at least


class FaissVectors:
    """Vectors of length one in one file of FAISS, in float16, by id: 0, 1 … as they came.

    FAISS cannot take a vector out of a graph: deleted ones stay in the file and are passed over,
    and whoever opens it again must say which they are.
    """

    def __init__(self, path: Path, index: Any, kind: Kind) -> None:
        self._path, self._index, self.kind = path, index, kind
        self._gone: set[int] = set()
        self._others: Any = None  # FAISS's word for all but those, made when it is asked for

    @classmethod
    def create(cls, path: Path, *, kind: Kind, sample: Vectors, rows: int) -> "FaissVectors":
        """A file to be, for about so many rows; `sample` is some of them, (sample, dim)."""
        faiss = load_faiss()
        half, inner = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        dim = sample.shape[1]
        if kind == "flat":
            index = faiss.IndexScalarQuantizer(dim, half, inner)
        elif kind == "hnsw":
            index = faiss.IndexHNSWSQ(dim, half, _LINKS, inner)
            index.hnsw.efConstruction = _BUILD_WIDTH
        else:
            cells = min(cells_of(rows), len(sample))
            coarse = faiss.IndexFlatIP(dim)
            index = faiss.IndexIVFScalarQuantizer(coarse, dim, cells, half, inner)
            index.cp.min_points_per_centroid = 1  # FAISS prints its doubts on stderr otherwise
        index.train(sample)
        if kind == "ivf":
            index.make_direct_map()
        return cls(path, index, kind)

    @classmethod
    def open(cls, path: Path, *, kind: Kind) -> "FaissVectors":
        """What a file holds."""
        faiss = load_faiss()
        path.stat()  # FAISS says less clearly that there is no such file
        try:
            return cls(path, faiss.read_index(str(path)), kind)
        except (RuntimeError, MemoryError) as error:
            reason = str(error).strip().splitlines()[-1] if str(error) else "out of memory"
            raise FormatError(
                f"{path}: FAISS cannot read it ({reason}); was the file cut short? build the index "
                "again"
            ) from None

    @property
    def dim(self) -> int:
        """The size of a vector."""
        return int(self._index.d)

    def __len__(self) -> int:
        """How many were ever added: the next one's id."""
        return int(self._index.ntotal)

    def __contains__(self, id_: int) -> bool:
        """Whether it was added, and not deleted."""
        return 0 <= id_ < len(self) and id_ not in self._gone

    def add(self, vectors: Vectors) -> None:
        """Take more vectors, (rows, dim)."""
        self._index.add(vectors)

    def delete(self, ids: Sequence[int]) -> None:
        """Leave these out of every search from now on."""
        self._gone.update(ids)
        self._others = None

    def search(self, queries: Vectors, k: int) -> tuple[Vectors, Ids]:
        """Cosines and ids of the nearest, (queries, k) each, nearest first; id -1: there are less.

        Fewer than k columns come back where there are fewer vectors.
        """
        k = min(k, len(self) - len(self._gone))
        if k < 1:
            none = len(queries), 0
            return np.zeros(none, np.float32), np.zeros(none, np.int64)
        scores, ids = self._index.search(queries, k, params=self._parameters(k))
        return scores, ids

    def vectors(self, ids: Sequence[int]) -> Vectors:
        """The vectors of these ids, (ids, dim), as precise as they are kept."""
        found: Vectors = self._index.reconstruct_batch(np.asarray(ids, np.int64))
        return found

    def save(self) -> None:
        """Write the file; it is there only when whole."""
        unnamed = self._path.with_name(f".{self._path.name}.unfinished")
        try:
            load_faiss().write_index(self._index, str(unnamed))
            rename_atomically(unnamed, self._path)
        finally:
            unnamed.unlink(missing_ok=True)

    def _parameters(self, k: int) -> Any:
        """How wide to search, and past what."""
        faiss = load_faiss()
        options, wider = {}, len(self) / (len(self) - len(self._gone))  # deleted ones are met too
        if self._gone:
            if self._others is None:
                gone = faiss.IDSelectorBatch(np.array(sorted(self._gone), np.int64))
                self._others = faiss.IDSelectorNot(gone)
            options["sel"] = self._others
        if self.kind == "hnsw":
            width = int(max(_SEARCH_WIDTH, 2 * k) * wider)
            return faiss.SearchParametersHNSW(efSearch=width, **options)
        if self.kind == "ivf":
            probes = int(max(_LEAST_PROBES, self._index.nlist // _SHARE_PROBED) * wider)
            return faiss.SearchParametersIVF(nprobe=probes, **options)
        return faiss.SearchParameters(**options)


def choose_kind(rows: int) -> Kind:
    """The kind of index for so many vectors."""
    if rows <= FLAT_ROWS:
        return "flat"
    return "hnsw" if rows <= HNSW_ROWS else "ivf"


def sample_rows(kind: Kind, rows: int) -> int:
    """How many of so many vectors an index of that kind must see to be made."""
    return min(rows, _ROWS_PER_CELL_TRAINED * cells_of(rows)) if kind == "ivf" else min(rows, 1)


def cells_of(rows: int) -> int:
    """How many cells that many vectors are sorted into."""
    return max(1, int(4 * rows**0.5))


def load_faiss() -> Any:
    """FAISS, or a sentence that says how to get it."""
    try:
        import faiss  # noqa: PLC0415  an extra
    except ImportError:
        raise InputError("searching needs FAISS: pip install 'elmokit[search]'") from None
    return faiss
