"""Commands that ask the language model: score, evaluate and predict."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

import elmokit
from elmokit.cli.options import (
    AS_JSON,
    SOURCE,
    TEXT,
    Load,
    argument,
    lines_of,
    option,
    print_facts,
    takes_model,
    tell,
)
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.language_model_results import Perplexity, Prediction, Score

_COLUMNS = ("words", "unknown", "forward", "backward", "perplexity", "sentence")
_NUM_PREDICTIONS = 10  # of elmo predict without -k


@takes_model("tokenizer", "state", "precision", "kernel", "tokens_per_batch")
def score(
    load: Load,
    source: str | None = SOURCE,
    as_json: bool = option(
        "Print a line of JSON with the log-probability of each word.", False, "--json"
    ),
    text: list[str] | None = TEXT,
) -> None:
    """Print for each sentence how probable the language model finds it.

    The columns are the number of words, how many of them are unknown, the log-probabilities
    forward and backward, the perplexity, and the sentence.

    Example: elmo score --text "The cat sat on the mat."
    """
    with lines_of(source, text) as lines:
        scores = load().score_stream(lines)
        if not as_json:
            typer.echo("\t".join(_COLUMNS))
        for scored in scores:
            record = json.dumps(_record(scored), ensure_ascii=False) if as_json else _row(scored)
            typer.echo(record)


@takes_model("tokenizer", "state", "precision", "kernel", "tokens_per_batch")
def evaluate(
    load: Load,
    names: list[str] | None = argument(
        "[MODEL] FILE",
        "A model's name, folder or archive, or a folder that elmo train made; then a text file, or "
        "labelled examples for a trained head. - is stdin.",
        None,
    ),
    per_sentence: Path | None = option(
        "A .tsv file to write, with the columns of elmo score.", metavar="FILE"
    ),
    as_json: bool = AS_JSON,
    text: list[str] | None = option("A text given here instead of FILE; may be repeated."),
) -> None:
    """Measure how well a model predicts a text, or how well a trained head does its task.

    A language model is measured by its perplexity, forward and backward, over the full
    vocabulary. For text with one sentence on each line, already tokenized, say --tokenizer spaces.

    Example: elmo evaluate run heldout.txt --state carry --per-sentence scores.tsv
    """
    options: dict[str, Any] = load.keywords
    model, source = _model_and_source(names or [], options["model"], text)
    if model is not None and Path(model[0], "task.json").is_file():
        _evaluate_task(Path(model[0]), source, options, per_sentence=per_sentence, as_json=as_json)
        return
    if per_sentence is not None and per_sentence.exists():
        raise InputError(f"{per_sentence}: exists already; delete it, or give another name")
    with lines_of(source, text) as lines:
        result = _evaluate(load(model=model).score_stream(lines), per_sentence)
    facts: dict[str, object] = {
        "forward": result.forward,
        "backward": result.backward,
        "average": result.average,
        "geometric_mean" if as_json else "geometric mean": result.geometric_mean,
        "words": result.words,
        "unknown": result.unknown,
        "predictions": result.predictions,
    }
    print_facts(facts, as_json=as_json, width=16)


@takes_model("tokenizer", "state", "precision", "kernel")
def predict(
    load: Load,
    source: str | None = SOURCE,
    k: int | None = option(
        "How many words to print.",
        None,
        "-k",
        metavar="N",
        min=1,
        show_default=str(_NUM_PREDICTIONS),
    ),
    previous: bool = option("Predict the words before the text.", False),
    fill: bool = option("Predict the words for each ___ in the text.", False),
    sample: int | None = option("Write this many random sentences that continue the text.", min=1),
    temperature: float = option(
        "With --sample: below 1 safer, above 1 bolder, 0 always the likeliest word.", 1.0, min=0
    ),
    top_k: int | None = option(
        "With --sample: choose among this many likeliest words.", min=1, show_default="all"
    ),
    max_words: int = option("With --sample: how many words to add at most.", 50, min=1),
    seed: int = option("With --sample: the seed of the random choice.", 0),
    special_tokens: bool = option("Keep <S>, </S> and <UNK> among the predictions.", False),
    as_json: bool = option("Print a line of JSON for each text.", False, "--json"),
    text: list[str] | None = TEXT,
) -> None:
    """Predict the words after a text, before it or in its gaps, or write random sentences.

    With --sample --previous, the sentences are written backward and end in the text.

    Example: elmo predict --text "the cat sat on the" -k 5
    """
    if fill and (previous or sample):
        raise typer.BadParameter("choose --fill alone, or --previous and --sample")
    if sample is None and (temperature != 1 or top_k is not None or max_words != 50 or seed):
        raise typer.BadParameter("--temperature, --top-k, --max-words and --seed need --sample")
    if sample is not None and k is not None:
        raise typer.BadParameter("-k is not for --sample; --top-k limits the words to choose among")
    if special_tokens and (fill or sample):
        raise typer.BadParameter("--special-tokens is for the words after or before a text alone")
    if load.keywords["state"] == "carry" and (fill or (previous and not sample)):
        raise typer.BadParameter("--state carry is for the words after a text alone")
    k = k or _NUM_PREDICTIONS
    with lines_of(source, text) as lines:
        embedder = load()
        for line in lines:
            if sample is not None:
                sentences = embedder.sample(
                    line,
                    samples=sample,
                    direction="backward" if previous else "forward",
                    temperature=temperature,
                    top_k=top_k,
                    max_words=max_words,
                    seed=seed,
                )
                _print_sentences(line, sentences, as_json=as_json)
            elif fill:
                _print_words(line, embedder.fill(line, k=k), as_json=as_json)
            else:
                ask = embedder.previous_words if previous else embedder.next_words
                words = ask(line, k=k, special_tokens=special_tokens)
                _print_words(line, [words], as_json=as_json)


def _print_words(text: str, gaps: "list[list[Prediction]]", *, as_json: bool) -> None:
    """Print the text, and below it the words for each gap with their probabilities."""
    if as_json:
        typer.echo(json.dumps({"text": text, "words": gaps}, ensure_ascii=False))
        return
    typer.echo(text)
    for number, predictions in enumerate(gaps, 1):
        if len(gaps) > 1:
            typer.echo(f"  gap {number}")
        for prediction in predictions:
            typer.echo(f"  {prediction.probability:.6f}  {prediction.word}")


def _print_sentences(text: str, sentences: list[list[str]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"text": text, "sentences": sentences}, ensure_ascii=False))
        return
    for words in sentences:
        typer.echo(" ".join(words))


def _model_and_source(
    names: list[str], model: list[str] | None, text: list[str] | None
) -> tuple[list[str] | None, str | None]:
    """The model and the file that the arguments name: with --text the model alone."""
    source = None if text or not names else names[-1]
    models = names if source is None else names[:-1]
    if source is None and not text:
        raise typer.BadParameter("no FILE given; name a file, - for stdin, or give --text")
    if models and model:
        raise typer.BadParameter(f"the model was given twice, as {models[0]} and by --model")
    if len(models) > 1:
        raise typer.BadParameter("give MODEL and FILE, FILE alone, or --text", param_hint="FILE")
    if source is not None and Path(source).is_dir():
        raise InputError(f"{source}: a folder, expected a file of text; name one after the model")
    return model or models or None, source


def _evaluate(scores: "Iterator[Score]", per_sentence: Path | None) -> "Perplexity":
    if per_sentence is None:
        return elmokit.Perplexity.of(scores)
    from elmokit.atomic import write_atomically  # noqa: PLC0415  (torch takes seconds)

    results: list[Perplexity] = []

    def write(file: BinaryIO) -> None:
        file.write(("\t".join(_COLUMNS) + "\n").encode())
        results.append(elmokit.Perplexity.of(_written(scores, file)))

    write_atomically(per_sentence, write)
    return results[0]


def _written(scores: "Iterable[Score]", file: BinaryIO) -> "Iterator[Score]":
    """The scores, each of them written to the file on its way."""
    for scored in scores:
        file.write((_row(scored) + "\n").encode())
        yield scored


def _row(score: "Score") -> str:
    sums = ["" if s is None else f"{s.sum():.4f}" for s in (score.forward, score.backward)]
    cells = [
        len(score.words),
        score.unknown,
        *sums,
        f"{score.perplexity:.3f}",
        " ".join(score.words),
    ]
    return "\t".join(map(str, cells))


def _record(score: "Score") -> dict[str, object]:
    return {
        "words": [*score.words],
        "unknown": score.unknown,
        "forward": None if score.forward is None else score.forward.tolist(),
        "backward": None if score.backward is None else score.backward.tolist(),
        "perplexity": score.perplexity,
    }


def _evaluate_task(
    folder: Path,
    source: str | None,
    options: dict[str, Any],
    *,
    per_sentence: Path | None,
    as_json: bool,
) -> None:
    from elmokit.tasks.saved_model import load_task  # noqa: PLC0415  (torch takes seconds)

    defaults = {"tokenizer": None, "state": "zero", "precision": "float32", "kernel": "auto"}
    if (
        source is None
        or per_sentence is not None
        or any(options[name] != default for name, default in defaults.items())
    ):
        raise InputError(
            f"{folder}: a trained head is evaluated on a file of labelled examples; name one "
            "after it, with no options but --json and --device"
        )
    trained = load_task(folder, device=options["device"])
    task = trained.task
    examples = trained.read(Path(source))
    if unseen := task.unseen_labels(examples, trained.head.labels):
        tell(f"labels that {folder} was not trained on and never predicts: {', '.join(unseen)}")
    answers = trained.predict_examples(examples)
    facts: dict[str, object] = dict(task.score(examples, answers))
    labels = {} if task.score_by_label is None else task.score_by_label(examples, answers)
    if as_json:
        names = ("f1", "precision", "recall", "gold")
        by_label = {
            label: {name: getattr(s, name) for name in names} for label, s in labels.items()
        }
        typer.echo(json.dumps({**facts, "labels": by_label} if labels else facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:12}{value:.4f}")
    width = max(map(len, labels), default=0)
    for label, s in labels.items():
        typer.echo(
            f"  {label:{width}}  f1 {s.f1:.4f}  precision {s.precision:.4f}  "
            f"recall {s.recall:.4f}  of {s.gold:,}"
        )
