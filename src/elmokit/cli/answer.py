"""Lines of plain text become what a trained head says of them: a verb for each kind of task."""

import json
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import Split, Text, lines_of
from elmokit.errors import InputError

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="What elmo train made.")]
Source = Annotated[
    str | None, typer.Argument(metavar="INPUT", help="Text; - is stdin.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="A line of JSON a line.")]

_LINES_AT_ONCE = 256


def tag(
    folder: Folder, source: Source = None, split: Split = None, as_json: Json = False,
    text: Text = None,
) -> None:  # fmt: skip
    """Tag the words of a sentence a line: names, parts of speech, chunks.

    Example: elmo tag ner --text "Ada Lovelace was born in London ."
    """
    _answer(folder, source, split, as_json, text, {"ner", "chunking", "pos"})


def roles(
    folder: Folder, source: Source = None, split: Split = None, as_json: Json = False,
    text: Text = None,
) -> None:  # fmt: skip
    """Find who did what to whom: a sentence a line, its predicate between stars.

    Example: elmo roles srl --text "She *gave* the book to her brother ."
    """
    _answer(folder, source, split, as_json, text, {"roles"})


def classify(
    folder: Folder, source: Source = None, split: Split = None, as_json: Json = False,
    text: Text = None,
) -> None:  # fmt: skip
    """Label a text a line.

    Example: elmo classify reviews --text "A film to forget ."
    """
    _answer(folder, source, split, as_json, text, {"sentiment", "texts"})


def entail(
    folder: Folder, source: Source = None, split: Split = None, as_json: Json = False,
    text: Text = None,
) -> None:  # fmt: skip
    """Say how a second sentence stands to a first: both on a line, a tab between.

    Example: elmo entail snli pairs.tsv
    """
    _answer(folder, source, split, as_json, text, {"entailment"})


def answer(
    folder: Folder, source: Source = None, split: Split = None, as_json: Json = False,
    text: Text = None,
) -> None:  # fmt: skip
    """Answer questions: a question and a text on a line, a tab between.

    Example: elmo answer squad questions.tsv
    """
    _answer(folder, source, split, as_json, text, {"questions"})


def corefer(
    folder: Folder, source: Source = None, split: Split = None, as_json: Json = False,
    text: Text = None,
) -> None:  # fmt: skip
    """Group the mentions of the same person or thing: a whole document a line.

    Example: elmo corefer coref --text "Ada met Charles. She liked his machine."
    """
    _answer(folder, source, split, as_json, text, {"coreference"})


def _answer(
    folder: Path,
    source: str | None,
    split: str | None,
    as_json: bool,
    text: list[str] | None,
    tasks: set[str],
) -> None:
    from elmokit.tasks.catalog import TASKS  # noqa: PLC0415  (torch takes seconds)
    from elmokit.tasks.folder import load_trained  # noqa: PLC0415
    from elmokit.text.split import splitter  # noqa: PLC0415

    with lines_of(source, text) as lines:
        trained = load_trained(folder, TASKS)
        if trained.task.name not in tasks:
            expected = " or ".join(sorted(tasks))
            raise InputError(f"{folder}: was trained for {trained.task.name}, expected {expected}")
        plain, words = trained.task.plain, splitter(split or "spaces").words
        examples = (plain.ask(line, words) for line in lines if line.strip())
        while some := list(islice(examples, _LINES_AT_ONCE)):
            for example, said in zip(some, trained.answer(some), strict=True):
                if as_json:
                    typer.echo(json.dumps(said, ensure_ascii=False))
                else:
                    typer.echo(plain.show(example, said), nl=False)
