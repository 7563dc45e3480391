"""One vector a text becomes one row a text: .npy, .tsv or .jsonl, or lines on stdout."""

import json
import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np

from elmokit.errors import InputError, OutputError
from elmokit.pooling import Vectors
from elmokit.whole import write_whole


def write_vectors(vectors: Vectors, target: Path | None) -> None:
    """The rows in a new file, its kind given by its ending; without a target, TSV on stdout."""
    if target is None:
        _write_tsv(vectors, sys.stdout.buffer)
        return
    check_table(target)
    write = _WRITERS[target.suffix]
    try:
        write_whole(target, lambda file: write(vectors, file))
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})") from None


def check_table(target: Path) -> None:
    """Refuse a name that cannot be written to, before any work is done."""
    if target.suffix not in _WRITERS:
        raise InputError(f"{target}: ends in none of {', '.join(_WRITERS)}; give another name")
    if target.exists():
        raise InputError(f"{target}: exists already; delete it, or give another name")


def _write_npy(vectors: Vectors, file: BinaryIO) -> None:
    np.save(file, vectors)


def _write_tsv(vectors: Vectors, file: BinaryIO) -> None:
    for row in vectors:
        file.write(("\t".join(map(str, row)) + "\n").encode())


def _write_jsonl(vectors: Vectors, file: BinaryIO) -> None:
    for row in vectors.tolist():
        file.write((json.dumps(row) + "\n").encode())


_WRITERS = {".npy": _write_npy, ".tsv": _write_tsv, ".jsonl": _write_jsonl}
