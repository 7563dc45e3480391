"""Words typed at a terminal become calls: one file per verb."""

import os
import sys

import typer

from elmokit.cli.answer import answer, classify, corefer, entail, roles, tag
from elmokit.cli.convert import convert
from elmokit.cli.dump import dump
from elmokit.cli.embed import embed
from elmokit.cli.encode import encode
from elmokit.cli.evaluate import evaluate
from elmokit.cli.index import index
from elmokit.cli.info import info
from elmokit.cli.mix import mix
from elmokit.cli.plot import plot
from elmokit.cli.predict import predict
from elmokit.cli.prepare import prepare
from elmokit.cli.pretrain import pretrain
from elmokit.cli.probe import probe
from elmokit.cli.search import search
from elmokit.cli.senses import senses
from elmokit.cli.serve import serve
from elmokit.cli.train import train
from elmokit.errors import ElmokitError

app = typer.Typer(
    name="elmo",
    help="ELMo for today: vectors of words in context, and a language model to ask.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for verb in (
    embed, encode, evaluate, predict, dump, info, convert, prepare, pretrain,
    train, tag, roles, classify, entail, answer, corefer, mix, probe, senses,
    search, serve,
):  # fmt: skip
    # Every setting of a training is an option too.
    settable = verb in (pretrain, train)
    ways = {"allow_extra_args": settable, "ignore_unknown_options": settable}
    app.command(context_settings=ways)(verb)
app.add_typer(index)
app.add_typer(plot)


def main() -> None:
    """Run a verb; a user's mistake is one line on stderr and exit code 1, a bug is a traceback."""
    try:
        app()
    except ElmokitError as error:
        sys.exit(f"elmo: {error}")
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(f"elmo: {where}{error.strerror or error}")
