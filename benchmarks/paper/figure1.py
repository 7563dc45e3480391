"""Figure 1: what tasks learn from a part of their examples, with ELMo and without it."""

import json
from pathlib import Path

from runs import ELMO_POSITIONS, TITLES, percent, print_table, runs_from_arguments

from elmokit.plots import plot_panels

SHARES = (0.01, 0.1, 1.0)
TASKS = ("srl", "entailment", "ner")


def main():
    runs = runs_from_arguments(__doc__, tasks=TASKS)
    scores = {
        task: {
            elmo: {share: runs.scores(task, elmo, share=share) for share in SHARES}
            for elmo in ("none", ELMO_POSITIONS[task])
        }
        for task in runs.tasks
    }
    rows = [
        [TITLES[task], elmo, *map(percent, shares.values())]
        for task, arms in scores.items()
        for elmo, shares in arms.items()
    ]
    print_table(["task", "ELMo", *(f"{share:.0%}" for share in SHARES)], rows)
    if runs.tasks == TASKS:  # the complete figure
        draw(scores, Path("docs/paper-figure1.svg"))
    print(json.dumps(scores))


def draw(scores, path):
    def draw_panels(_, panels):
        for panel, (task, arms) in zip(panels, scores.items(), strict=True):
            for elmo, shares in arms.items():
                means = [100 * sum(seeds) / len(seeds) for seeds in shares.values()]
                panel.plot([*shares], means, marker="o", label=elmo)
            panel.set_xscale("log")
            panel.set_xticks(SHARES, [f"{share:.0%}" for share in SHARES])
            panel.minorticks_off()
            panel.set(title=TITLES[task], xlabel="of the examples", ylabel="score on dev")
            panel.legend(title="ELMo")

    plot_panels(path, draw_panels, panels=len(scores), panel_inches=(3.2, 3))


if __name__ == "__main__":
    main()
