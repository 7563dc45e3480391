"""A file becomes how well a model does on it: its perplexity, or a trained head's scores."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

import elmokit
from elmokit.cli.options import (
    Device,
    Model,
    PrecisionWay,
    Split,
    StateWay,
    Text,
    TokensPerBatch,
    lines_of,
    load,
    tell,
)
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.results import Perplexity, Score


def evaluate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] FILE",
            help="A folder or zip, if not the English model; raw text, - is stdin.",
            show_default=False,
        ),
    ] = None,
    model: Model = None,
    per_sentence: Annotated[
        Path | None,
        typer.Option(help="A .tsv file to make: a line a sentence.", show_default=False),
    ] = None,
    tokenizer: Split = None,
    state: StateWay = "zero",
    precision: PrecisionWay = "float32",
    device: Device = "cpu",
    tokens_per_batch: TokensPerBatch = 4096,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    text: Text = None,
) -> None:
    """Tell how well a model predicts a text: its perplexity, forward and backward.

    Of a folder that elmo train made, tell how well it does on FILE, labelled as its examples were.

    Every word is scored once by each reader, with the full softmax. A line may hold several
    sentences; for text that is split already, a sentence a line, say --tokenizer spaces.

    Example: elmo evaluate run heldout.txt --state carry --per-sentence scores.tsv
    """
    model, source = _model_and_source(names or [], model, text)
    if model is not None and (model[0] / "task.json").is_file():
        others = (tokenizer, state, precision, tokens_per_batch)
        if source is None or per_sentence is not None or others != (None, "zero", "float32", 4096):
            raise InputError(
                f"{model[0]}: a trained task is judged by a file of labelled examples; name one "
                "after it, with no option but --json and --device"
            )
        _evaluate_task(model[0], Path(source), device=device, as_json=as_json)
        return
    if per_sentence is not None and per_sentence.exists():
        raise InputError(f"{per_sentence}: exists already; delete it, or give another name")
    with lines_of(source, text) as lines:
        scores = load(
            model,
            state=state,
            tokenizer=tokenizer,
            device=device,
            precision=precision,
            tokens_per_batch=tokens_per_batch,
        ).score_stream(lines)
        found = _evaluate(scores, per_sentence)
    facts: dict[str, object] = {
        "forward": found.forward,
        "backward": found.backward,
        "average": found.average,
        "both": found.geometric_mean,
        "words": found.words,
        "unknown": found.unknown,
        "predictions": found.predictions,
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name:12}{value:,.3f}" if type(value) is float else f"{name:12}{value:,}")


def _evaluate_task(folder: Path, source: Path, *, device: str, as_json: bool) -> None:
    from elmokit.tasks.folder import load_trained  # noqa: PLC0415

    trained = load_trained(folder, device=device)
    task = trained.task
    examples = task.read(source, split=trained.split)
    if strange := task.strangers(examples, trained.head.labels):
        tell(f"labels that {folder} has never met, and never gives: {', '.join(strange)}")
    answers = trained.answer(examples)
    facts: dict[str, object] = dict(task.score(examples, answers))
    labels = {} if task.by_label is None else task.by_label(examples, answers)
    if as_json:
        shown = ("f1", "precision", "recall", "wanted")
        own = {label: {name: getattr(s, name) for name in shown} for label, s in labels.items()}
        typer.echo(json.dumps({**facts, "labels": own} if labels else facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:12}{value:.4f}")
    width = max(map(len, labels), default=0)
    for label, s in labels.items():
        typer.echo(
            f"  {label:{width}}  f1 {s.f1:.4f}  precision {s.precision:.4f}  "
            f"recall {s.recall:.4f}  of {s.wanted:,}"
        )


def _model_and_source(
    names: list[str], model: list[Path] | None, text: list[str] | None
) -> tuple[list[Path] | None, str | None]:
    """What the names stand for: with --text the model, else the text, and the model before it."""
    source = None if text or not names else names[-1]
    models = names if source is None else names[:-1]
    if len(models) > (0 if model else 1):
        raise typer.BadParameter("give MODEL and FILE, FILE alone, or --text", param_hint="FILE")
    if source is not None and Path(source).is_dir():
        raise InputError(f"{source}: a folder, expected a file of text; name one after the model")
    return model or [Path(name) for name in models] or None, source


def _evaluate(scores: "Iterator[Score]", per_sentence: Path | None) -> "Perplexity":
    """The perplexity; and on the way, if wanted, a line a sentence in a file that is whole."""
    if per_sentence is None:
        return elmokit.Perplexity.of(scores)
    from elmokit.atomic import write_atomically  # noqa: PLC0415  (torch takes seconds)

    found: list[Perplexity] = []

    def write(file: BinaryIO) -> None:
        file.write(b"words\tunknown\tforward\tbackward\tperplexity\tsentence\n")
        found.append(elmokit.Perplexity.of(_written(scores, file)))

    write_atomically(per_sentence, write)
    return found[0]


def _written(scores: "Iterable[Score]", file: BinaryIO) -> "Iterator[Score]":
    """The scores, each written when it goes by: the logarithms of both readers' probabilities."""
    for score in scores:
        sums = ["" if s is None else f"{s.sum():.4f}" for s in (score.forward, score.backward)]
        sentence = " ".join(score.words)
        row = [len(score.words), score.unknown, *sums, f"{score.perplexity:.3f}", sentence]
        file.write(("\t".join(map(str, row)) + "\n").encode())
        yield score
