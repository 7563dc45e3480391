"""Figure 2: how much of each layer the tasks learnt to use, at their input and their output."""

from pathlib import Path

from matplotlib.figure import Figure
from runs import TITLES, print_table, runs_of


def main():
    runs, rows = runs_of(__doc__), []
    for task in runs.tasks:
        shares = runs.trained(task, "both", runs.seeds[0]).head.words.shares()
        rows += [(f"{TITLES[task]}, {place}", numbers) for place, numbers in shares.items()]
    layers = range(len(rows[0][1]))
    shown = [[name, *(f"{number:.2f}" for number in numbers)] for name, numbers in rows]
    print_table(["mix", *(f"layer {k}" for k in layers)], shown)
    figure = Figure(figsize=(4, 1 + 0.4 * len(rows)))
    axes = figure.subplots()
    image = axes.imshow([numbers for _, numbers in rows], vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_xticks(layers, [f"layer {k}" for k in layers])
    figure.colorbar(image, label="share")
    figure.savefig(Path("docs/paper-figure2.svg"), bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
