"""A text becomes the words that may follow it, come before it, or fill its gaps."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import Device, Model, Split, StateWay, Text, lines_of, load

if TYPE_CHECKING:
    from elmokit.results import Prediction


def predict(
    source: Annotated[
        str | None,
        typer.Argument(metavar="INPUT", help="A text a line; - is stdin.", show_default=False),
    ] = None,
    model: Model = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many words.")] = 10,
    previous: Annotated[
        bool, typer.Option("--previous", help="The words before the text, not after it.")
    ] = False,
    fill: Annotated[bool, typer.Option("--fill", help="The words for each ___ of it.")] = False,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="So many sentences that go on from it.", show_default=False),
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0, help="Of samples: below 1 safer, above 1 wilder, 0 the best.")
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Of samples: only the likeliest words.", show_default="all"),
    ] = None,
    max_words: Annotated[int, typer.Option(min=1, help="Of samples: words to add.")] = 50,
    seed: Annotated[int, typer.Option(help="Of samples: other seeds, other sentences.")] = 0,
    special_tokens: Annotated[
        bool,
        typer.Option("--special-tokens", help="Keep <UNK> and the other mark among the words."),
    ] = False,
    tokenizer: Split = None,
    state: StateWay = "zero",
    device: Device = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON a text.")] = False,
    text: Text = None,
) -> None:
    """Prediction words: after a text, before it, or in its gaps; or draw whole sentences.

    With --sample --previous, sentences are drawn backward, that end in the text.

    Example: elmo predict --text "the cat sat on the" -k 5
    """
    if fill and (previous or sample):
        raise typer.BadParameter("choose --fill alone, or --previous and --sample")
    if special_tokens and (fill or sample):
        raise typer.BadParameter("--special-tokens is for the words after or before a text alone")
    if state == "carry" and (fill or (previous and not sample)):
        raise typer.BadParameter("nothing is carried to the words before a text or in its gaps")
    with lines_of(source, text) as lines:
        embedder = load(model, state=state, tokenizer=tokenizer, device=device)
        for line in lines:
            if sample is not None:
                drawn = embedder.sample(
                    line,
                    samples=sample,
                    direction="backward" if previous else "forward",
                    temperature=temperature,
                    top_k=top_k,
                    max_words=max_words,
                    seed=seed,
                )
                _show_sentences(line, drawn, as_json=as_json)
            elif fill:
                _show_words(line, embedder.fill(line, k=k), as_json=as_json)
            elif previous:
                found = embedder.previous_words(line, k=k, special_tokens=special_tokens)
                _show_words(line, [found], as_json=as_json)
            else:
                found = embedder.next_words(line, k=k, special_tokens=special_tokens)
                _show_words(line, [found], as_json=as_json)


def _show_words(text: str, places: "list[list[Prediction]]", *, as_json: bool) -> None:
    """The text, and under it the words for each place, with their probabilities."""
    if as_json:
        typer.echo(json.dumps({"text": text, "words": places}, ensure_ascii=False))
        return
    typer.echo(text)
    for number, guesses in enumerate(places, 1):
        if len(places) > 1:
            typer.echo(f"  gap {number}")
        for guess in guesses:
            typer.echo(f"  {guess.probability:.6f}  {guess.word}")


def _show_sentences(text: str, sentences: list[list[str]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"text": text, "sentences": sentences}, ensure_ascii=False))
        return
    for words in sentences:
        typer.echo(" ".join(words))
