"""Figure 2: how much of each layer the tasks learnt to use, where Table 1 put ELMo.

The same numbers go beside the English model, for the page of `elmo serve`.
"""

import json
from pathlib import Path

from runs import TITLES, WHERE, print_table, runs_of

import elmokit
from elmokit.plots import LayerWeights, plot_layer_weights


def main():
    runs, found, shipped = runs_of(__doc__.splitlines()[0]), [], []
    for task in runs.tasks:
        # Of the biLM as it ships: what a text that it first read changes is that text's.
        shares = runs.result(task, WHERE[task], runs.seeds[0], finetune_epochs=0).layer_weights
        shipped += [
            {
                "task": task, "name": TITLES[task], "position": place,
                "layers": list(range(len(numbers))), "weights": numbers,
            }
            for place, numbers in shares.items()
        ]  # fmt: skip
        found += [
            LayerWeights(Path(TITLES[task]), place, tuple(range(len(numbers))), tuple(numbers))
            for place, numbers in shares.items()
        ]
    rows = [
        [f"{own.folder}, {own.position}", *(f"{share:.2f}" for share in own.weights)]
        for own in found
    ]
    print_table(["mix", *(f"layer {k}" for k in found[0].layers)], rows)
    if runs.tasks == tuple(TITLES):  # some of them would not be all that ships
        plot_layer_weights(Path("docs/paper-figure2.svg"), found)
        told = {"fingerprint": elmokit.load().pretrained.fingerprint(), "layer_weights": shipped}
        Path("src/elmokit/english/layer_weights.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
