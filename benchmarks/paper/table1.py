"""Table 1: each task without ELMo and with it, and how much of the error it cuts.

python benchmarks/paper/table1.py --tasks ner pos --seeds 3
"""

import json
import statistics

from runs import TITLES, WHERE, print_table, runs_of, shown

PAPER = {
    "questions": (81.1, 85.8), "entailment": (88.0, 88.7), "roles": (81.4, 84.6),
    "coreference": (67.2, 70.4), "ner": (90.15, 92.22), "sentiment": (51.4, 54.7),
}  # fmt: skip


def main():
    runs, found = runs_of(__doc__.splitlines()[0]), {}
    for task in runs.tasks:
        found[task] = runs.scores(task, "none"), runs.scores(task, WHERE[task])
    rows = []
    for task, (before, after) in found.items():
        paper = f"{cut(*(p / 100 for p in PAPER[task])):.1f} %" if task in PAPER else ""
        ours = cut(statistics.mean(before), statistics.mean(after))
        count = str(len(before))
        rows.append([TITLES[task], count, shown(before), shown(after), f"{ours:.1f} %", paper])
    print_table(["task", "seeds", "baseline", "+ ELMo", "error cut", "the paper's"], rows)
    print(json.dumps(found))


def cut(before, after):
    """The share of the error that is gone, in percent."""
    return 100 * (after - before) / (1 - before)


if __name__ == "__main__":
    main()
