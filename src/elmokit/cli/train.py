"""Labelled examples become a trained head, resumed where it was killed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import Device, Model, load, settings_of, tell
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.embedder import Embedder
    from elmokit.tasks.task import Task


def train(
    context: typer.Context,
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="ner, chunking, pos, roles, sentiment, texts, entailment, questions, coreference.",
        ),
    ],
    train: Annotated[
        Path | None, typer.Option("--train", help="The examples to learn from.", show_default=False)
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option("--dev", help="The examples to choose the best epoch by.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to make.", show_default=False)
    ] = None,
    model: Model = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A TOML file of settings.", show_default=False),
    ] = None,
    adapt: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Times that the biLM first reads the text to learn from; it stays in OUT.elmo.",
            show_default="2 for roles and sentiment, else 0",
        ),
    ] = None,
    device: Device = "cpu",
    show_settings: Annotated[
        bool, typer.Option("--settings", help="Print every setting, as a TOML file, and end.")
    ] = False,
) -> None:
    """Train a head for a task, with ELMo or, by --elmo none, without it.

    Killed and started again, it goes on after its last whole epoch. Every setting of --settings is
    an option too: --elmo both, --seed 1, --hidden 100. OUT holds all that is needed.

    Example: elmo train ner --train train.conll --dev dev.conll --out ner --elmo both
    """
    from elmokit.embedder import Embedder  # noqa: PLC0415
    from elmokit.pretrain.finetune import finetune  # noqa: PLC0415
    from elmokit.settings import to_toml  # noqa: PLC0415
    from elmokit.tasks.catalog import TASKS  # noqa: PLC0415
    from elmokit.tasks.folder import text_for  # noqa: PLC0415
    from elmokit.tasks.learn import check_run, learn  # noqa: PLC0415
    from elmokit.tasks.settings import read_settings  # noqa: PLC0415
    from elmokit.threads import find_device  # noqa: PLC0415  (torch takes seconds)

    if task not in TASKS:
        raise InputError(f"no task is called {task!r}, expected one of {', '.join(TASKS)}")
    chosen = TASKS[task]
    settings = read_settings(chosen.settings, config, settings_of(context.args))
    if show_settings:
        typer.echo(to_toml(settings), nl=False)
        return
    if train is None or dev is None or out is None:
        missing = {"--train": train, "--dev": dev, "--out": out}
        names = ", ".join(name for name, given in missing.items() if given is None)
        raise typer.BadParameter(f"Missing option {names}: files to learn from, and a folder.")
    if (str(train), str(dev)) == ("-", "-"):
        raise InputError("--train and --dev are both -, but stdin can be read only once")
    learnt, judged = (chosen.read(path, split=settings.split) for path in (train, dev))
    find_device(device)  # or refuse it
    elmo = None if settings.elmo == "none" else load(model, device=device)
    if elmo is None and (model or adapt):
        tell("--elmo none: no biLM is used, whatever --model and --adapt say")
    times = 0 if elmo is None else _times(chosen, elmo, adapt)
    check_run(chosen, learnt, judged, out, settings=settings, elmo=elmo, adapts=times > 0)
    if elmo is not None and times:
        known, text = elmo.pretrained, text_for(elmo, chosen, settings, learnt)
        own = out if out.name not in ("", "..") else out.resolve()  # . has a name too
        read = finetune(known, text, f"{own}.elmo", epochs=times, device=device, report=tell)
        elmo = Embedder(read, device=device)
    trained = learn(
        chosen, learnt, judged, out, settings=settings, elmo=elmo, device=device, tell=tell
    )
    scores = ", ".join(f"{name} {value:.4f}" for name, value in trained.scores.items())
    typer.echo(f"{out}: {scores} (epoch {trained.epoch})")


def _times(task: "Task", elmo: "Embedder", given: int | None) -> int:
    """How often the biLM first reads the text; unless it is told to, only one that can."""
    from elmokit.pretrain.finetune import missing_for_finetuning  # noqa: PLC0415

    if given is not None:
        return given
    if task.adapt and (missing := missing_for_finetuning(elmo.pretrained)):
        tell(f"the biLM has no {missing}, so it does not first read the text")
        return 0
    return task.adapt
