"""What commands share: options of a model and of settings, input lines, help texts, suggestions."""

import functools
import inspect
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

import elmokit
from elmokit.errors import ConfigError, InputError
from elmokit.files import COMPRESSED_SIGNATURES, STDIN, TextFile, read_lines
from elmokit.pooling import LAYERS, POOLINGS
from elmokit.tokenizers import TOKENIZERS, check_tokenizer

if TYPE_CHECKING:
    from elmokit.embedder import Embedder, LoadOptions

    PoolingName = str
else:
    PoolingName = Literal[tuple(POOLINGS)]

Command = Callable[..., None]
Load = functools.partial["Embedder"]  # loads the model that the options name, its `keywords`


def _escaped(text: str) -> str:
    """Text whose square brackets rich shows, instead of reading them as markup."""
    return text.replace("[", r"\[")


def option(help: str, default: Any = None, *names: str, **shown: Any) -> Any:
    """An option, as the default of its parameter; `shown` are further settings of `typer.Option`.

    A parameter of type bool is a flag without a --no- form, unless `names` has one.
    """
    shown.setdefault("show_default", default is not None)
    return typer.Option(default, *names, help=_escaped(help), **shown)


def argument(metavar: str, help: str, default: Any = ..., **shown: Any) -> Any:
    """An argument, as the default of its parameter."""
    shown.setdefault("show_default", default is not None)
    return typer.Argument(default, metavar=metavar, help=_escaped(help), **shown)


def listed(descriptions: Mapping[str, str]) -> str:
    """Choices with what each of them means, for a help text."""
    return ", ".join(f"{name} ({description})" for name, description in descriptions.items())


def layers_option(
    help: str, default: str | None, *, names: Sequence[str], numbers: str = "NUMBER", **shown: Any
) -> Any:
    """The option --layers of a command that takes these names of layers, or numbers."""
    metavar = "|".join([*names, numbers])
    other = "numbers between commas, such as 0,2" if numbers == "NUMBERS" else "one by its number"
    about = f"{help}: {listed({name: LAYERS[name] for name in names})}, or {other}."

    def check(text: str | None) -> str | None:
        if text is not None and text not in LAYERS and isinstance(parse_layers(text), str):
            known = ", ".join(map(repr, names))
            raise typer.BadParameter(f"{text!r} is not one of {known} or a number")
        return text

    return option(about, default, metavar=metavar, callback=check, **shown)


def pooling_option(help: str, default: str | None = None, **shown: Any) -> Any:
    """The option --pooling, its help with a description of each pooling."""
    descriptions = {name: pooling.description for name, pooling in POOLINGS.items()}
    return option(f"{help}: {listed(descriptions)}.", default, **shown)


def tokenizer_option(help: str, default: str | None = None, **shown: Any) -> Any:
    """The option --tokenizer, its help with a description of each tokenizer."""
    descriptions = {name: choice.description for name, choice in TOKENIZERS.items()}
    return option(
        f"{help}: {listed(descriptions)}.", default, metavar="NAME", callback=_check_name, **shown
    )


def _check_name(tokenizer: str | None) -> str | None:
    if tokenizer is not None:
        try:
            check_tokenizer(tokenizer)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None
    return tokenizer


CORPUS_HELP = "Files, folders or quoted globs, plain or packed (.gz, .xz, .zst); - is stdin."
SOURCE = argument("INPUT", "A file with a text on each line; - is stdin.", None)
TEXT = option("A text given here instead of INPUT; may be repeated.")
TOKENIZER = tokenizer_option(
    "How raw text is split into sentences and words",
    show_default="as the model's training text was",
)
ALIGN = option(
    "Turn layers to those of another language's model: an .npz with a matrix for each layer, or a "
    ".pth with that of layer 1.",
)
DEVICE = option("Where to compute.", "cpu", metavar="cpu|cuda|cuda:N|mps")
OFFLINE = option("Never use the network; ELMOKIT_OFFLINE=1 says the same.", False)
AS_JSON = option("Print JSON.", False, "--json")


class _LoadOptions:
    """The options of `elmokit.load`, each written once for all commands that load a model."""

    model: list[str] | None = option(
        "A model's name (see elmo models), folder or archive, or hf://user/model; for an options "
        "file and a weights file, give it twice.",
        None, "--model", "-m", metavar="MODEL", show_default="the English model in the package",
    )  # fmt: skip
    tokenizer: str | None = TOKENIZER
    align: Path | None = ALIGN
    state: Literal["zero", "carry", "warm"] = option(
        "The LSTM state at the start of a sentence: zero, carried over from the sentence before, "
        "or the same warm state for every sentence.",
        "zero",
    )
    precision: Literal["float32", "half", "int8"] = option(
        "Precision of the LSTM weights: float32 is exact, the others are faster.", "float32"
    )
    kernel: Literal["auto", "torch", "numba"] = option(
        "What runs the LSTMs on a CPU: layers compiled by Numba (elmokit[fast]), torch's "
        "operations, or automatically the faster of what can be used.",
        "auto",
    )
    device: str = DEVICE
    tokens_per_batch: int = option(
        "How many words are computed together; more is faster and takes more memory.", 4096, min=1
    )
    threads: int | None = option(
        "How many threads compute.", min=1, show_default="one for each CPU that may be used"
    )
    offline: bool = OFFLINE
    allow_nonfinite: bool = option("Load weights that hold a NaN or an infinity, too.", False)


def takes_model(*names: str) -> Callable[[Command], Command]:
    """Give a command the options of `elmokit.load` with these names, as one argument `load`.

    Every command has --model, --device, --threads, --offline and --allow-nonfinite.
    """
    wanted = {"model", "device", "threads", "offline", "allow_nonfinite", *names}
    hints = {name: hint for name, hint in get_type_hints(_LoadOptions).items() if name in wanted}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            options = {name: given.pop(name) for name in hints}
            command(**given, load=functools.partial(_load, **options))

        added = []
        for name, hint in hints.items():
            info = copy(getattr(_LoadOptions, name))
            info.rich_help_panel = "Model"
            added.append(_parameter(name, hint, info))
        return _with_parameters(wrapper, [*_parameters(command, without="load"), *added])

    return decorate


def _load(model: list[str] | None, **options: Any) -> "Embedder":
    return elmokit.load(*_sources(model), **options)


def load_options(load: Load) -> "LoadOptions":
    """What `load` loads, for processes that each load it."""
    options: dict[str, Any] = {**load.keywords}
    source, weights = [*_sources(options.pop("model")), None, None][:2]
    return elmokit.LoadOptions(source, weights, **options)


def _sources(model: list[str] | None) -> list[str]:
    """The model that --model names, or its options file and its weights file."""
    if model and len(model) > 2:
        raise typer.BadParameter(f"--model was given {len(model)} times, expected once or twice")
    return model or []


def parse_layers(text: str) -> Any:
    """A name of layers, a number, or several numbers between commas, as `layers=` takes them."""
    numbers = text.replace(" ", "").split(",")
    if not all(re.fullmatch("-?[0-9]+", number) for number in numbers):
        return text
    return int(text) if len(numbers) == 1 else [int(number) for number in numbers]


def takes_settings(record: Any, *, without: Container[str] = ()) -> Callable[[Command], Command]:
    """Give a command an option for every setting of a dataclass, as one argument `given`.

    `given` maps the names that were typed to values as a TOML file has them. The defaults are
    those of `record`.
    """
    hints = get_type_hints(type(record))
    settings = [setting for setting in fields(record) if setting.name not in without]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            typed = {s.name: given.pop(s.name) for s in settings}
            texts = {name: _as_toml(value) for name, value in typed.items() if value is not None}
            command(**given, given=texts)

        added = [
            _setting_option(s.name, hints[s.name], getattr(record, s.name), s.metadata["help"])
            for s in settings
        ]
        return _with_parameters(wrapper, [*_parameters(command, without="given"), *added])

    return decorate


_EMPTY_SETTINGS = {"layers": "all", "tokenizer": "automatic"}  # what the empty value means


def _setting_option(name: str, hint: Any, default: Any, help: str) -> inspect.Parameter:
    names, metavar = "--" + name.replace("_", "-"), None
    if hint is bool:
        names += names.replace("--", "/--no-", 1)
        default = "yes" if default else "no"
    elif get_origin(hint) is tuple:
        pairs = get_origin(get_args(hint)[0]) is tuple
        hint, metavar = str, "'[[N, N], ...]'" if pairs else "N,N"
        default = json.dumps(default) if pairs else ",".join(map(str, default))
    elif name == "tokenizer":
        metavar = "|".join(TOKENIZERS)
    if default == "":
        default = _EMPTY_SETTINGS.get(name, "none")
    about = f"{help} [default: {default}]"
    info = option(about, None, names, metavar=metavar, rich_help_panel="Settings")
    return _parameter(name, hint | None, info)


def _as_toml(value: Any) -> str:
    """A typed value of a setting as a TOML file would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and re.fullmatch(r"-?\d+(,-?\d+)+", value):
        return f"[{value}]"
    return str(value)


def _parameter(name: str, hint: Any, info: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=hint)


def _parameters(command: Command, *, without: str = "") -> list[inspect.Parameter]:
    return [p for p in inspect.signature(command).parameters.values() if p.name != without]


def _with_parameters(command: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """A function with the signature that Typer is to see."""
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    command.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in keyword}
    return command


_NARROW_TERMINAL, _NARROW_METAVAR = 120, 16  # columns


class ElmoCommand(TyperCommand):
    """A command whose flags and arguments are shown without a type."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help text; on a narrow terminal, so that no name of an option is cut off."""
        shown = copy(self)
        if shutil.get_terminal_size().columns < _NARROW_TERMINAL:
            shown.params = [_narrowed(param) for param in self.params]
        super(ElmoCommand, shown).format_help(ctx, formatter)


def _narrowed(param: Any) -> Any:
    """The parameter with --x above --no-x, and many choices on several lines."""
    param = copy(param)
    if param.secondary_opts:
        param.opts = [*param.opts, *(f"\n{name}" for name in param.secondary_opts)]
        param.secondary_opts = []
    if "|" in (param.metavar or ""):
        lines = textwrap.wrap(param.metavar.replace("|", "| "), _NARROW_METAVAR)
        param.metavar = "\n".join(line.replace("| ", "|") for line in lines)
    return param


def _without_types(params: Any) -> Any:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        if param.param_type_name == "argument":  # its name says what it is
            param.display_type_rich = lambda ctx: ""
    return params


class ElmoGroup(TyperGroup):
    """A group that says what was meant by a misspelt command."""

    noun = "command"
    removed: Mapping[str, str] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            names = self.list_commands(ctx)
            if name in self.removed:
                hint = f"use `{ctx.command_path} {self.removed[name]}`"
            elif close := get_close_matches(name, names):
                hint = f"did you mean {' or '.join(close)}?"
            else:
                hint = f"expected one of {', '.join(names)}"
            ctx.fail(f"no {self.noun} '{name}'; {hint}")
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


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
        context_settings={"help_option_names": ["--help", "-h"]},
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )


def add_command(
    to: typer.Typer,
    command: Command,
    name: str | None = None,
    *,
    panel: str | None = None,
    cls: type[TyperCommand] = ElmoCommand,
) -> None:
    """Add a command, its help text as its docstring has it."""
    to.command(
        name=name or command.__name__.replace("_", "-"),
        cls=cls,
        help=_help_of(command),
        rich_help_panel=panel,
    )(_with_metavars(command))


def _with_metavars(command: Command) -> Command:
    """The command with metavars that people can read, and flags without a --no- form."""
    parameters = []
    for parameter in _parameters(command):
        info = copy(parameter.default)
        if isinstance(info, OptionInfo):
            if info.metavar is None:
                info.metavar = _metavar(parameter.annotation)
            if parameter.annotation is bool and not info.param_decls:
                info.param_decls = ("--" + parameter.name.replace("_", "-"),)
        parameters.append(parameter.replace(default=info))
    return _with_parameters(command, parameters)


def _metavar(hint: Any) -> str:
    """What stands for a value in help texts."""
    kinds = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
    kind = next(kind for kind in kinds if kind is not type(None))
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    kind = (get_args(kind) or (kind,))[0]
    return {bool: "", int: "N", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _help_of(command: Command) -> str:
    """A docstring with one line for each paragraph, so that terminals break the lines."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return _escaped("\n\n".join(" ".join(p.split("\n")) for p in paragraphs))


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
        raise typer.BadParameter("no INPUT given; name a file, - for stdin, or give --text")
    else:
        name = "stdin" if source == STDIN else source
        if source == STDIN and sys.stdin is not None and sys.stdin.isatty():
            tell("reading from the terminal; Ctrl-D on a line of its own ends the text")
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


def is_shard_folder(name: str) -> bool:
    """Whether there is a folder of shards that elmo embed wrote, or began to."""
    if not (Path(name) / "manifest.json").is_file():
        return False
    from elmokit.bulk.shards import is_shard_folder as is_one  # noqa: PLC0415  an extra

    return is_one(name)


def print_facts(facts: Mapping[str, object], *, as_json: bool, width: int = 12) -> None:
    """Print names and values as JSON, or in two columns, leaving out what is None."""
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        if value is not None:
            number = {int: ",", float: ",.3f"}.get(type(value), "")
            typer.echo(f"{name:{width}}" + (format(value, number) if number else str(value)))


def counted(number: int, noun: str) -> str:
    """A number of things: 1 word, 2 words."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def tell(line: str) -> None:
    """Print a line for people, on stderr."""
    typer.echo(line, err=True)
