"""Runs of supervised tasks and the record of their scores, for all tables and figures.

The scores and layer weights of a run, on any machine, are recorded in scores.jsonl and taken from
there as long as examples, settings and biLM are the same. Otherwise a head is trained in a folder
of its own, in which a run that was stopped resumes.
"""

import argparse
import hashlib
import json
import statistics
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import elmokit
from elmokit.pretraining.finetune import finetune, finetuning_digest
from elmokit.tasks.cached_layers import CachedLayers
from elmokit.tasks.saved_model import text_for_finetuning
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import digest_of_run, train_task

FILES = {
    "ner": "ner_conll2003/{}.conll.xz",
    "pos": "pos_ud_ewt/{}.conllu.xz",
    "srl": "srl_ewt/{}.conll.xz",
    "qa": "qa_squad/{}.json.xz",
    "entailment": "entailment_snli/{}.tsv.xz",
    "sentiment": "sentiment_sst5/{}.txt.xz",
    "coreference": "coref_litbank/{}.conll.xz",
}
TITLES = {
    "qa": "SQuAD", "entailment": "SNLI", "srl": "SRL", "coreference": "Coref",
    "ner": "NER", "sentiment": "SST-5", "pos": "POS",
}  # fmt: skip
# Where ELMo is added: as in the paper; for parts of speech at the input.
ELMO_POSITIONS = {
    "qa": "both", "entailment": "both", "srl": "input", "coreference": "input",
    "ner": "input", "sentiment": "input", "pos": "input",
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """The recorded result of a run."""

    run: str
    digest: str  # of its task, settings, biLM and examples
    scores: dict[str, float]  # on dev, of the best epoch; the main one first
    epoch: int
    layer_weights: dict[str, list[float]]  # for the input and the output


@dataclass(frozen=True)
class Runs:
    """Folders of the examples and of trained heads, and the record of results."""

    data: Path
    work: Path
    record: Path
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]

    def scores(self, task, elmo, *, share=1.0, **changes):
        """The main score for each seed."""
        return [self.score(task, elmo, seed, share=share, **changes) for seed in self.seeds]

    def score(self, task, elmo, seed, *, share=1.0, **changes):
        """The main score on dev of a head trained on a share of the examples."""
        result = self.result(task, elmo, seed, share=share, **changes)
        return next(iter(result.scores.values()))

    def result(self, name, elmo, seed, *, share=1.0, finetune_epochs=None, **changes):
        """The recorded result of a head, or that of one trained now.

        `finetune_epochs` is how long the biLM is fine-tuned on the examples' text first, if not as
        usual for the task.
        """
        task = TASKS[name]
        epochs = task.finetune_epochs if finetune_epochs is None else finetune_epochs
        epochs = 0 if elmo == "none" else epochs
        settings = replace(task.settings, elmo=elmo, seed=seed, **changes)
        changed = "-".join(f"{key}={value}" for key, value in sorted(changes.items()))
        run = "-".join(filter(None, [name, elmo, f"{share:g}", str(seed), changed]))
        if share < 1:  # more epochs of smaller batches for few examples
            settings = replace(
                settings,
                epochs=round(settings.epochs * share**-0.25),
                words_per_batch=max(1, round(settings.words_per_batch * share**0.5)),
            )
        train, dev = (task.read(self.data / FILES[name].format(p)) for p in ("train", "dev"))
        stride = max(1, round(1 / share))
        texts = [[*group] for _, group in groupby(train, task.sentences)]  # with all predicates
        examples = [example for text in texts[seed % stride :: stride] for example in text]
        model = None if elmo == "none" else _model()
        digest = digest_of_run(task, settings, model, examples, dev)
        if epochs:
            text = text_for_finetuning(model, task, settings, examples)
            finetuning = finetuning_digest(model.pretrained, text, epochs=epochs)
            run = f"{run}-finetuned={epochs}"
            digest = hashlib.sha256(f"{digest} {finetuning}".encode()).hexdigest()
        recorded = {result.digest: result for result in self._recorded()}
        if digest in recorded:
            return recorded[digest]
        print(f"{run}: {len(examples)} examples", flush=True)
        out = self.work / f"{run}-{digest[:8]}"
        if epochs:  # the same for all seeds
            folder = self.work / f"{name}-{epochs}-{finetuning[:8]}.elmo"
            finetuned = finetune(model.pretrained, text, folder, epochs=epochs, report=_log)
            model = elmokit.Embedder(finetuned)
        layers = model and _layers(name, model, settings.layers)
        trained = train_task(
            task, examples, dev, out, settings=settings, model=model, layers=layers, log=_log
        )
        result = Result(run, digest, trained.scores, trained.epoch, trained.layer_weights())
        with self.record.open("a", encoding="utf-8") as record:
            record.write(json.dumps(vars(result)) + "\n")
        return result

    def _recorded(self):
        if not self.record.exists():
            return []
        return [Result(**json.loads(line)) for line in self.record.read_text("utf-8").splitlines()]


def runs_from_arguments(description, *, tasks=tuple(TITLES)):
    """The runs for the arguments of the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    parser.add_argument("--work", type=Path, default=Path("benchmarks/paper/work"))
    parser.add_argument("--record", type=Path, default=Path("benchmarks/paper/scores.jsonl"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(tasks), choices=list(TITLES))
    args = parser.parse_args()
    return Runs(args.data, args.work, args.record, tuple(range(args.seeds)), tuple(args.tasks))


def print_arms(description, arms, paper):
    """The table of the three tasks by which the paper compares ways to use ELMo.

    An arm is `elmo` and other settings that differ, with the biLM as shipped; `paper` holds the
    paper's scores by task.
    """
    runs = runs_from_arguments(description, tasks=("qa", "entailment", "srl"))
    scores_by_task = {
        task: {
            arm: runs.scores(task, finetune_epochs=0, **changes) for arm, changes in arms.items()
        }
        for task in runs.tasks
    }
    rows = []
    for task, scores in scores_by_task.items():
        rows.append([TITLES[task], *map(percent, scores.values())])
        if task in paper:
            rows.append(["the paper's", *map(str, paper[task])])
    print_table(["task", *arms], rows)
    print(json.dumps(scores_by_task))


def print_table(header, rows):
    """A table in Markdown, after a blank line."""
    print()
    for cells in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(cells)} |")


def percent(scores):
    """Mean and standard deviation, in percent."""
    mean = 100 * statistics.mean(scores)
    if len(scores) == 1:
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {100 * statistics.stdev(scores):.2f}"


def _model():
    if not _LOADED:
        _LOADED.append(elmokit.load())
    return _LOADED[0]


def _layers(task, model, layers):
    """The layers of a task's sentences, computed once for all its runs."""
    key = task, model.pretrained.fingerprint(), layers
    if key not in _CACHED_LAYERS:
        _CACHED_LAYERS.clear()
        _CACHED_LAYERS[key] = CachedLayers(model, layers)
    return _CACHED_LAYERS[key]


_LOADED = []
_CACHED_LAYERS = {}


def _log(line):
    print(f"  {line}", flush=True)
