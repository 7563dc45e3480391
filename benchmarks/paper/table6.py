"""Table 6: parts of speech by a linear classifier of each layer.

python benchmarks/paper/table6.py
"""

import argparse
from pathlib import Path

from runs import print_table

import elmokit
from elmokit.tasks.datasets.columns import read_conllu
from elmokit.tasks.probing import probe_layers

PAPER = ("the paper (Penn Treebank)", "", "97.3", "96.8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    args = parser.parse_args()
    parts = (args.data / f"pos_ud_ewt/{part}.conllu.xz" for part in ("train", "dev"))
    accuracies = probe_layers(elmokit.load(), *map(read_conllu, parts))
    ours = ["UD EWT dev", *(f"{100 * accuracy:.2f}" for accuracy in accuracies)]
    print_table(["text", "layer 0", "layer 1", "layer 2"], [ours, PAPER])


if __name__ == "__main__":
    main()
