"""Commands for supervised tasks: train, apply, layer-weights, probe and wsd."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.options import (
    AsJson,
    Command,
    Device,
    ElmoGroup,
    Load,
    Source,
    Text,
    Tokenizer,
    complete_command,
    completed_later,
    group,
    lines_of,
    resumable,
    takes_model,
    takes_settings,
    tell,
)
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.embedder import Embedder
    from elmokit.plots import LayerWeights
    from elmokit.tasks.task_registry import Task

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that elmo train made.")]
Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders that elmo train made.")
]


class TaskGroup(ElmoGroup):
    """`elmo train`: one command for each registered task, with that task's settings."""

    noun = "task"
    removed = {"roles": "srl", "questions": "qa", "texts": "classification"}

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the tasks."""
        return [*_tasks()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command that trains a head for a task."""
        if cmd_name not in _tasks():
            return None
        if cmd_name not in self.commands:
            command = _train_command(_tasks()[cmd_name])
            self.add_command(complete_command(command, cmd_name, "Tasks"))
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
    @resumable("run the same command again to go on after the last finished epoch")
    @takes_model()
    def command(
        load: Load,
        given: dict[str, str],
        train: Annotated[
            Path | None,
            typer.Option(
                "--train", metavar="FILE", help="The examples to train on.", show_default=False
            ),
        ] = None,
        dev: Annotated[
            Path | None,
            typer.Option(
                "--dev",
                metavar="FILE",
                help="The examples by which the best epoch is chosen.",
                show_default=False,
            ),
        ] = None,
        out: Annotated[
            Path | None,
            typer.Option(
                "--out", "-o", metavar="DIR", help="The folder to write.", show_default=False
            ),
        ] = None,
        config: Annotated[
            Path | None,
            typer.Option(
                "--config",
                "-c",
                metavar="FILE",
                help="A TOML file of settings; single settings are then changed by their options.",
                show_default=False,
            ),
        ] = None,
        finetune_epochs: Annotated[
            int | None,
            typer.Option(
                min=0,
                help="Fine-tune the biLM on the training text first, for this many epochs; it is "
                "kept in DIR.elmo.",
                show_default=str(task.finetune_epochs),
            ),
        ] = None,
        show_settings: Annotated[
            bool,
            typer.Option("--settings", help="Print all settings as a TOML file; train nothing."),
        ] = False,
    ) -> None:
        files = {"--train": train, "--dev": dev, "--out": out}
        _train(
            task,
            load,
            given,
            files,
            config=config,
            finetune_epochs=finetune_epochs,
            show_settings=show_settings,
        )

    command.__doc__ = f"""Train a head that predicts {task.description}.

    The files have {task.files}. DIR then holds all that elmo apply needs.

    If it is interrupted, run the same command again to go on after the last finished epoch.

    Example: elmo train {task.name} --train train-file --dev dev-file --out {task.name}
    """
    return takes_settings(lambda: task.settings, without=task.unused_settings)(command)


def _train(
    task: "Task",
    load: Load,
    given: dict[str, str],
    files: dict[str, Path | None],
    *,
    config: Path | None,
    finetune_epochs: int | None,
    show_settings: bool,
) -> None:
    from elmokit.embedder import Embedder, LoadOptions  # noqa: PLC0415  (torch takes seconds)
    from elmokit.pretraining.finetune import finetune  # noqa: PLC0415
    from elmokit.tasks.saved_model import text_for_finetuning  # noqa: PLC0415
    from elmokit.tasks.trainer import check_run, train_task  # noqa: PLC0415
    from elmokit.threads import find_device  # noqa: PLC0415
    from elmokit.toml_settings import read_settings, to_toml  # noqa: PLC0415

    settings = read_settings(task.settings, config, given)
    if show_settings:
        typer.echo(to_toml(settings), nl=False)
        return
    train, dev, out = files.values()
    if train is None or dev is None or out is None:
        missing = ", ".join(name for name, path in files.items() if path is None)
        raise typer.BadParameter(f"missing option {missing}")
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
        own = out if out.name not in ("", "..") else out.resolve()  # . has a name too
        finetuned = finetune(
            elmo.pretrained, text, f"{own}.elmo", epochs=epochs, device=device, report=tell
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


def _with_inputs(command: Command) -> Command:
    """Say in a command's help what a line is for each task."""

    def complete() -> Command:
        tasks_of: dict[str, list[str]] = {}
        for task in _tasks().values():
            tasks_of.setdefault(task.text.input_help, []).append(task.name)
        inputs = [f"{line} ({', '.join(names)})" for line, names in tasks_of.items()]

        @wraps(command)
        def wrapper(**given: Any) -> None:
            command(**given)

        wrapper.__doc__ = (command.__doc__ or "").replace("INPUTS", "; ".join(inputs))
        return wrapper

    return completed_later(command, complete)


@_with_inputs
def apply(
    folder: Folder,
    source: Source = None,
    tokenizer: Tokenizer = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a line of JSON for each line: words and prediction."),
    ] = False,
    device: Device = "cpu",
    text: Text = None,
) -> None:
    """Apply a trained head to each line of a text and print what it predicts.

    Each line holds: INPUTS.

    Example: elmo apply ner --text "Ada Lovelace was born in London."
    """
    from elmokit.tasks.saved_model import load_task  # noqa: PLC0415  (torch takes seconds)
    from elmokit.tokenizers import check_tokenizer  # noqa: PLC0415

    if tokenizer is not None:
        check_tokenizer(tokenizer)
    with lines_of(source, text) as lines:
        model = load_task(folder, device=device)
        for output in model.apply(lines, tokenizer=tokenizer, as_json=as_json):
            typer.echo(output, nl=False)


def layer_weights(
    folders: Folders,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A picture to draw too, .svg or .png.", show_default=False
        ),
    ] = None,
) -> None:
    """Show how much weight a trained head gives to each layer; the weights add up to 1.

    Example: elmo layer-weights ner srl --plot layer-weights.svg
    """
    weights = []
    for folder in folders:
        own = read_layer_weights([folder])
        for one in own:
            pairs = zip(one.layers, one.weights, strict=True)
            shown = "  ".join(f"layer {layer} {share:.3f}" for layer, share in pairs)
            typer.echo(f"{folder}  {one.position:7}{shown}")
        if not own:
            typer.echo(f"{folder}  has no layer weights: it was trained without ELMo")
        weights += own
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

    collected = []
    for folder in folders:
        model = load_task(folder)
        for position, weights in model.layer_weights().items():
            collected.append(LayerWeights(folder, position, model.layers, tuple(weights)))
    return collected


@takes_model()
def probe(
    load: Load,
    train: Annotated[
        Path, typer.Argument(metavar="TRAIN", help="Tagged sentences: CoNLL columns or CoNLL-U.")
    ],
    dev: Annotated[
        Path, typer.Argument(metavar="DEV", help="Tagged sentences to measure the accuracy on.")
    ],
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="The seed of the order of the words.")
    ] = 0,
    as_json: AsJson = False,
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
    semcor: Annotated[Path, typer.Argument(metavar="SEMCOR", help="SemCor's archive; - is stdin.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="The XML file of Raganato's framework.")
    ],
    gold: Annotated[Path, typer.Argument(metavar="GOLD", help="The gold keys that belong to it.")],
    wordnet: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="WordNet's index.sense, for first senses (Debian: wordnet-sense-index).",
        ),
    ] = Path("/usr/share/wordnet/index.sense"),
    frequency_weight: Annotated[
        float,
        typer.Option(help="How much common senses are preferred; 0 is the nearest mean alone."),
    ] = 0.07,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where SemCor's vectors are kept for the next call (about 180 MB).",
            show_default="~/.cache/elmokit",
        ),
    ] = None,
    as_json: AsJson = False,
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
        FirstSenses,
        SenseVectors,
        check_frequency_weight,
        default_cache_folder,
        evaluate_wsd,
    )

    check_frequency_weight(frequency_weight)
    sentences = read_raganato(data, gold)
    first_senses = FirstSenses.from_wordnet(wordnet)
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
