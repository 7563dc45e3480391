"""`python -m elmokit` is the command elmo: what torchrun starts."""

from elmokit.cli import main

main()
