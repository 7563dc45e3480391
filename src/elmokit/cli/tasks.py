"""Commands for supervised tasks: train, apply, layer-weights, probe and wsd."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from elmokit.cli.options import (
    AS_JSON,
    DEVICE,
    SOURCE,
    TEXT,
    TOKENIZER,
    ElmoCommand,
    ElmoGroup,
    Load,
    add_command,
    argument,
    group,
    lines_of,
    option,
    resumable,
    takes_model,
    takes_settings,
    tell,
)
from elmokit.errors import InputError
from elmokit.toml_settings import read_settings, to_toml

if TYPE_CHECKING:
    from elmokit.embedder import Embedder
    from elmokit.plots import LayerWeights
    from elmokit.tasks.settings import TaskSettings
    from elmokit.tasks.task_registry import Task

FOLDERS = argument("DIR...", "Folders that elmo train made.")


class TaskGroup(ElmoGroup):
    """`elmo train`: one command for each registered task, with that task's settings."""

    noun = "task"
    removed = {"roles": "srl", "questions": "qa", "texts": "classification"}

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_tasks()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command that trains a head for a task."""
        if cmd_name not in _tasks():
            return None
        if cmd_name not in self.commands:
            app = group(cmd_name, "")
            add_command(app, _train_command(_tasks()[cmd_name]), cmd_name, panel="Tasks")
            self.add_command(typer.main.get_command(app))
        return self.commands[cmd_name]


train = group(
    "train",
    """Train a head for a task on labelled examples, with ELMo or (--elmo none) without it.

    Example: elmo train ner --train train.conll --dev dev.conll --out ner --elmo both""",
    TaskGroup,
    metavar="TASK ...",
)


def _tasks() -> "dict[str, Task]":
    from elmokit.tasks.task_registry import TASKS  # noqa: PLC0415  (torch takes seconds)

    return TASKS


def _train_command(task: "Task") -> Any:
    needed = "[required, but not with --settings]"

    @resumable("run the same command again to go on after the last finished epoch")
    @takes_model()
    def command(
        load: Load,
        given: dict[str, str],
        train: Path | None = option(f"The examples to train on. {needed}", metavar="FILE"),
        dev: Path | None = option(
            f"The examples by which the best epoch is chosen. {needed}", metavar="FILE"
        ),
        out: Path | None = option(
            f"The folder to write. {needed}", None, "--out", "-o", metavar="DIR"
        ),
        config: Path | None = option(
            "A TOML file of settings; single settings are then changed by their options.",
            None,
            "--config",
            "-c",
            metavar="FILE",
        ),
        finetune_epochs: int | None = option(
            "Fine-tune the biLM on the training text first, for this many epochs; it is kept in "
            "DIR.elmo.",
            min=0,
            show_default=str(task.finetune_epochs),
        ),
        show_settings: bool = option(
            "Print all settings as a TOML file; train nothing.", False, "--settings"
        ),
    ) -> None:
        settings = read_settings(task.settings, config, given)
        if show_settings:
            typer.echo(to_toml(settings), nl=False)
            return
        if train is None or dev is None or out is None:
            files = {"--train": train, "--dev": dev, "--out": out}
            missing = ", ".join(name for name, path in files.items() if path is None)
            raise typer.BadParameter(f"missing option {missing}")
        _train(task, load, settings, train, dev, out, finetune_epochs)

    command.__doc__ = f"""Train a head that predicts {task.description}.

    The files have {task.files}. DIR then holds all that elmo apply needs.

    If it is interrupted, run the same command again to go on after the last finished epoch.

    Example: elmo train {task.name} --train train-file --dev dev-file --out {task.name}
    """
    return takes_settings(task.settings, without=task.unused_settings)(command)


def _train(
    task: "Task",
    load: Load,
    settings: "TaskSettings",
    train: Path,
    dev: Path,
    out: Path,
    finetune_epochs: int | None,
) -> None:
    from elmokit.embedder import Embedder, LoadOptions  # noqa: PLC0415  (torch takes seconds)
    from elmokit.pretraining.finetune import finetune  # noqa: PLC0415
    from elmokit.tasks.saved_model import text_for_finetuning  # noqa: PLC0415
    from elmokit.tasks.trainer import check_run, train_task  # noqa: PLC0415
    from elmokit.threads import find_device  # noqa: PLC0415

    if (str(train), str(dev)) == ("-", "-"):
        raise InputError("--train and --dev are both -, but stdin can be read only once")
    examples, dev_examples = (
        task.read(path, tokenizer=settings.tokenizer) for path in (train, dev)
    )
    device = load.keywords["device"]
    find_device(device)  # refuses one that is not there
    elmo = None if settings.elmo == "none" else load()
    if elmo is None and (load.keywords["model"] or finetune_epochs):
        tell("--elmo none: no biLM is used, so --model and --finetune-epochs have no effect")
    epochs = 0 if elmo is None else _finetune_epochs(task, elmo, finetune_epochs)
    check_run(
        task, examples, dev_examples, out, settings=settings, model=elmo, finetuned_first=epochs > 0
    )
    if elmo is not None and epochs:
        text = text_for_finetuning(elmo, task, settings, examples)
        run = out if out.name not in ("", "..") else out.resolve()  # . has a name too
        finetuned = finetune(
            elmo.pretrained, text, f"{run}.elmo", epochs=epochs, device=device, report=tell
        )
        elmo = Embedder(finetuned, LoadOptions(device=device))
    trained = train_task(
        task, examples, dev_examples, out, settings=settings, model=elmo, device=device, log=tell
    )
    scores = ", ".join(f"{name} {value:.4f}" for name, value in trained.scores.items())
    typer.echo(f"{out}: {scores} (epoch {trained.epoch})")


def _finetune_epochs(task: "Task", elmo: "Embedder", given: int | None) -> int:
    from elmokit.pretraining.finetune import missing_for_finetuning  # noqa: PLC0415  (torch takes seconds)

    if given is not None:
        return given
    if task.finetune_epochs and (missing := missing_for_finetuning(elmo.pretrained)):
        tell(f"the biLM has no {missing}, so it is not fine-tuned on the text first")
        return 0
    return task.finetune_epochs


class ApplyCommand(ElmoCommand):
    """`elmo apply`: its help says what a line is for each registered task."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        tasks_of: dict[str, list[str]] = {}
        for task in _tasks().values():
            tasks_of.setdefault(task.text.input_help, []).append(task.name)
        inputs = [f"{line} ({', '.join(names)})" for line, names in tasks_of.items()]
        self.help = (self.help or "").replace("INPUTS", "; ".join(inputs))
        super().format_help(ctx, formatter)


def apply(
    folder: Path = argument("DIR", "The folder that elmo train made."),
    source: str | None = SOURCE,
    tokenizer: str | None = TOKENIZER,
    as_json: bool = option(
        "Print a line of JSON for each line: words and prediction.", False, "--json"
    ),
    device: str = DEVICE,
    text: list[str] | None = TEXT,
) -> None:
    """Apply a trained head to each line of a text and print what it predicts.

    Each line holds: INPUTS.

    Example: elmo apply ner --text "Ada Lovelace was born in London."
    """
    from elmokit.tasks.saved_model import load_task  # noqa: PLC0415  (torch takes seconds)

    with lines_of(source, text) as lines:
        model = load_task(folder, device=device)
        for output in model.apply(lines, tokenizer=tokenizer, as_json=as_json):
            typer.echo(output, nl=False)


def layer_weights(
    folders: list[Path] = FOLDERS,
    plot: Path | None = option("A picture to draw too, .svg or .png.", metavar="FILE"),
) -> None:
    """Show how much weight a trained head gives to each layer; the weights add up to 1.

    Example: elmo layer-weights ner srl --plot layer-weights.svg
    """
    weights = []
    for folder in folders:
        mixes = read_layer_weights([folder])
        for mix in mixes:
            pairs = zip(mix.layers, mix.weights, strict=True)
            shown = "  ".join(f"layer {layer} {share:.3f}" for layer, share in pairs)
            typer.echo(f"{folder}  {mix.position:7}{shown}")
        if not mixes:
            typer.echo(f"{folder}  has no layer weights: it was trained without ELMo")
        weights += mixes
    if plot is not None:
        draw_layer_weights(weights, plot)


def draw_layer_weights(weights: Sequence["LayerWeights"], out: Path) -> None:
    """Draw the layer weights of trained heads."""
    from elmokit.plots import plot_layer_weights  # noqa: PLC0415  (torch takes seconds)

    plot_layer_weights(out, weights)
    tell(f"{out}: {len(weights)} sets of layer weights")


def read_layer_weights(folders: Sequence[Path]) -> list["LayerWeights"]:
    """The layer weights of trained heads, folder by folder."""
    from elmokit.plots import LayerWeights  # noqa: PLC0415  (torch takes seconds)
    from elmokit.tasks.saved_model import load_task  # noqa: PLC0415

    return [
        LayerWeights(folder, position, model.layers, tuple(weights))
        for folder, model in ((folder, load_task(folder)) for folder in folders)
        for position, weights in model.layer_weights().items()
    ]


@takes_model()
def probe(
    load: Load,
    train: Path = argument("TRAIN", "Tagged sentences: CoNLL columns or CoNLL-U."),
    dev: Path = argument("DEV", "Tagged sentences to measure the accuracy on."),
    seed: int = option("The seed of the order of the words.", 0, min=0, max=2**63 - 1),
    as_json: bool = AS_JSON,
) -> None:
    """Measure how well a linear classifier on each layer alone predicts tags.

    Example: elmo probe train.conllu dev.conllu
    """
    from elmokit.tasks.probing import probe_layers  # noqa: PLC0415  (torch takes seconds)

    read = _tasks()["pos"].read
    accuracies = probe_layers(load(), read(train), read(dev), seed=seed)
    if as_json:
        typer.echo(json.dumps({"accuracy": accuracies}))
        return
    for layer, accuracy in enumerate(accuracies):
        typer.echo(f"layer {layer}  {accuracy:.4f}")


@takes_model()
def wsd(
    load: Load,
    semcor: Path = argument("SEMCOR", "SemCor's archive; - is stdin."),
    data: Path = argument("DATA", "The XML file of Raganato's framework."),
    gold: Path = argument("GOLD", "The gold keys that belong to it."),
    wordnet: Path = option(
        "WordNet's index.sense, for first senses (Debian: wordnet-sense-index).",
        Path("/usr/share/wordnet/index.sense"),
        metavar="FILE",
    ),
    frequency_weight: float = option(
        "How much common senses are preferred; 0 is the nearest mean alone.", 0.07
    ),
    cache: Path | None = option(
        "Where SemCor's vectors are kept for the next call (about 180 MB).",
        metavar="DIR",
        show_default="~/.cache/elmokit",
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Measure word sense disambiguation by the nearest mean vector of each sense in SemCor.

    Where SemCor lacks a word, its first sense in WordNet is taken.

    Example: elmo wsd semcor.tar.xz senseval2.data.xml senseval2.gold.key.txt
    """
    from elmokit.tasks.datasets.senses import (  # noqa: PLC0415  (torch takes seconds)
        read_raganato,
        read_semcor,
    )
    from elmokit.tasks.wsd import (  # noqa: PLC0415
        SenseVectors,
        check_frequency_weight,
        default_cache_folder,
        evaluate_wsd,
        read_first_senses,
    )

    check_frequency_weight(frequency_weight)
    sentences = read_raganato(data, gold)
    first_senses = read_first_senses(wordnet)
    vectors = SenseVectors(load()).fit(
        read_semcor(semcor), cache=cache or default_cache_folder(), show_progress_bar=None
    )
    scores = evaluate_wsd(vectors, first_senses, sentences, frequency_weight=frequency_weight)
    if as_json:
        typer.echo(json.dumps(asdict(scores)))
        return
    typer.echo(f"{scores.instances} words, {scores.unknown} of them with the first sense only")
    typer.echo(f"first sense    {scores.first_sense:.4f}")
    typer.echo(f"most frequent  {scores.most_frequent:.4f}")
    for layer, share in enumerate(scores.layers):
        typer.echo(f"layer {layer}        {share:.4f}")
