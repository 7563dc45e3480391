"""Memory of the process: measured, and given back to the system."""

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from mmap import PAGESIZE
from pathlib import Path

from torch import Tensor

_C = None if os.name == "nt" else ctypes.CDLL(None)
_MAPPINGS = Path("/proc/self/smaps")
_DO_NOT_NEED = 4  # Linux's MADV_DONTNEED


def trim_malloc() -> None:
    """Return what the C library keeps of freed memory, where it can be asked to (glibc).

    Large arrays that come and go leave gaps between those that stay; over a long file the gaps
    grow to hundreds of megabytes. Nothing that is in use is touched.
    """
    trim = getattr(_C, "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_bytes() -> int | None:
    """The most memory that this process had; None where the system does not tell (Windows)."""
    try:
        import resource  # noqa: PLC0415  not on every system
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 2**10


def drop_mapped_pages(tensors: Iterable[Tensor]) -> None:
    """Let go of the memory of tensors that stand in a mapped file: read again, they come back.

    So weights that were packed are not in memory twice. Of a mapping that was written to, whose
    pages are no longer the file's, nothing is let go (Linux; elsewhere nothing happens at all).
    """
    if _C is None or not _MAPPINGS.exists():
        return
    files = [*_untouched_files()]
    for tensor in tensors:
        start = -(-tensor.data_ptr() // PAGESIZE) * PAGESIZE
        end = (tensor.data_ptr() + tensor.nbytes) // PAGESIZE * PAGESIZE
        if start < end and any(low <= start and end <= high for low, high in files):
            _C.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DO_NOT_NEED)


def _untouched_files() -> Iterator[tuple[int, int]]:
    """Where files are mapped and no page is a copy of its own: first address, and after the last.

    A mapping is a line of addresses and a name, and lines that count it, `Swap` after `Anonymous`.
    """
    low = high = own = 0
    named = False
    for line in _MAPPINGS.read_text(encoding="utf-8", errors="replace").splitlines():
        key, *rest = line.split(maxsplit=5)
        if not key.endswith(":"):
            low, high = (int(address, 16) for address in key.split("-"))
            named = len(rest) == 5 and rest[-1].startswith("/")
        elif key == "Anonymous:":
            own = int(rest[0])
        elif key == "Swap:" and named and not own and not int(rest[0]):
            yield low, high
