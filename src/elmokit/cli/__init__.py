"""The command elmo: its commands in groups, and what all of them do about errors and Ctrl-C."""

import os
import re
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import typer

from elmokit import __version__
from elmokit.cli.lm import evaluate, predict, score
from elmokit.cli.models import convert, download, export, info, models, package, push
from elmokit.cli.options import ElmoCommand, ElmoGroup, StoppedError, add_command, group, option
from elmokit.cli.pretraining import prepare, pretrain
from elmokit.cli.search import index, plot, search
from elmokit.cli.serve import page, serve
from elmokit.cli.tasks import ApplyCommand, apply, layer_weights, probe, train, wsd
from elmokit.cli.vectors import embed, encode
from elmokit.errors import DownloadError, ElmokitError

_GROUPS: dict[str, tuple[Any, ...]] = {
    "Vectors": (embed, encode),
    "Language model": (score, evaluate, predict),
    "Models": (models, download, info, convert, package, push, export),
    "Pretraining": (prepare, pretrain),
    "Tasks": (train, apply, layer_weights, probe, wsd),
    "Search": (index, search, plot),
    "Service": (serve, page),
}

# Every error of the command line; newer versions of Typer have a copy of click of their own.
_UsageError: Any = typer.BadParameter.__mro__[2]


class RootGroup(ElmoGroup):
    """The command elmo."""

    removed = {
        **dict.fromkeys(("tag", "roles", "classify", "entail", "answer", "corefer"), "apply"),
        "dump": "export",
        "mix": "layer-weights",
        "senses": "wsd",
    }

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of their groups; Typer lists groups of commands last."""
        return [_name(command) for commands in _GROUPS.values() for command in commands]


def _name(command: Any) -> str:
    name = command.info.name if isinstance(command, typer.Typer) else command.__name__
    return str(name).replace("_", "-")


app = group(
    "elmo",
    """Run, pretrain, apply, search and serve ELMo models.

    Example: elmo encode --text "I ate an apple."

    Example: elmo COMMAND --help""",
    RootGroup,
)
for panel, commands in _GROUPS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            cls = ApplyCommand if command is apply else ElmoCommand
            add_command(app, command, panel=panel, cls=cls)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"elmo {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = option(
        "Print the version.", False, "--version", metavar="", callback=_print_version, is_eager=True
    ),
) -> None:
    pass


def main() -> None:
    """Run a command; a user's mistake is one line on stderr, a bug is a traceback."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", module=r"torch(\.|$)")
    try:
        code = app(prog_name="elmo", standalone_mode=False)
        if code == 130:  # Ctrl-C, before the command began or in one with nothing to resume
            _exit("interrupted", 130)
        sys.exit(code or 0)
    except StoppedError as stopped:
        _exit(f"interrupted; {stopped}", 130)
    except typer.Abort:
        _exit("interrupted", 130)
    except _UsageError as error:
        if message := _message_of(error):
            _exit(message, error.exit_code)
        sys.exit(error.exit_code)
    except DownloadError as error:
        start, separator, problems = str(error).partition("cannot be downloaded: ")
        if separator:  # what went wrong at each address, on a line of its own
            problems = "\n  " + problems.replace("; ", "\n  ")
        _exit(start + separator.rstrip() + problems, 1)
    except ElmokitError as error:
        _exit(str(error), 1)
    except BrokenPipeError:  # whoever read our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _exit(where + (error.strerror or str(error)), 1)


def _message_of(error: Any) -> str:
    """What is wrong with the arguments, what may have been meant, and where to read more."""
    option = getattr(error, "option_name", None)
    if option and "no such option" in error.message.lower():
        close = getattr(error, "possibilities", None) or []
        close = sorted(close, key=lambda name: not name.startswith(f"{option}-"))
        return _with_help(error, f"no option {option}" + _meant(close))
    message = error.format_message().strip().removeprefix("Invalid value: ")
    message = re.sub(r"\.\s+Choose from:", "; choose from", message)  # of click, on several lines
    message = re.sub(r"\s*\n\s*", " ", message)
    message = message.replace("Value error, ", "").rstrip(".")  # of pydantic, as those below
    message = re.sub("Input should be a valid integer.*", "expected a whole number", message)
    message = re.sub("Input should be a valid number.*", "expected a number", message)
    if match := re.search("'([^']*)' is not one of (.*)", message):
        message += _meant(get_close_matches(match[1], re.findall("'(.*?)'", match[2])))
    return _with_help(error, message[:1].lower() + message[1:]) if message else ""


def _meant(names: Sequence[str] | None) -> str:
    return f"; did you mean {names[0]}?" if names else ""


def _with_help(error: Any, message: str) -> str:
    if error.ctx is None:
        return message
    return f"{message} (see {error.ctx.command_path} --help)"


def _exit(message: str, code: int) -> None:
    print(f"elmo: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(code)
