"""A task, a place for ELMo and a seed become what a trained head scores and mixes, on record.

Every table and figure asks here. What was found once, on any machine, stands in scores.jsonl, and
is taken from there as long as examples, settings and biLM are the same; else a head is trained,
in a folder of its own, from which a run that was stopped goes on.
"""

import argparse
import hashlib
import json
import statistics
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import elmokit
from elmokit.pretrain.finetune import finetune, finetuning_digest
from elmokit.tasks.catalog import TASKS
from elmokit.tasks.checkpoint import digest
from elmokit.tasks.folder import text_for
from elmokit.tasks.layers import FrozenLayers
from elmokit.tasks.learn import learn

FILES = {
    "ner": "ner_conll2003/{}.conll.xz",
    "pos": "pos_ud_ewt/{}.conllu.xz",
    "roles": "srl_ewt/{}.conll.xz",
    "questions": "qa_squad/{}.json.xz",
    "entailment": "entailment_snli/{}.tsv.xz",
    "sentiment": "sentiment_sst5/{}.txt.xz",
    "coreference": "coref_litbank/{}.conll.xz",
}
TITLES = {
    "questions": "SQuAD", "entailment": "SNLI", "roles": "SRL", "coreference": "Coref",
    "ner": "NER", "sentiment": "SST-5", "pos": "POS",
}  # fmt: skip
# Where ELMo goes in: as in the paper, and for parts of speech at the input.
WHERE = {
    "questions": "both", "entailment": "both", "roles": "input", "coreference": "input",
    "ner": "input", "sentiment": "input", "pos": "input",
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What is kept of a trained head."""

    run: str
    what: str  # the digest of its task, settings, biLM and examples
    scores: dict[str, float]  # on dev, of the best epoch; the main one first
    epoch: int
    shares: dict[str, list[float]]  # of the layers, by the place of the mix


@dataclass(frozen=True)
class Runs:
    """Where the examples are, where heads are kept, and the record of what was found."""

    data: Path
    work: Path
    record: Path
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]

    def scores(self, task, elmo, *, share=1.0, **changes):
        """The main score of each seed."""
        return [self.score(task, elmo, seed, share=share, **changes) for seed in self.seeds]

    def score(self, task, elmo, seed, *, share=1.0, **changes):
        """The main score on dev of a head trained with a share of the examples."""
        found = self.found(task, elmo, seed, share=share, **changes)
        return next(iter(found.scores.values()))

    def found(self, name, elmo, seed, *, share=1.0, adapt=None, **changes):
        """What is on record of a head; if nothing is, it is trained now.

        `adapt` is how often the biLM first reads the examples' text, if not as often as usual.
        """
        task = TASKS[name]
        adapt = 0 if elmo == "none" else task.adapt if adapt is None else adapt
        settings = replace(task.settings, elmo=elmo, seed=seed, **changes)
        told = "-".join(f"{key}={value}" for key, value in sorted(changes.items()))
        run = "-".join(filter(None, [name, elmo, f"{share:g}", str(seed), told]))
        if share < 1:  # few examples are read more often, in smaller updates
            settings = replace(
                settings,
                epochs=round(settings.epochs * share**-0.25),
                words_per_batch=max(1, round(settings.words_per_batch * share**0.5)),
            )
        train, dev = (task.read(self.data / FILES[name].format(p)) for p in ("train", "dev"))
        stride = max(1, round(1 / share))
        texts = [[*own] for _, own in groupby(train, task.sentences)]  # with all its predicates
        some = [example for own in texts[seed % stride :: stride] for example in own]
        model = None if elmo == "none" else _model()
        what = digest(task, settings, model, some, dev)
        if adapt:
            text = text_for(model, task, settings, some)
            reading = finetuning_digest(model.pretrained, text, epochs=adapt)
            run = f"{run}-adapt={adapt}"
            what = hashlib.sha256(f"{what} {reading}".encode()).hexdigest()
        if (known := next((f for f in self._known() if f.what == what), None)) is not None:
            return known
        print(f"{run}: {len(some)} examples", flush=True)
        out = self.work / f"{run}-{what[:8]}"
        if adapt:  # one for all seeds
            read = self.work / f"{name}-{adapt}-{reading[:8]}.elmo"
            adapted = finetune(model.pretrained, text, read, epochs=adapt, report=_tell)
            model = elmokit.Embedder(adapted)
        layers = model and _layers(name, model, settings.layers)
        head = learn(task, some, dev, out, settings=settings, elmo=model, layers=layers, tell=_tell)
        found = Found(run, what, head.scores, head.epoch, head.head.words.layer_weights())
        with self.record.open("a", encoding="utf-8") as record:
            record.write(json.dumps(vars(found)) + "\n")
        return found

    def _known(self):
        if not self.record.exists():
            return []
        return [Found(**json.loads(line)) for line in self.record.read_text("utf-8").splitlines()]


def runs_of(description, *, tasks=tuple(TITLES)):
    """The runs that the command line asks for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    parser.add_argument("--work", type=Path, default=Path("benchmarks/paper/work"))
    parser.add_argument("--record", type=Path, default=Path("benchmarks/paper/scores.jsonl"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(tasks), choices=list(TITLES))
    chosen = parser.parse_args()
    seeds, tasks = tuple(range(chosen.seeds)), tuple(chosen.tasks)
    return Runs(chosen.data, chosen.work, chosen.record, seeds, tasks)


def print_arms(description, arms, paper):
    """The table of the three tasks by whose means the paper compares ways to use ELMo.

    An arm is `elmo`, where it goes in, and settings that differ, of the biLM as it ships; `paper`
    has its scores by task.
    """
    runs = runs_of(description, tasks=("questions", "entailment", "roles"))
    found = {
        task: {arm: runs.scores(task, adapt=0, **changes) for arm, changes in arms.items()}
        for task in runs.tasks
    }
    rows = []
    for task, scores in found.items():
        rows.append([TITLES[task], *map(shown, scores.values())])
        if task in paper:
            rows.append(["the paper's", *map(str, paper[task])])
    print_table(["task", *arms], rows)
    print(json.dumps(found))


def print_table(header, rows):
    """A table in Markdown, after a blank line."""
    print()
    for cells in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(cells)} |")


def shown(scores):
    """Mean and deviation, in percent."""
    mean = 100 * statistics.mean(scores)
    if len(scores) == 1:
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {100 * statistics.stdev(scores):.2f}"


def _model():
    if not _LOADED:
        _LOADED.append(elmokit.load())
    return _LOADED[0]


def _layers(task, model, layers):
    """The layers of a task's sentences, worked out once for all runs of it."""
    key = task, model.pretrained.fingerprint(), layers
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = FrozenLayers(model, layers)
    return _KEPT[key]


_LOADED = []
_KEPT = {}


def _tell(line):
    print(f"  {line}", flush=True)
