"""Figure 1: what tasks learn from a part of their examples, with ELMo and without it."""

import json
from pathlib import Path

from runs import TITLES, WHERE, percent, print_table, runs_of

from elmokit.plots import plot_panels

SHARES = (0.01, 0.1, 1.0)
TASKS = ("srl", "entailment", "ner")


def main():
    runs = runs_of(__doc__, tasks=TASKS)
    found = {
        task: {
            elmo: {share: runs.scores(task, elmo, share=share) for share in SHARES}
            for elmo in ("none", WHERE[task])
        }
        for task in runs.tasks
    }
    rows = [
        [TITLES[task], elmo, *map(percent, shares.values())]
        for task, arms in found.items()
        for elmo, shares in arms.items()
    ]
    print_table(["task", "ELMo", *(f"{share:.0%}" for share in SHARES)], rows)
    if runs.tasks == TASKS:  # some of them would not be the whole figure
        draw(found, Path("docs/paper-figure1.svg"))
    print(json.dumps(found))


def draw(found, path):
    def panels(_, axes):
        for one, (task, arms) in zip(axes, found.items(), strict=True):
            for elmo, shares in arms.items():
                means = [100 * sum(scores) / len(scores) for scores in shares.values()]
                one.plot([*shares], means, marker="o", label=elmo)
            one.set_xscale("log")
            one.set_xticks(SHARES, [f"{share:.0%}" for share in SHARES])
            one.minorticks_off()
            one.set(title=TITLES[task], xlabel="of the examples", ylabel="score on dev")
            one.legend(title="ELMo")

    plot_panels(path, panels, panels=len(found), panel_inches=(3.2, 3))


if __name__ == "__main__":
    main()
