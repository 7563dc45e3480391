"""`python -m elmokit.cli` is the command elmo."""

from elmokit.cli import main

main()
