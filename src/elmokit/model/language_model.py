"""A BiLM with its softmax put back on."""

import torch
from torch import Tensor, nn

from elmokit.model.bilm import BiLM
from elmokit.model.encoder import WordTable
from elmokit.model.softmax import AdaptiveSoftmax, Softmax


class LanguageModel(nn.Module):
    """A BiLM and, where it was kept, the softmax it was trained with.

    With `share`, a word-level model predicts a word with the vector by which it reads it.
    """

    def __init__(
        self,
        bilm: BiLM,
        softmax: Softmax | AdaptiveSoftmax | None = None,
        *,
        share: bool = False,
    ) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self._share = share
        self.share_table()

    @property
    def shared_table(self) -> Tensor | None:
        """The vectors of words that are both read and predicted, if they are the same."""
        if not self._share:
            return None
        assert isinstance(self.bilm.encoder, WordTable)
        return self.bilm.encoder.embedding.weight[1:]

    def share_table(self) -> None:
        """Copy what was learnt of shared vectors to the softmax."""
        if self._share:
            assert isinstance(self.softmax, Softmax)
            assert self.shared_table is not None
            with torch.no_grad():
                self.softmax.weight.copy_(self.shared_table)
