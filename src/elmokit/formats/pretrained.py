"""What a file holds: a language model with the text it belongs to."""

import hashlib
from dataclasses import asdict, dataclass

import torch

from elmokit.errors import FormatError
from elmokit.model.language_model import LanguageModel
from elmokit.text.alphabet import Alphabet, ByteAlphabet, WordAlphabet
from elmokit.text.split import check_splitter
from elmokit.text.vocabulary import Vocabulary

# The published English models read text that Moses had tokenised.
DEFAULT_SPLIT = "moses"


@dataclass(frozen=True)
class Pretrained:
    """A model, the vocabulary of its softmax or word table, its splitter's name, and its card."""

    model: LanguageModel
    vocabulary: Vocabulary | None = None
    split: str = DEFAULT_SPLIT
    card: str = ""

    def __post_init__(self) -> None:
        check_splitter(self.split)
        table, softmax = self.model.bilm.config.table_words, self.model.softmax
        if table is not None and self.vocabulary is None:
            raise FormatError(
                "a word-level model needs its vocabulary: put vocab.txt beside the weights"
            )
        if self.vocabulary is None:
            return
        words = len(self.vocabulary)
        if table is not None and words != table:
            raise FormatError(
                f"the vocabulary has {words} words, but the word table {table} rows; "
                "is it the vocabulary of this model?"
            )
        if softmax is not None and words != softmax.words:
            raise FormatError(
                f"the vocabulary has {words} words, but the softmax {softmax.words} rows; "
                "is it the vocabulary of this model?"
            )

    @property
    def alphabet(self) -> Alphabet:
        """What spells this model's words."""
        characters = self.model.bilm.config.characters
        if characters is not None:
            return ByteAlphabet(characters.width)
        assert self.vocabulary is not None  # checked on birth
        return WordAlphabet(self.vocabulary)

    def fingerprint(self) -> str:
        """A hash of the biLM's shape and numbers: the same for the same vectors, in any format."""
        bilm = self.model.bilm
        digest = hashlib.sha256(repr(asdict(bilm.config)).encode())
        if bilm.config.table_words is not None and self.vocabulary is not None:
            digest.update("\n".join(self.vocabulary).encode())
        for name, tensor in sorted(bilm.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().data)
        return digest.hexdigest()
