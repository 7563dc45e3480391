"""The uses of a word become a folder that TensorBoard's projector shows."""

from collections.abc import Sequence
from pathlib import Path

from elmokit.atomic import write_atomically
from elmokit.errors import OutputError
from elmokit.pooling import Vectors
from elmokit.search.senses import Groups
from elmokit.search.uses import Use

_VECTORS, _METADATA = "vectors.tsv", "metadata.tsv"
_CONFIG = (
    "embeddings {",
    f'  tensor_path: "{_VECTORS}"',  # as seen from the folder
    f'  metadata_path: "{_METADATA}"',
    "}",
)


def write_projector(folder: Path, uses: Sequence[Use], vectors: Vectors, groups: Groups) -> None:
    """Write vectors.tsv, a use a line, and metadata.tsv, its word, its group and its sentence.

    projector_config.pbtxt names both: `tensorboard --logdir FOLDER` shows them.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror})") from None
    numbers = ["\t".join(f"{number:.6g}" for number in row) for row in vectors]
    about = [
        "\t".join([use.word, groups.names[group], " ".join(use.words)])
        for use, group in zip(uses, groups.places, strict=True)
    ]
    _write_lines(folder / _VECTORS, numbers)
    _write_lines(folder / _METADATA, ["word\tgroup\tsentence", *about])
    _write_lines(folder / "projector_config.pbtxt", _CONFIG)


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    write_atomically(path, lambda file: file.write(text))
