"""A BiLM with its softmax put back on."""

from torch import nn

from elmokit.model.bilm import BiLM
from elmokit.model.softmax import Softmax


class LanguageModel(nn.Module):
    """A BiLM and, where it was kept, the softmax it was trained with."""

    def __init__(self, bilm: BiLM, softmax: Softmax | None = None) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
