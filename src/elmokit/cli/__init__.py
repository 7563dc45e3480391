"""Words typed at a terminal become calls: one file per verb."""

import sys

import typer

from elmokit.cli.convert import convert
from elmokit.cli.embed import embed
from elmokit.cli.encode import encode
from elmokit.cli.info import info
from elmokit.errors import ElmokitError

app = typer.Typer(
    name="elmo",
    help="ELMo for today: vectors of words in context.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for verb in (embed, encode, info, convert):
    app.command()(verb)


def main() -> None:
    """Run a verb; a user's mistake is one line on stderr and exit code 1, a bug is a traceback."""
    try:
        app()
    except ElmokitError as error:
        sys.exit(f"elmo: {error}")
    except OSError as error:
        if error.filename is None:
            raise
        sys.exit(f"elmo: {error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit("elmo: stopped")
