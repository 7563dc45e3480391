"""`python -m elmokit.cli VERB` becomes `elmo VERB`: what torchrun can start."""

from elmokit.cli import main

main()
