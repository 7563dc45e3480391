"""Draw the pictures of docs/gallery.md: `make gallery`."""

import argparse
import json
import tempfile
from pathlib import Path

from demo import HERE, SENSES

from elmokit.cli import app

PAIR = "The bank lent the farmer money", "The farmer sat on the bank of the river"
CHINESE = "The Bank of China ( 中国银行 ) opened in 1912", "中国银行 lent the city money"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs")
    out = parser.parse_args().out
    texts = json.loads((HERE / "senses.json").read_text("utf-8"))
    for word, senses in SENSES.items():
        pairs = zip(senses, texts[word], strict=True)
        lines = "".join(f"{sense}\t{text}\n" for sense, text in pairs)
        with tempfile.TemporaryDirectory() as folder:
            labelled = Path(folder, "labelled.tsv")
            labelled.write_text(lines, "utf-8")
            draw("contexts", word, labelled, "--prefix", "--out", out / f"{word}.svg")
    draw("similarity", *PAIR, "--layer", 0, "--layer", 2, "--out", out / "similarity.svg")
    draw("similarity", *CHINESE, "--layer", 2, "--out", out / "chinese.svg")


def draw(*arguments):
    """Run `elmo plot`."""
    app(["plot", *map(str, arguments)], standalone_mode=False)


if __name__ == "__main__":
    main()
