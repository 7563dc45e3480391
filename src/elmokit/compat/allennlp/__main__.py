"""`python -m elmokit.compat.allennlp`: a script, a module or `allennlp elmo`, run on elmokit."""

from elmokit.compat.allennlp.import_hook import main

main()
