"""Table 1: each task without ELMo and with it, and the relative error reduction.

python benchmarks/paper/table1.py --tasks ner pos --seeds 3
"""

import json
import statistics

from runs import ELMO_POSITIONS, TITLES, percent, print_table, runs_from_arguments

from elmokit.tasks.task_registry import TASKS

PAPER = {
    "SQuAD": (81.1, 85.8), "SNLI": (88.0, 88.7), "SRL": (81.4, 84.6), "Coref": (67.2, 70.4),
    "NER": (90.15, 92.22), "SST-5": (51.4, 54.7),
}  # fmt: skip


def main():
    runs, scores = runs_from_arguments(__doc__.splitlines()[0]), {}
    for task in runs.tasks:
        before = runs.scores(task, "none")
        scores[TITLES[task]] = before, runs.scores(task, ELMO_POSITIONS[task])
        if TASKS[task].finetune_epochs:
            as_it_ships = runs.scores(task, ELMO_POSITIONS[task], finetune_epochs=0)
            scores[f"{TITLES[task]}, biLM as it ships"] = before, as_it_ships
    rows = []
    for title, (before, after) in scores.items():
        published = PAPER.get(title.partition(",")[0])
        paper = f"{error_reduction(*(p / 100 for p in published)):.1f} %" if published else ""
        ours = error_reduction(statistics.mean(before), statistics.mean(after))
        rows.append(
            [title, str(len(before)), percent(before), percent(after), f"{ours:.2f} %", paper]
        )
    print_table(["task", "seeds", "baseline", "+ ELMo", "error cut", "the paper's"], rows)
    print(json.dumps(scores))


def error_reduction(before, after):
    """The relative error reduction, in percent."""
    return 100 * (after - before) / (1 - before)


if __name__ == "__main__":
    main()
