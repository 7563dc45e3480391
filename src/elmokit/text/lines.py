"""A file becomes its lines, each decoded or named by its number."""

from collections.abc import Iterable, Iterator

from elmokit.errors import InputError


def read_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; only a line feed ends a line."""
    for number, raw in enumerate(file, 1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901  a mark of some editors
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}, line {number}: not UTF-8 (byte 0x{raw[error.start]:02x} at column "
                f"{error.start + 1}); convert the file to UTF-8 first"
            ) from None
        yield line.removesuffix("\n").removesuffix("\r")
