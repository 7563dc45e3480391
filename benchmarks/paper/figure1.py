"""Figure 1: what tasks learn from a part of their examples, with ELMo and without it."""

import json
from pathlib import Path

from matplotlib.figure import Figure
from runs import TITLES, WHERE, print_table, runs_of, shown

SHARES = (0.01, 0.1, 1.0)


def main():
    runs = runs_of(__doc__, tasks=("roles", "entailment", "ner"))
    found = {
        task: {
            elmo: {share: runs.scores(task, elmo, share=share) for share in SHARES}
            for elmo in ("none", WHERE[task])
        }
        for task in runs.tasks
    }
    rows = [
        [TITLES[task], elmo, *map(shown, shares.values())]
        for task, arms in found.items()
        for elmo, shares in arms.items()
    ]
    print_table(["task", "ELMo", *(f"{share:.0%}" for share in SHARES)], rows)
    draw(found, Path("docs/paper-figure1.svg"))
    print(json.dumps(found))


def draw(found, path):
    figure = Figure(figsize=(3.2 * len(found), 3))
    for axes, (task, arms) in zip(
        figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        for elmo, shares in arms.items():
            means = [100 * sum(scores) / len(scores) for scores in shares.values()]
            axes.plot([100 * share for share in shares], means, marker="o", label=elmo)
        axes.set_xscale("log")
        axes.set(title=TITLES[task], xlabel="% of the examples", ylabel="score")
        axes.legend(title="ELMo")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
