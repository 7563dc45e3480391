"""How much of the error ELMo cuts in Chinese: names in résumés and the sentiment of reviews.

    python benchmarks/chinese/tasks.py MODEL --seeds 3

Characters are words in both tasks. The baseline has the same head, the same settings and as many
trials of settings; it learns its word embeddings from the training examples.
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
TRIALS = {  # of settings, for the baseline as for ELMo; the best with seed 0 is used
    "ner": [{}, {"hidden_size": 256}],
    "classification": [{"epochs": 8}, {"epochs": 8, "learning_rate": 0.001}],
}


@dataclass(frozen=True)
class Runs:
    """The runs of one task: its examples, the biLM with its cached layers, and a folder."""

    task: Task
    data: Path
    work: Path
    model: elmokit.Embedder
    layers: CachedLayers

    def score(self, elmo, changes, seed):
        """The main score on dev of a head trained with these changes of the task's settings."""
        settings = replace(
            self.task.settings, elmo=elmo, tokenizer="characters", seed=seed, **changes
        )
        changed = (f"{key}={value}" for key, value in changes.items())
        out = self.work / "-".join([self.task.name, elmo, *changed, str(seed)])
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
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    parser.add_argument("--work", type=Path, default=Path("chinese-tasks"))
    chosen = parser.parse_args()
    model = elmokit.load(chosen.model)
    rows = []
    for name in chosen.tasks:
        runs = Runs(TASKS[name], chosen.data, chosen.work, model, CachedLayers(model))
        scores, settings = {}, {}
        for elmo in ("none", "input"):
            trials = {runs.score(elmo, changes, 0): changes for changes in TRIALS[name]}
            settings[elmo] = trials[max(trials)]
            scores[elmo] = [runs.score(elmo, settings[elmo], n) for n in range(chosen.seeds)]
        before, after = map(statistics.mean, scores.values())
        cut = 100 * (after - before) / (1 - before)
        rows.append([name, METRICS[name], settings, *map(percent, scores.values()), f"{cut:.1f} %"])
    print("\n| task | metric | settings | baseline | + ELMo | error cut |")
    print(f"|{' --- |' * 6}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def percent(scores):
    """Mean and standard deviation, in percent."""
    spread = f" ± {100 * statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{100 * statistics.mean(scores):.2f}{spread}"


if __name__ == "__main__":
    main()
