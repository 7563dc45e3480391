"""Commands about model files: info, convert and export."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

import elmokit
from elmokit.cli.options import (
    AS_JSON,
    TEXT,
    TOKENIZER,
    Load,
    argument,
    lines_of,
    option,
    print_facts,
    takes_model,
    tell,
)

if TYPE_CHECKING:
    from torch.nn import Module


@takes_model()
def info(
    load: Load,
    names: list[Path] | None = argument(
        "[MODEL...]",
        "A model folder or zip; or an options file and a weights file.",
        None,
        show_default="the English model in the package",
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Show what a model is: its sizes, parameters, layers, vocabulary and fingerprint.

    Example: elmo info
    """
    files = [*(names or []), *(load.keywords["model"] or [])]
    if len(files) > 2:
        raise typer.BadParameter("give a folder, a zip, or two files", param_hint="MODEL")
    pretrained = load(model=files).pretrained
    bilm, softmax = pretrained.model.bilm, pretrained.model.softmax
    config, lexicons = bilm.config, bilm.config.lexicons
    characters = config.characters if lexicons is None else lexicons.characters

    def parameters(module: "Module") -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    inputs = []
    if characters is not None:
        inputs.append(f"characters, {characters.max_characters} for each word")
    if config.vocabulary_size is not None or (lexicons is not None and lexicons.num_words):
        inputs.append("words")
    facts: dict[str, object] = {
        "input": "; ".join(inputs),
        "directions": ", ".join(config.directions),
        "layers": config.num_layers + 1,
        "dim": config.output_size,
        "cell size": config.cell_size,
        "skip connections": config.skip_connections,
        "clipping": [config.cell_clip, config.projection_clip],
        "encoder parameters": parameters(bilm.encoder),
        "LSTM parameters": parameters(bilm.lstms),
        "softmax words": None if softmax is None else softmax.num_words,
        "vocabulary": None if pretrained.vocabulary is None else len(pretrained.vocabulary),
        "tokenizer": pretrained.tokenizer,
        "fingerprint": pretrained.fingerprint(),
    }
    if lexicons is not None:
        facts |= {"lexicon entries": [lexicons.num_characters, lexicons.num_words]}
    if characters is not None:
        facts |= {
            "filters": [list(pair) for pair in characters.filters],
            "activation": characters.activation,
            "highway layers": characters.highway_layers,
        }
    print_facts(facts, as_json=as_json, width=20)


def convert(
    source: Path = argument("FROM", "A model folder, a zip or an options file."),
    target: Path = argument("TO", "The folder to write."),
    weights: Path | None = option("The weights file, if FROM is an options file."),
    format: Literal["elmokit", "bilm-tf"] = option("The format to write.", "elmokit"),
    tokenizer: str | None = TOKENIZER,
    half: bool = option("Write float16 numbers: half the size, not exact.", False),
) -> None:
    """Convert a model without loss, from bilm-tf's files to an elmokit folder or back.

    Example: elmo convert elmo_small.zip small
    """
    elmokit.convert(source, target, weights=weights, format=format, tokenizer=tokenizer, half=half)
    tell(f"{target}: written")


@takes_model("tokenizer", "state")
def export(
    load: Load,
    what: Literal["softmax", "words", "states"] = argument(
        "WHAT", "What to export: softmax, words or states."
    ),
    source: str | None = argument(
        "INPUT",
        "For words: a file with a word on each line, instead of the vocabulary. For states: a file "
        "of texts. - is stdin.",
        None,
    ),
    target: Path | None = option("The file to write.", None, "--out", "-o"),
    text: list[str] | None = TEXT,
) -> None:
    """Export the softmax weights, the context-free vectors of words, or the LSTM states.

    The softmax is written as .npz, .npy or .txt; the words as .txt (word2vec's text format) or as
    .npy with a .words.txt beside it; the states after each word as .npz.

    Example: elmo export words --model run --out words.txt
    """
    if target is None:
        raise typer.BadParameter("name the file to write", param_hint="--out")
    if what == "softmax" and (source or text):
        raise typer.BadParameter("the softmax needs no INPUT")
    embedder = load()
    if what == "softmax":
        count = elmokit.export_softmax(embedder, target)
    elif what == "words" and not source and not text:
        count = elmokit.export_words(embedder, target)
    else:
        with lines_of(source, text) as lines:
            if what == "words":
                count = elmokit.export_words(
                    embedder, target, (line.strip(" \t") for line in lines)
                )
            else:
                sentences = (words for line in lines for words in embedder.tokenize(line))
                count = elmokit.export_states(embedder, target, sentences)
    tell(f"{target}: {count:,} {'sentences' if what == 'states' else 'words'}")
