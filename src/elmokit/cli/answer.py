"""Lines of plain text become what a trained head says of them: a verb for each kind of task."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import Device, Split, Text, lines_of
from elmokit.errors import FormatError, InputError

if TYPE_CHECKING:
    from elmokit.tasks.data.table import Split as Words
    from elmokit.tasks.task import Task

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="What elmo train made.")]
Source = Annotated[
    str | None, typer.Argument(metavar="INPUT", help="Text; - is stdin.", show_default=False)
]
Json = Annotated[
    bool, typer.Option("--json", help="A line of JSON a line: the words, and what is said of them.")
]

_LINES_AT_ONCE = 256


def _verb(name: str, tasks: set[str], help: str) -> Callable[..., None]:
    """The verb of some tasks; `help` is what it says of itself."""

    def verb(
        folder: Folder, source: Source = None, tokenizer: Split = None, as_json: Json = False,
        text: Text = None, device: Device = "cpu",
    ) -> None:  # fmt: skip
        _answer(folder, source, tokenizer, as_json, text, device, tasks)

    verb.__name__, verb.__doc__ = name, help
    return verb


tag = _verb(
    "tag",
    {"ner", "chunking", "pos"},
    """Tag the words of a sentence a line: names, parts of speech, chunks.

    Example: elmo tag ner --text "Ada Lovelace was born in London ."
    """,
)
roles = _verb(
    "roles",
    {"roles"},
    """Find who did what to whom: a sentence a line, its predicate between stars.

    Example: elmo roles srl --text "She *gave* the book to her brother ."
    """,
)
classify = _verb(
    "classify",
    {"sentiment", "texts"},
    """Label a text a line.

    Example: elmo classify reviews --text "A film to forget."
    """,
)
entail = _verb(
    "entail",
    {"entailment"},
    """Say how a second sentence stands to a first: both on a line, a tab between.

    Example: elmo entail snli pairs.tsv
    """,
)
answer = _verb(
    "answer",
    {"questions"},
    """Answer questions: a question and a text on a line, a tab between.

    Example: elmo answer squad questions.tsv
    """,
)
corefer = _verb(
    "corefer",
    {"coreference"},
    """Group the mentions of the same person or thing: a whole document a line.

    Example: elmo corefer coref --text "Ada met Charles. She liked his machine."
    """,
)


def _answer(
    folder: Path,
    source: str | None,
    tokenizer: str | None,
    as_json: bool,
    text: list[str] | None,
    device: str,
    tasks: set[str],
) -> None:
    from elmokit.tasks.folder import load_trained  # noqa: PLC0415
    from elmokit.tasks.plain import words_by  # noqa: PLC0415
    from elmokit.tokenizers import check_tokenizer  # noqa: PLC0415

    if tokenizer is not None:
        check_tokenizer(tokenizer)
    with lines_of(source, text) as lines:
        trained = load_trained(folder, device=device)
        if trained.task.name not in tasks:
            expected = " or ".join(sorted(tasks))
            raise InputError(f"{folder}: was trained for {trained.task.name}, expected {expected}")
        plain = trained.task.plain
        words = words_by(tokenizer or trained.split)
        numbered = enumerate(lines, 1)
        wrong: InputError | FormatError | None = None
        while wrong is None:
            asked: list[Any] = []
            try:
                for number, line in islice(numbered, _LINES_AT_ONCE):
                    # A blank line is answered by one: so lines stay beside their answers.
                    blank = plain.is_blank(line)
                    asked.append(None if blank else _ask(trained.task, line, words, number))
            except (InputError, FormatError) as error:  # those before it are answered first
                wrong = error
            if not asked:
                break
            answers = iter(trained.answer([example for example in asked if example is not None]))
            for example in asked:
                said = None if example is None else next(answers)
                if as_json:
                    words_of = trained.task.sentences
                    record = example and {"sentences": words_of(example), "answer": said}
                    typer.echo(json.dumps(record, ensure_ascii=False))
                else:
                    typer.echo("\n" if example is None else plain.show(example, said), nl=False)
        if wrong is not None:
            raise wrong


def _ask(task: "Task", line: str, words: "Words", number: int) -> Any:
    """The example that a line asks of."""
    try:
        example = task.plain.ask(line, words)
        task.check_lengths([example])
        return example
    except InputError as error:
        raise InputError(f"line {number}: {error}") from None
