"""Figure 2: the learned weight of each layer by task, with ELMo where it is in Table 1.

The same numbers go beside the English model, for the page of `elmo serve`.
"""

import json
from pathlib import Path

from runs import ELMO_POSITIONS, TITLES, print_table, runs_from_arguments

import elmokit
from elmokit.plots import LayerWeights, plot_layer_weights


def main():
    runs, weights, records = runs_from_arguments(__doc__.splitlines()[0]), [], []
    for task in runs.tasks:
        # Of the biLM as it ships: fine-tuning would change the weights by the task's text.
        result = runs.result(task, ELMO_POSITIONS[task], runs.seeds[0], finetune_epochs=0)
        records += [
            {
                "task": task, "name": TITLES[task], "position": position,
                "layers": list(range(len(values))), "weights": values,
            }
            for position, values in result.layer_weights.items()
        ]  # fmt: skip
        weights += [
            LayerWeights(Path(TITLES[task]), position, tuple(range(len(values))), tuple(values))
            for position, values in result.layer_weights.items()
        ]
    rows = [
        [f"{mix.folder}, {mix.position}", *(f"{value:.2f}" for value in mix.weights)]
        for mix in weights
    ]
    print_table(["mix", *(f"layer {k}" for k in weights[0].layers)], rows)
    if runs.tasks == tuple(TITLES):  # the complete figure
        plot_layer_weights(Path("docs/paper-figure2.svg"), weights)
        shipped = {"fingerprint": elmokit.load().pretrained.fingerprint(), "layer_weights": records}
        text = json.dumps(shipped, indent=1) + "\n"
        Path("src/elmokit/english/layer_weights.json").write_text(text)


if __name__ == "__main__":
    main()
