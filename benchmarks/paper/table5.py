"""Table 5: word senses by the nearest mean vector of SemCor's occurrences, layer by layer.

python benchmarks/paper/table5.py
"""

import argparse
from pathlib import Path

from runs import print_table

import elmokit
from elmokit.tasks.datasets.senses import read_raganato, read_semcor
from elmokit.tasks.wsd import FREQUENCY_WEIGHT, SenseVectors, evaluate_wsd, read_first_senses

# Of all words of four evaluation sets: the first sense, the first and the second layer.
PAPER = ("the paper (all sets)", "65.9", "", "", "67.4", "69.0")
SETS = ("42D", "S10amended")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet/index.sense"))
    parser.add_argument("--cache", type=Path, help="a folder to keep SemCor's vectors in")
    args = parser.parse_args()
    first_senses = read_first_senses(args.wordnet)
    semcor = read_semcor(args.data / "wsd_semcor/semcor.tar.xz")
    vectors = SenseVectors(elmokit.load()).fit(semcor, cache=args.cache, show_progress_bar=None)
    rows = []
    for name in SETS:
        files = (args.data / f"wsd_eval/{name}.{end}" for end in ("data.xml", "gold.key.txt"))
        sentences = read_raganato(*files)
        for method, weight in (("", FREQUENCY_WEIGHT), (", nearest alone", 0.0)):
            scores = evaluate_wsd(vectors, first_senses, sentences, frequency_weight=weight)
            accuracies = scores.first_sense, scores.most_frequent, *scores.layers
            rows.append(
                [
                    f"{name}, {scores.instances} words{method}",
                    *(f"{100 * a:.1f}" for a in accuracies),
                ]
            )
    header = ["set", "first sense", "most frequent in SemCor", "layer 0", "layer 1", "layer 2"]
    print_table(header, [*rows, PAPER])


if __name__ == "__main__":
    main()
