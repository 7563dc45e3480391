"""Memory of this process: measuring it, and returning it to the system."""

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from mmap import PAGESIZE
from pathlib import Path

from torch import Tensor

_C = None if os.name == "nt" else ctypes.CDLL(None)
_SMAPS = Path("/proc/self/smaps")
_MADV_DONTNEED = 4  # of Linux


def trim_malloc() -> None:
    """Return memory that was freed, but that the C library still holds, to the system (glibc).

    Large arrays that come and go leave gaps between those that stay; over a long file, the gaps
    grow to hundreds of megabytes.
    """
    trim = getattr(_C, "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_bytes() -> int | None:
    """The peak memory of this process; None where it is not known (Windows)."""
    try:
        import resource  # noqa: PLC0415  not on every system
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 2**10


def drop_mapped_pages(tensors: Iterable[Tensor]) -> None:
    """Free the memory of tensors in memory-mapped files; it is read again when next used.

    So weights that were packed are not in memory twice. Mappings that were written to are left
    alone, as their pages differ from the file's. On systems other than Linux nothing happens.
    """
    if _C is None or not _SMAPS.exists():
        return
    mappings = [*_unmodified_mappings()]
    for tensor in tensors:
        start = -(-tensor.data_ptr() // PAGESIZE) * PAGESIZE
        end = (tensor.data_ptr() + tensor.nbytes) // PAGESIZE * PAGESIZE
        if start < end and any(low <= start and end <= high for low, high in mappings):
            _C.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _unmodified_mappings() -> Iterator[tuple[int, int]]:
    """First address and end of each mapped file of which no page was written to.

    In smaps, a mapping is a line with addresses and a file name, followed by lines of counts;
    `Swap` comes after `Anonymous`, which counts the pages that were written to.
    """
    low = high = anonymous = 0
    is_file = False
    for line in _SMAPS.read_text(encoding="utf-8", errors="replace").splitlines():
        key, *rest = line.split(maxsplit=5)
        if not key.endswith(":"):
            low, high = (int(address, 16) for address in key.split("-"))
            is_file = len(rest) == 5 and rest[-1].startswith("/")
        elif key == "Anonymous:":
            anonymous = int(rest[0])
        elif key == "Swap:" and is_file and not anonymous and not int(rest[0]):
            yield low, high
