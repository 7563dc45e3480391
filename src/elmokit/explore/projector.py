"""The uses of a word become the two files that TensorBoard's projector reads."""

from collections.abc import Sequence
from pathlib import Path

from elmokit.errors import OutputError
from elmokit.explore.senses import Groups
from elmokit.explore.uses import Use
from elmokit.pooling import Vectors
from elmokit.whole import write_whole


def write_projector(folder: Path, uses: Sequence[Use], vectors: Vectors, groups: Groups) -> None:
    """Write vectors.tsv, a use a line, and metadata.tsv, its word, its group and its sentence."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror})") from None
    numbers = ["\t".join(f"{number:.6g}" for number in row) for row in vectors]
    about = [
        "\t".join([use.word, groups.names[group], " ".join(use.words)])
        for use, group in zip(uses, groups.places, strict=True)
    ]
    _write_lines(folder / "vectors.tsv", numbers)
    _write_lines(folder / "metadata.tsv", ["word\tgroup\tsentence", *about])


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    write_whole(path, lambda file: file.write(text))
