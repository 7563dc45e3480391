"""An old script becomes a running one: `python -m elmokit.compat.allennlp script.py ARGUMENTS`."""

import runpy
import sys
from pathlib import Path

from elmokit.compat.allennlp import install


def main() -> None:
    """Run a script as Python would, with elmokit in AllenNLP's place."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m elmokit.compat.allennlp SCRIPT [ARGUMENT ...]")
    if not Path(sys.argv[1]).is_file():
        sys.exit(f"{sys.argv[1]}: no such script")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    install()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
