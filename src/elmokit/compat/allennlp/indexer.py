"""Words become character ids by AllenNLP's names."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from elmokit.batching import check_words
from elmokit.compat.allennlp.scalar_mix import ConfigurationError
from elmokit.vocab import CharacterIndexer

_WIDTH = 50
_ALPHABET = CharacterIndexer(_WIDTH)


def batch_to_ids(batch: Sequence[Sequence[str]], *, width: int = _WIDTH) -> Tensor:
    """Character ids of sentences without boundaries, (sentences, words, width); 0 is padding.

    A string is a sentence of characters, as it was.
    """
    sentences = [check_words(list(s), f"sentence {place}")[0] for place, s in enumerate(batch)]
    ids = np.zeros((len(sentences), max(map(len, sentences), default=0), width), np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)], _ = CharacterIndexer(width).encode(sentence)
    return torch.from_numpy(ids)


class ELMoCharacterMapper:
    """A word as 50 character ids; `tokens_to_add` gives words a single character of their own."""

    max_word_length = _WIDTH
    beginning_of_sentence_character = 256
    end_of_sentence_character = 257
    beginning_of_word_character = 258
    end_of_word_character = 259
    padding_character = 260
    bos_token = "<S>"
    eos_token = "</S>"

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoCharacterMapper) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def convert_word_to_char_ids(self, word: str) -> list[int]:
        """The ids of a word, each one more than its byte."""
        rows, _ = _ALPHABET.encode(["x" if word in self.tokens_to_add else word])
        ids: list[int] = rows[0].tolist()
        if word in self.tokens_to_add:
            ids[1] = self.tokens_to_add[word] + 1
        return ids


class ELMoTokenCharactersIndexer:
    """Tokens (strings, or objects with a text) become lists of character ids."""

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._mapper = ELMoCharacterMapper(tokens_to_add)

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        """What no tokens become."""
        return {"elmo_tokens": []}

    def tokens_to_indices(
        self, tokens: Iterable[object], vocabulary: object = None, index_name: str = "elmo_tokens"
    ) -> dict[str, list[list[int]]]:
        """The ids of each token; a vocabulary is not needed."""
        ids = []
        for token in tokens:
            text = getattr(token, "text", token)
            if not isinstance(text, str):
                raise ConfigurationError(f"a token's text is {text!r}, expected a string")
            ids.append(self._mapper.convert_word_to_char_ids(text))
        return {index_name: ids}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, list[list[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The ids as tensors, with words of zeros up to the lengths."""
        padded = {}
        for name, rows in tokens.items():
            ids = torch.zeros(padding_lengths[name], _WIDTH, dtype=torch.long)
            kept = rows[: padding_lengths[name]]
            if kept:
                ids[: len(kept)] = torch.tensor(kept)
            padded[name] = ids
        return padded
