"""Table 5: senses of words by the nearest mean of SemCor's uses, layer by layer.

python benchmarks/paper/table5.py
"""

import argparse
from pathlib import Path

from runs import print_table

import elmokit
from elmokit.tasks.data.raganato import read_raganato
from elmokit.tasks.data.semcor import read_semcor
from elmokit.tasks.senses import OFTEN, FirstSenses, SenseAverages, disambiguate

# Of all words of four evaluation sets: the first sense, the first and the second layer.
PAPER = ("the paper (all sets)", "65.9", "", "", "67.4", "69.0")
SETS = ("42D", "S10amended")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/tasks"))
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet/index.sense"))
    chosen = parser.parse_args()
    first = FirstSenses.of_wordnet(chosen.wordnet)
    averages = SenseAverages(elmokit.load())
    averages.learn(read_semcor(chosen.data / "wsd_semcor/semcor.tar.xz"))
    rows = []
    for name in SETS:
        files = (chosen.data / f"wsd_eval/{name}.{end}" for end in ("data.xml", "gold.key.txt"))
        wanted = read_raganato(*files)
        for way, often in (("", OFTEN), (", nearest alone", 0.0)):
            found = disambiguate(averages, first, wanted, often=often)
            scores = found.first_sense, found.commonest, *found.layers
            rows.append(
                [f"{name}, {found.instances} words{way}", *(f"{100 * s:.1f}" for s in scores)]
            )
    header = ["set", "first sense", "commonest in SemCor", "layer 0", "layer 1", "layer 2"]
    print_table(header, [*rows, PAPER])


if __name__ == "__main__":
    main()
