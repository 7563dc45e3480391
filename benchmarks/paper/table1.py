"""Table 1: each task without ELMo and with it, and how much of the error it cuts.

python benchmarks/paper/table1.py --tasks ner pos --seeds 3
"""

import json
import statistics

from runs import TITLES, WHERE, percent, print_table, runs_of

from elmokit.tasks.task_registry import TASKS

PAPER = {
    "SQuAD": (81.1, 85.8), "SNLI": (88.0, 88.7), "SRL": (81.4, 84.6), "Coref": (67.2, 70.4),
    "NER": (90.15, 92.22), "SST-5": (51.4, 54.7),
}  # fmt: skip


def main():
    runs, found = runs_of(__doc__.splitlines()[0]), {}
    for task in runs.tasks:
        before = runs.scores(task, "none")
        found[TITLES[task]] = before, runs.scores(task, WHERE[task])
        if TASKS[task].finetune_epochs:
            as_it_ships = runs.scores(task, WHERE[task], finetune_epochs=0)
            found[f"{TITLES[task]}, biLM as it ships"] = before, as_it_ships
    rows = []
    for title, (before, after) in found.items():
        published = PAPER.get(title.partition(",")[0])
        paper = f"{cut(*(p / 100 for p in published)):.1f} %" if published else ""
        ours = cut(statistics.mean(before), statistics.mean(after))
        rows.append(
            [title, str(len(before)), percent(before), percent(after), f"{ours:.2f} %", paper]
        )
    print_table(["task", "seeds", "baseline", "+ ELMo", "error cut", "the paper's"], rows)
    print(json.dumps(found))


def cut(before, after):
    """The share of the error that is gone, in percent."""
    return 100 * (after - before) / (1 - before)


if __name__ == "__main__":
    main()
