"""What commands share: options of a model and of settings, input lines, help texts, suggestions."""

import functools
import inspect
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo, ParameterInfo

import elmokit
from elmokit.errors import InputError
from elmokit.files import COMPRESSED_SIGNATURES, STDIN, TextFile, read_lines
from elmokit.tokenizers import TOKENIZERS

if TYPE_CHECKING:
    from elmokit.embedder import Embedder

Command = Callable[..., None]

TOKENIZER_NAMES = "|".join(TOKENIZERS)

Source = Annotated[
    str | None,
    typer.Argument(
        metavar="INPUT", help="A file with a text on each line; - is stdin.", show_default=False
    ),
]
Text = Annotated[
    list[str] | None,
    typer.Option(help="A text given here instead of INPUT; may be repeated.", show_default=False),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        metavar=TOKENIZER_NAMES,
        help="How raw text is split into sentences and words.",
        show_default="as the model's training text was",
    ),
]
Device = Annotated[str, typer.Option(metavar="cpu|cuda|cuda:N|mps", help="Where to compute.")]
Layers = Annotated[
    str,
    typer.Option(
        metavar="mean|top|concat|NUMBER",
        help="Which layers: their mean, the top one, all of them end to end, or one by its number.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CORPUS_HELP = "Files, folders or quoted globs, plain or packed (.gz, .xz, .zst); - is stdin."

# The options of `elmokit.load`, each written once for all commands that load a model.
_LOAD_OPTIONS: dict[str, tuple[Any, Any]] = {
    "model": (
        Annotated[
            list[Path] | None,
            typer.Option(
                "--model",
                "-m",
                metavar="MODEL",
                help="A model folder or zip; for an options file and a weights file, give it "
                "twice.",
                show_default="the English model in the package",
                rich_help_panel="Model",
            ),
        ],
        None,
    ),
    "tokenizer": (
        Annotated[
            str | None,
            typer.Option(
                metavar=TOKENIZER_NAMES,
                help="How raw text is split into sentences and words.",
                show_default="as the model's training text was",
                rich_help_panel="Model",
            ),
        ],
        None,
    ),
    "state": (
        Annotated[
            Literal["zero", "carry", "warm"],
            typer.Option(
                help="The LSTM state at the start of a sentence: zero, carried over from the "
                "sentence before, or the same warm state for every sentence.",
                rich_help_panel="Model",
            ),
        ],
        "zero",
    ),
    "precision": (
        Annotated[
            Literal["float32", "half", "int8"],
            typer.Option(
                help="Precision of the LSTM weights: float32 is exact, the others are faster.",
                rich_help_panel="Model",
            ),
        ],
        "float32",
    ),
    "device": (
        Annotated[
            str,
            typer.Option(
                metavar="cpu|cuda|cuda:N|mps", help="Where to compute.", rich_help_panel="Model"
            ),
        ],
        "cpu",
    ),
    "tokens_per_batch": (
        Annotated[
            int,
            typer.Option(
                min=1,
                help="How many words are computed together; more is faster and takes more memory.",
                rich_help_panel="Model",
            ),
        ],
        4096,
    ),
    "threads": (
        Annotated[
            int | None,
            typer.Option(
                min=1,
                help="How many threads compute.",
                show_default="one for each CPU that may be used",
                rich_help_panel="Model",
            ),
        ],
        None,
    ),
}


# Loads the model that the options name; `keywords` are the options.
Load = functools.partial["Embedder"]


def takes_model(*names: str) -> Callable[[Command], Command]:
    """Give a command the options of `elmokit.load` with these names, as one argument `load`.

    Every command has --model, --device and --threads.
    """
    wanted = ("model", *(n for n in _LOAD_OPTIONS if n in (*names, "device", "threads")))

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.name != "load"]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_LOAD_OPTIONS[name][1],
                annotation=_LOAD_OPTIONS[name][0],
            )
            for name in wanted
        ]

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            options = {name: given.pop(name) for name in wanted}
            command(**given, load=functools.partial(_load, **options))

        return _with_parameters(wrapper, [*own, *added])

    return decorate


def _load(model: list[Path] | None, **options: Any) -> "Embedder":
    model = model or []
    if len(model) > 2:
        raise InputError(f"--model was given {len(model)} times, expected once or twice")
    return elmokit.load(*model, **options)


def parse_layers(text: str) -> Any:
    """A name of layers, a number, or several numbers between commas, as `layers=` takes them."""
    numbers = text.replace(" ", "").split(",")
    if not all(re.fullmatch("-?[0-9]+", number) for number in numbers):
        return text
    return int(text) if len(numbers) == 1 else [int(number) for number in numbers]


def takes_settings(
    default: Callable[[], Any], *, without: Container[str] = ()
) -> Callable[[Command], Command]:
    """Give a command an option for every setting of a dataclass, as one argument `given`.

    `given` maps the names that were typed to values as a TOML file has them.
    """

    def decorate(command: Command) -> Command:
        def complete() -> Command:
            record = default()
            names = [f.name for f in fields(record) if f.name not in without]

            @functools.wraps(command)
            def wrapper(**given: Any) -> None:
                typed = {n: _as_toml(v) for n in names if (v := given.pop(n)) is not None}
                command(**given, given=typed)

            own = [p for p in inspect.signature(command).parameters.values() if p.name != "given"]
            return _with_parameters(wrapper, [*own, *_settings_parameters(record, names)])

        return completed_later(command, complete)

    return decorate


def pooling_names() -> list[str]:
    """The poolings to choose from."""
    from elmokit.pooling import POOLINGS  # noqa: PLC0415  (torch takes seconds)

    return [*POOLINGS]


def takes_choices(**choices: Callable[[], Iterable[str]]) -> Callable[[Command], Command]:
    """Let options of a command take the names of a registry only, and list them in its help."""

    def decorate(command: Command) -> Command:
        def narrowed(parameter: inspect.Parameter) -> inspect.Parameter:
            if parameter.name not in choices:
                return parameter
            hint, info = get_args(parameter.annotation)
            names: Any = Literal[tuple(choices[parameter.name]())]
            return parameter.replace(
                annotation=Annotated[names | None if type(None) in get_args(hint) else names, info]
            )

        def complete() -> Command:
            @functools.wraps(command)
            def wrapper(**given: Any) -> None:
                command(**given)

            own = inspect.signature(command).parameters.values()
            return _with_parameters(wrapper, map(narrowed, own))

        return completed_later(command, complete)

    return decorate


def completed_later(command: Command, complete: Callable[[], Command]) -> Command:
    """A command whose options are read when it is run, or its help shown: that may import torch."""

    @functools.wraps(command)
    def stub(**given: Any) -> None:
        raise AssertionError("the group runs what `complete` returns")

    stub.complete = complete  # type: ignore[attr-defined]
    return _with_parameters(stub, [])


def _settings_parameters(record: Any, wanted: Container[str]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(type(record))
    for setting in fields(record):
        if setting.name not in wanted:
            continue
        hint, default = hints[setting.name], getattr(record, setting.name)
        names, metavar = "--" + setting.name.replace("_", "-"), None
        if hint is bool:
            names += names.replace("--", "/--no-", 1)
            default = "yes" if default else "no"
        elif get_origin(hint) is tuple:
            pairs = get_origin(get_args(hint)[0]) is tuple
            hint, metavar = str, "'[[N, N], ...]'" if pairs else "N,N"
            default = json.dumps(default) if pairs else ",".join(map(str, default))
        elif setting.name == "tokenizer":
            metavar = TOKENIZER_NAMES
        info = typer.Option(
            names,
            metavar=metavar,
            help=f"{setting.metadata['help']} [default: {'none' if default == '' else default}]",
            show_default=False,
            rich_help_panel="Settings",
        )
        yield inspect.Parameter(
            setting.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[hint | None, info],
        )


def _as_toml(value: Any) -> str:
    """A typed value of a setting as a TOML file would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and re.fullmatch(r"-?\d+(,-?\d+)+", value):
        return f"[{value}]"
    return str(value)


class ElmoCommand(TyperCommand):
    """A command whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, --help among them."""
        return _without_flag_types(super().get_params(ctx))


def _without_flag_types(params: Any) -> Any:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class ElmoGroup(TyperGroup):
    """A group that says what was meant by a misspelt command."""

    noun = "command"
    removed: Mapping[str, str] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names, with all of its options."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not name.startswith("-"):
            instead = [self.removed[name]] if name in self.removed else []
            close = get_close_matches(name, self.list_commands(ctx))
            names = ", ".join(self.list_commands(ctx))
            if instead:
                hint = f"use `{ctx.command_path} {instead[0]}`"
            elif close:
                hint = f"did you mean {' or '.join(close)}?"
            else:
                hint = f"expected one of {names}"
            ctx.fail(f"no {self.noun} '{name}'; {hint}")
        if complete := getattr(getattr(command, "callback", None), "complete", None):
            self.add_command(complete_command(complete(), name), name)
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        """The parameters, --help among them."""
        return _without_flag_types(super().get_params(ctx))


def group(
    name: str, help: str, cls: type[ElmoGroup] = ElmoGroup, *, metavar: str = "COMMAND ..."
) -> typer.Typer:
    """A group of commands; `metavar` stands for them in its usage line."""
    return typer.Typer(
        name=name,
        cls=cls,
        subcommand_metavar=metavar,
        help=_escaped(help),
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )


def add_command(
    to: typer.Typer, command: Command, name: str | None = None, *, panel: str | None = None
) -> None:
    """Add a command, its help text as its docstring has it."""
    to.command(
        name=name or command.__name__.replace("_", "-"),
        cls=ElmoCommand,
        help=_help_of(command),
        rich_help_panel=panel,
    )(_prepared(command))


def complete_command(command: Command, name: str, panel: str | None = None) -> Any:
    """The command for a group, with all of its options."""
    if complete := getattr(command, "complete", None):
        command = complete()
    app = group(name, "")
    add_command(app, command, name, panel=panel)
    return typer.main.get_command(app)


def _prepared(command: Command) -> Command:
    """The command with help texts as rich shows them, and with metavars people can read."""

    def shown(parameter: inspect.Parameter) -> inspect.Parameter:
        annotation = parameter.annotation
        if get_origin(annotation) is not Annotated:
            return parameter
        hint, *metadata = get_args(annotation)
        infos = [copy(m) if isinstance(m, ParameterInfo) else m for m in metadata]
        for info in infos:
            if isinstance(info, ParameterInfo):
                info.help = _escaped(info.help or "")
                if isinstance(info, OptionInfo) and info.metavar is None:
                    info.metavar = _metavar(hint)
        annotated: Any = (hint, *infos)
        return parameter.replace(annotation=Annotated[annotated])

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        command(**given)

    parameters = inspect.signature(command, eval_str=True).parameters.values()
    return _with_parameters(wrapper, [shown(p) for p in parameters])


def _metavar(hint: Any) -> str:
    """What stands for a value in help texts."""
    kind = next(k for k in (get_args(hint) or (hint,)) if k is not type(None))
    if get_origin(hint) is Literal:
        kind = hint
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    kind = (get_args(kind) or (kind,))[0]
    return {bool: "", int: "N", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _with_parameters(command: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """A function with the signature that Typer is to see."""
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    command.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in keyword}
    return command


def _help_of(command: Command) -> str:
    """A docstring with one line for each paragraph, so that terminals break the lines."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return _escaped("\n\n".join(" ".join(p.split("\n")) for p in paragraphs))


def _escaped(text: str) -> str:
    """Text whose square brackets rich shows, instead of reading them as markup."""
    return text.replace("[", r"\[")


def resumable(how: str) -> Callable[[Command], Command]:
    """Say on Ctrl-C how the work of a command goes on."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*arguments: Any, **given: Any) -> None:
            try:
                command(*arguments, **given)
            except KeyboardInterrupt:
                raise StoppedError(how) from None

        return wrapper

    return decorate


class StoppedError(Exception):
    """Ctrl-C was pressed; the message is how the work goes on."""


_LONG_LINE = 500_000  # characters: about twenty seconds of work


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
        name = "stdin" if source == STDIN else source
        with TextFile(source).open() as opened:
            yield _announce_long_lines(read_lines(opened, name), name)


def _announce_long_lines(lines: Iterable[str], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > _LONG_LINE:
            tell(f"{name}, line {number}: {len(line):,} characters on one line, this takes a while")
        yield line


def check_utf8(*texts: str) -> None:
    """Refuse arguments that a terminal with another encoding has sent."""
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise InputError(f"{text!r}: not UTF-8; does the terminal use another encoding?")


def count_lines(source: str | None, text: list[str] | None) -> int | None:
    """The number of lines, where it can be known beforehand: not of a packed file."""
    if text:
        return len(text)
    if source is None or not Path(source).is_file():
        return None
    line_feeds, last = 0, b"\n"
    with open(source, "rb") as file:
        for block in iter(lambda: file.read(2**20), b""):
            if file.tell() == len(block) and block.startswith(COMPRESSED_SIGNATURES):
                return None
            line_feeds += block.count(b"\n")
            last = block[-1:]
    return line_feeds + (last != b"\n")


def print_facts(facts: Mapping[str, object], *, width: int = 12) -> None:
    """Print names and values in two columns, leaving out what is None."""
    for name, value in facts.items():
        if value is None:
            continue
        shown = f"{value:,.3f}" if type(value) is float else value
        typer.echo(f"{name:{width}}{shown:,}" if type(value) is int else f"{name:{width}}{shown}")


def one_of(value: str, names: Sequence[str], option: str) -> str:
    """The value if it is among the names; otherwise a usage error with a suggestion."""
    if value in names:
        return value
    close = get_close_matches(value, names)
    hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(names)}"
    raise typer.BadParameter(f"{value!r} is not known; {hint}", param_hint=option)


def tell(line: str) -> None:
    """Print a line for people, on stderr."""
    typer.echo(line, err=True)
