"""Memory that was freed becomes the system's again."""

import ctypes


def give_back() -> None:
    """Return what the C library keeps of freed memory, where it can be asked to (glibc).

    Large arrays that come and go leave gaps between those that stay; over a long file the gaps
    grow to hundreds of megabytes. Nothing that is in use is touched.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
