"""FASTA files: the proteins in them, and the identifier of each as SeqVec and bio_embeddings do."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import InputError
from elmokit.files import STDIN, find_files, read_lines

_ENDINGS = {".fasta", ".fa", ".faa", ".fas", ".fsa", ".mpfa"}
_PACKED_ENDINGS = {".gz", ".xz", ".zst"}


@dataclass(frozen=True)
class Protein:
    """A record of a FASTA file: its header without `>`, and its sequence without white space."""

    header: str
    sequence: str

    @property
    def residues(self) -> list[str]:
        """The tokens of the model: each character in upper case, `*`, `-` and X included."""
        return list(self.sequence.upper())

    @property
    def original_id(self) -> str:
        """The first word of the header, as bio_embeddings stores it beside a vector."""
        return self.header.split(None, 1)[0] if self.header else ""

    def __str__(self) -> str:
        return f">{self.header}\n{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "Protein":
        """The protein that `str` has written."""
        header, _, sequence = text.removeprefix(">").partition("\n")
        return cls(header, sequence)


@dataclass(frozen=True)
class Identifiers:
    """How proteins are called.

    `field` is the number of a part of the header between separators, as in SeqVec, from 0; -1 is
    the whole header; "md5" is the hash of the sequence, as in the files of bio_embeddings. None is
    part 1, or the first word of a header that has no part 1.
    """

    field: int | str | None = None
    separator: str = "|"

    def __post_init__(self) -> None:
        if isinstance(self.field, str) and self.field != "md5":
            raise InputError(f"id_field is {self.field!r}, expected a number or 'md5'")
        if not self.separator:
            raise InputError("the character that splits headers is empty, expected such as '|'")

    def of(self, protein: Protein) -> str:
        """The identifier of a protein; InputError where its header has too few parts."""
        if isinstance(self.field, str):
            return hashlib.md5(protein.sequence.encode(), usedforsecurity=False).hexdigest()
        header = protein.header.replace(">", "").strip()
        if self.field == -1:
            return header
        parts = header.split(self.separator)
        if self.field is None:
            return parts[1] if len(parts) > 1 else protein.original_id
        try:
            return parts[self.field]
        except IndexError:
            raise InputError(
                f"the header {header[:60]!r} has no part {self.field} between "
                f"{self.separator!r}; choose another, or -1 for the whole header"
            ) from None


def is_fasta(name: str) -> bool:
    """Whether a file is called like a FASTA file, packed or not."""
    endings = [ending.lower() for ending in Path(name).suffixes[-2:]]
    if endings and endings[-1] in _PACKED_ENDINGS:
        endings.pop()
    return bool(endings) and endings[-1] in _ENDINGS


def read_fasta(source: str | Path) -> Iterator[Protein]:
    """The proteins of a FASTA file, of all files of a folder or glob, or of stdin for "-".

    Lines may have any length; blank lines and white space within a sequence do not matter.
    """
    for file in find_files([str(source)]):
        name = "stdin" if file.path == STDIN else file.name
        with file.open() as opened:
            yield from parse_fasta(read_lines(opened, name), name)


def count_proteins(source: str | Path, identifiers: Identifiers) -> int:
    """The number of proteins of files; InputError if two have the same identifier."""
    numbers: dict[str, int] = {}
    for number, protein in enumerate(read_fasta(source), 1):
        identifier = identifiers.of(protein)
        if identifier in numbers:
            what = "sequence" if identifiers.field == "md5" else "identifier"
            raise InputError(
                f"{source}: proteins {numbers[identifier]} and {number} have the same {what} "
                f"({identifier!r}); remove one of them, or choose another part of the header as "
                "identifier"
            )
        numbers[identifier] = number
    return len(numbers)


def parse_fasta(lines: Iterable[str], name: str) -> Iterator[Protein]:
    """The proteins of lines of FASTA; error messages call the file `name`."""
    header: str | None = None
    sequence: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(">"):
            if header is not None:
                yield Protein(header, "".join(sequence))
            header, sequence = line[1:].strip(), []
        elif header is not None:
            sequence += line.split()
        elif line.strip():
            raise InputError(
                f"{name}, line {number}: {line.strip()[:20]!r} stands before the first header, "
                "which begins with '>'; is this a FASTA file?"
            )
    if header is not None:
        yield Protein(header, "".join(sequence))
