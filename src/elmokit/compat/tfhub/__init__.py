"""TensorFlow Hub's ELMo by its own names: hub.Module of TensorFlow 1 and hub.load of 2."""

from elmokit.compat.tfhub.import_hook import install
from elmokit.compat.tfhub.module import LoadedModule, Module, load

__all__ = ["LoadedModule", "Module", "install", "load"]
