"""Memory that is not needed any more becomes the system's again."""

import ctypes
from collections.abc import Iterable
from mmap import PAGESIZE
from pathlib import Path

from torch import Tensor

_MAPS = Path("/proc/self/maps")
_PAGE_OUT = 21  # Linux's MADV_PAGEOUT, since 5.4: nothing is lost, whatever the memory holds


def give_back() -> None:
    """Return what the C library keeps of freed memory, where it can be asked to (glibc).

    Large arrays that come and go leave gaps between those that stay; over a long file the gaps
    grow to hundreds of megabytes. Nothing that is in use is touched.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def set_aside(tensors: Iterable[Tensor]) -> None:
    """Let go of the memory of tensors that stand in a mapped file: read again, they come back.

    So weights that were packed are not in memory twice (Linux; elsewhere nothing happens).
    """
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None or not _MAPS.exists():
        return
    files = _mapped_files()
    for tensor in tensors:
        start = -(-tensor.data_ptr() // PAGESIZE) * PAGESIZE
        end = (tensor.data_ptr() + tensor.nbytes) // PAGESIZE * PAGESIZE
        if start < end and any(low <= start and end <= high for low, high in files):
            advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _PAGE_OUT)


def _mapped_files() -> list[tuple[int, int]]:
    """Where files are mapped into memory: first address, and the one after the last."""
    found = []
    for line in _MAPS.read_text(encoding="utf-8", errors="replace").splitlines():
        addresses, *_, name = line.split(maxsplit=5)
        if name.startswith("/"):
            low, high = (int(address, 16) for address in addresses.split("-"))
            found.append((low, high))
    return found
