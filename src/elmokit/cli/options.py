"""What several verbs ask for: a model, and lines of text."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import elmokit
from elmokit.errors import InputError
from elmokit.files import COMPRESSED_SIGNATURES, STDIN, TextFile, read_lines

if TYPE_CHECKING:
    from elmokit.embedder import Embedder

Model = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        help="A folder or zip; or given twice, an options file and a weights file.",
        show_default="the English model that ships",
    ),
]
Text = Annotated[
    list[str] | None,
    typer.Option(help="Text given here instead of INPUT; may be repeated.", show_default=False),
]
StateWay = Annotated[
    Literal["zero", "carry", "warm"],
    typer.Option("--state", help="How a sentence starts: fresh, where the last ended, or warm."),
]
Split = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        help="How a text becomes words, if not as the model says.",
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps.")]
PrecisionWay = Annotated[
    Literal["float32", "half", "int8"],
    typer.Option("--precision", help="Of the readers' weights: exact, or faster."),
]
TokensPerBatch = Annotated[
    int, typer.Option(min=1, help="So many words are read together: speed against memory.")
]


def load(
    model: list[Path] | None,
    *,
    state: Literal["zero", "carry", "warm"] = "zero",
    tokenizer: str | None = None,
    device: str = "cpu",
    precision: Literal["float32", "half", "int8"] = "float32",
    tokens_per_batch: int = 4096,
    threads: int | None = None,
    cache_bytes: int = 2**28,
) -> "Embedder":
    """The model that the options name."""
    model = model or []
    if len(model) > 2:
        raise InputError(f"--model was given {len(model)} times, expected once or twice")
    return elmokit.load(
        *model,
        state=state,
        tokenizer=tokenizer,
        device=device,
        precision=precision,
        tokens_per_batch=tokens_per_batch,
        threads=threads,
        cache_bytes=cache_bytes,
    )


@contextmanager
def lines_of(source: str | None, text: list[str] | None) -> Iterator[Iterable[str]]:
    """The lines of a file, packed or not, of stdin for "-", or those given as text."""
    if text and source is not None:
        raise typer.BadParameter("give INPUT or --text, not both")
    if text:
        check_utf8(*text)
        yield text
    elif source is None:
        raise InputError("no INPUT given; name a file, - for stdin, or give --text")
    else:
        with TextFile(source).open() as opened:
            yield read_lines(opened, "stdin" if source == STDIN else source)


def check_utf8(*given: str) -> None:
    """Refuse words of the command line that a terminal of another encoding has typed."""
    for text in given:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise InputError(f"{text!r}: not UTF-8; is the terminal's encoding another?")


def count_lines(source: str | None, text: list[str] | None) -> int | None:
    """How many lines there are, where that can be known beforehand: not of a packed file."""
    if text:
        return len(text)
    if source is None or not Path(source).is_file():
        return None
    ends, last = 0, b"\n"
    with open(source, "rb") as file:
        for block in iter(lambda: file.read(2**20), b""):
            if file.tell() == len(block) and block.startswith(COMPRESSED_SIGNATURES):
                return None
            ends += block.count(b"\n")
            last = block[-1:]
    return ends + (last != b"\n")


def settings_of(arguments: list[str]) -> dict[str, str]:
    """--name value and --name=value, by the names of settings."""
    given, left = {}, list(arguments)
    while left:
        name = left.pop(0)
        if not name.startswith("--"):
            raise InputError(f"{name!r} is neither an option nor the value of one")
        name, equals, value = name[2:].partition("=")
        if not equals:
            if not left:
                raise InputError(f"--{name} needs a value")
            value = left.pop(0)
        if (known := name.replace("-", "_")) in given:
            raise InputError(f"--{name} is given twice; say it once, several values as '[0, 2]'")
        given[known] = value
    return given


def tell(line: str) -> None:
    """A line for people, on stderr."""
    typer.echo(line, err=True)
