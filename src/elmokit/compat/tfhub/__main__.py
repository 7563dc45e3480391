"""`python -m elmokit.compat.tfhub`: a script or a module with tensorflow_hub, on elmokit."""

from elmokit.compat.tfhub.import_hook import main

main()
