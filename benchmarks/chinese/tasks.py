"""How much of the error ELMo cuts in Chinese: names in résumés and the sentiment of reviews.

    python benchmarks/chinese/tasks.py MODEL --seeds 3

Characters are words in both tasks. The baseline has the same head and settings; both learn word
embeddings from the training examples. Nothing was tuned for either. A run that was stopped resumes.
"""

import argparse
import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

import elmokit
from elmokit.tasks.cached_layers import CachedLayers
from elmokit.tasks.task_registry import TASKS, Task
from elmokit.tasks.trainer import train_task

FILES = {
    "ner": "zh_ner_resume/{}.char.bmes",
    "classification": "zh_sentiment/{}.tsv.xz",
}
METRICS = {"ner": "span F1", "classification": "accuracy"}
SETTINGS = {  # of both heads, where they are not the task's own
    "ner": {"epochs": 6},
    "classification": {"epochs": 3},
}
ARMS = ("none", "input")  # where ELMo is used


@dataclass(frozen=True)
class Runs:
    """The runs of one task: its examples, the biLM with its cached layers, and a folder."""

    task: Task
    data: Path
    work: Path
    model: elmokit.Embedder
    layers: CachedLayers

    def score(self, elmo, seed):
        """The main score on dev of a trained head."""
        changes = SETTINGS[self.task.name]
        settings = replace(
            self.task.settings, elmo=elmo, tokenizer="characters", seed=seed, **changes
        )
        out = self.work / f"{self.task.name}-{elmo}-{seed}"
        train, dev = (self.data / FILES[self.task.name].format(part) for part in ("train", "dev"))
        uses_elmo = elmo != "none"
        trained = train_task(
            self.task, train, dev, out, settings=settings,
            model=self.model if uses_elmo else None, layers=self.layers if uses_elmo else None,
        )  # fmt: skip
        score = next(iter(trained.scores.values()))
        print(json.dumps({"run": out.name, "score": score}), flush=True)
        return score


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="chinese")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(FILES), choices=list(FILES))
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    parser.add_argument("--work", type=Path, default=Path("chinese-tasks"))
    chosen = parser.parse_args()
    model = elmokit.load(chosen.model)
    rows = []
    for name in chosen.tasks:
        runs = Runs(TASKS[name], chosen.data, chosen.work, model, CachedLayers(model))
        columns = [[runs.score(elmo, n) for n in range(chosen.seeds)] for elmo in chosen.arms]
        before, *after = map(statistics.mean, columns)
        cuts = [f"{100 * (score - before) / (1 - before):.1f} %" for score in after]
        rows.append([name, METRICS[name], *map(percent, columns), *cuts])
    print("\n| task | metric | baseline | + ELMo | error cut |")
    print(f"|{' --- |' * 5}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def percent(scores):
    """Mean and standard deviation, in percent."""
    spread = f" ± {100 * statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{100 * statistics.mean(scores):.2f}{spread}"


if __name__ == "__main__":
    main()
