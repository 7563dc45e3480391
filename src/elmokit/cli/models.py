"""Commands about models: models, download, info, convert, package, push and export."""

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

import elmokit
from elmokit.cli.options import (
    ALIGN,
    AS_JSON,
    OFFLINE,
    TEXT,
    TOKENIZER,
    Load,
    argument,
    counted,
    lines_of,
    option,
    print_facts,
    resumable,
    takes_model,
    tell,
)
from elmokit.errors import InputError

if TYPE_CHECKING:
    from torch.nn import Module

    from elmokit.catalogue import PublishedModel
    from elmokit.embedder import Embedder

_LANGUAGE = option("A language of its text, an ISO 639 code; may be repeated.", metavar="CODE")
_HALF = option("Write float16 numbers: half the size, not exact.", False)


def models(
    words: list[str] | None = argument(
        "[WORD...]",
        "A model's name, to show all about it; or words that must occur in its name, language, "
        "domain or description.",
        None,
    ),
    language: str | None = option("Models of a language: a code or an English name."),
    domain: str | None = option("Models of a domain, such as proteins or biomedical."),
    as_json: bool = AS_JSON,
) -> None:
    """List the published models that --model and elmokit.load know by name, or show one.

    Example: elmo models german
    """
    from elmokit.catalogue import find_model, language_names  # noqa: PLC0415  (fast help texts)

    query = " ".join(words or [])
    model = None if language or domain else find_model(query)
    if model and (model.name == query.lower() or not elmokit.models(language=query)):
        facts = _facts(model)
        if not as_json:
            separators = {"addresses": f"\n{'':16}", "aliases": ", ", "language": ", "}
            facts = {
                name: (separators.get(name, "; ").join(value) or None)
                if isinstance(value, list)
                else value
                for name, value in facts.items()
            }
        print_facts(facts, as_json=as_json, width=16)
        return
    listed = elmokit.models(query, language=language, domain=domain)
    if as_json:
        typer.echo(json.dumps([_facts(model) for model in listed]))
    elif not listed:
        raise InputError("no model fits; elmo models without words lists all")
    else:
        rows = [
            (m.name, ", ".join(language_names(m)), _size(m), "yes" if m.path else "", m.description)
            for m in listed
        ]
        for row in [("name", "language", "size", "here", "description"), *rows]:
            typer.echo("{:32}{:22}{:>10}  {:6}{}".format(*row))


def _facts(model: "PublishedModel") -> dict[str, object]:
    """All about a published model, by the names that are shown."""
    from elmokit.catalogue import language_names  # noqa: PLC0415

    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "description": model.description,
        "language": language_names(model),
        "domain": model.domain,
        "format": model.format,
        "layers": model.layers,
        "aligned by": model.align,
        "dimensions": model.dimensions,
        "softmax": model.softmax,
        "tokenizer": model.tokenizer,
        "tokenization": model.tokenization,
        "licence": model.licence,
        "citation": list(model.citation),
        "page": model.page or None,
        "bytes": model.size,
        "hashes": [f"{f.name} {f.hash}" for source in model.sources for f in source if f.hash],
        "addresses": [url for source in model.sources for file in source for url in file.urls],
        "notes": list(model.notes),
        "not supported": model.unsupported or None,
        "package": model.package or None,
        "here": None if model.path is None else str(model.path),
    }


def _size(model: "PublishedModel") -> str:
    return "" if model.size is None else f"{model.size / 1e6:,.0f} MB"


@resumable("run the same command again to go on")
def download(
    names: list[str] = argument("NAME...", "Names of models, as elmo models lists them."),
    offline: bool = option("Check the files that are here, and say where to put others.", False),
) -> None:
    """Download published models, or check those that are here; print where they are.

    If it is interrupted, run the same command again to go on.

    Example: elmo download small seqvec
    """
    for name in names:
        typer.echo(f"{name}: {elmokit.download(name, offline=offline)}")


@takes_model()
def info(
    load: Load,
    names: list[str] | None = argument(
        "MODEL",
        "A model's name, folder or archive; or an options file and a weights file.",
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
    embedder = load(model=files)
    pretrained = embedder.pretrained
    mix = pretrained.mix
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
        "peepholes": config.peepholes or None,
        "clipping": [config.cell_clip, config.projection_clip],
        "encoder parameters": parameters(bilm.encoder),
        "LSTM parameters": parameters(bilm.lstms),
        "softmax words": None if softmax is None else softmax.num_words,
        "vocabulary": None if pretrained.vocabulary is None else len(pretrained.vocabulary),
        "tokenizer": pretrained.tokenizer,
        "mix": mix and mix.layer_weights.tolist(),
        "scale of the mix": mix and mix.scale.item(),
        "aligned layers": [*config.aligned_layers] or None,
        "sentence heads": {
            name: head.module.config.output_size for name, head in pretrained.heads.items()
        }
        or None,
        "fingerprint": pretrained.fingerprint(),
        "kernel": embedder.kernel,
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
    source: str = argument("FROM", "A model's name, folder or archive, or an options file."),
    target: Path = argument("TO", "The folder to write."),
    weights: str | None = option("The weights file, if FROM is an options file."),
    format: Literal["elmokit", "bilm-tf"] = option("The format to write.", "elmokit"),
    tokenizer: str | None = TOKENIZER,
    align: Path | None = ALIGN,
    half: bool = _HALF,
    offline: bool = OFFLINE,
) -> None:
    """Convert a model without loss, from any format to an elmokit folder or bilm-tf's files.

    Example: elmo convert elmo_small.zip small
    """
    elmokit.convert(
        source, target, weights=weights, format=format, tokenizer=tokenizer, align=align, half=half,
        offline=offline,
    )  # fmt: skip
    tell(f"{target}: written")


def package(
    source: str = argument("MODEL", "A model's name, folder or archive, or that of a run."),
    target: Path = argument("DIR", "The folder to write."),
    name: str = option("The name that the model gets.", ...),
    version: str = option("The package's version.", "1.0.0"),
    description: str = option("A line on the model.", "", show_default="NAME, an ELMo model"),
    language: list[str] | None = _LANGUAGE,
    licence: str = option(
        "Its licence, as SPDX writes it.", "", metavar="SPDX", show_default="not stated"
    ),
    half: bool = _HALF,
    offline: bool = OFFLINE,
) -> None:
    """Write a Python package around a model: pip installs it, and elmokit knows it by name.

    The package is called elmokit-NAME; pip wheel DIR builds it. The model's README.md, its card,
    is the package's.

    Example: elmo package run elmokit-swahili --name swahili --language sw --half
    """
    elmokit.write_package(
        source, target, name=name, version=version, description=description,
        languages=language or (), licence=licence, half=half, offline=offline,
    )  # fmt: skip
    tell(f"{target}: written; pip install {target} installs it, pip wheel {target} builds it")


def push(
    source: str = argument("MODEL", "A model's name, folder or archive, or that of a run."),
    repo: str = argument("REPO", "The repository, such as user/model; made if it is missing."),
    revision: str | None = option("The branch; made if it is missing.", show_default="main"),
    private: bool | None = option(
        "Who may see a new repository.",
        None,
        "--private/--public",
        show_default="as the account's settings say",
    ),
    language: list[str] | None = _LANGUAGE,
    licence: str = option(
        "Its licence, as SPDX writes it.", "", metavar="SPDX", show_default="as its card says"
    ),
    half: bool = option("Upload float16 numbers: half the size, not exact.", False),
) -> None:
    """Upload a model to the Hugging Face Hub; --model hf://REPO then loads it.

    Log in first with hf auth login, or set HF_TOKEN. The model's README.md is its card there;
    --language and --licence change the card's metadata. Needs: pip install 'elmokit[hub]'.

    Example: elmo push run user/elmo-swahili --language sw --licence CC-BY-SA-4.0
    """
    address = elmokit.load(source).push_to_hub(
        repo, private=private, revision=revision, languages=language or (), licence=licence,
        half=half,
    )  # fmt: skip
    typer.echo(address)


@takes_model("tokenizer", "state")
def export(
    load: Load,
    what: str = argument(
        "WHAT", "What to export: softmax, words, states or onnx; or a MODEL, before FILE.onnx."
    ),
    source: str | None = argument(
        "INPUT",
        "For words: a file with a word on each line, instead of the vocabulary. For states: a file "
        "of texts. - is stdin. After a MODEL: the .onnx file to write.",
        None,
    ),
    target: Path | None = option("The file to write.", None, "--out", "-o"),
    int8: bool = option("For ONNX: store weights in 8 bits, a quarter of the size.", False),
    softmax: bool = option("For ONNX: write the softmax, too, to predict words.", False),
    text: list[str] | None = TEXT,
) -> None:
    """Export a model to ONNX, its softmax, the context-free vectors of words, or the LSTM states.

    The ONNX file is for onnxruntime in any language (elmokit[onnx]). The softmax is written as
    .npz, .npy or .txt; the words as .txt (word2vec's text format) or as .npy with a .words.txt
    beside it; the states after each word as .npz.

    Example: elmo export english english.onnx --int8

    Example: elmo export words --model run --out words.txt
    """
    if source is not None and source.endswith(".onnx"):  # elmo export MODEL FILE.onnx
        if target is not None or load.keywords["model"]:
            raise typer.BadParameter("MODEL FILE.onnx leaves nothing to say to --out and --model")
        load = functools.partial(load, model=[what])
        what, target, source = "onnx", Path(source), None
    if what not in _EXPORTED:
        raise typer.BadParameter(
            f"{what!r} is not one of {', '.join(map(repr, _EXPORTED))}; or name a .onnx file after "
            "a model",
            param_hint="WHAT",
        )
    if target is None:
        raise typer.BadParameter("missing option; name the file to write", param_hint="--out")
    if what != "onnx" and (int8 or softmax):
        raise typer.BadParameter("--int8 and --softmax are for ONNX alone")
    if what in ("softmax", "onnx") and (source or text):
        raise typer.BadParameter(f"{what} needs no INPUT")
    tell(f"{target}: {_export(load(), what, target, source, text, int8=int8, softmax=softmax)}")


_EXPORTED = ("softmax", "words", "states", "onnx")


def _export(
    embedder: "Embedder",
    what: str,
    target: Path,
    source: str | None,
    text: list[str] | None,
    *,
    int8: bool,
    softmax: bool,
) -> str:
    """Write what was asked for, and say how much it is."""
    if what == "onnx":
        elmokit.export_onnx(embedder, target, int8=int8, softmax=softmax)
        beside = target.with_name(f"{target.name}.data")  # weights of more than 2 GB
        size = sum(path.stat().st_size for path in (target, beside) if path.exists())
        return f"{size / 1e6:,.1f} MB{f', with {beside.name}' if beside.exists() else ''}"
    if what == "softmax":
        return counted(elmokit.export_softmax(embedder, target), "word")
    if what == "words" and not source and not text:
        return counted(elmokit.export_words(embedder, target), "word")
    with lines_of(source, text) as lines:
        if what == "words":
            words = (line.strip(" \t") for line in lines)
            return counted(elmokit.export_words(embedder, target, words), "word")
        sentences = (words for line in lines for words in embedder.tokenize(line))
        return counted(elmokit.export_states(embedder, target, sentences), "sentence")
