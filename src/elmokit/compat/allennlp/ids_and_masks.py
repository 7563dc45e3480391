"""AllenNLP's character ids and their indexer; masks and sentence boundaries of padded tensors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.batching import check_words
from elmokit.character_ids import CharacterIndexer
from elmokit.compat import decoded
from elmokit.errors import ConfigError, InputError

MAX_CHARACTERS = 50
_INDEXER = CharacterIndexer(MAX_CHARACTERS)

IndexedTokens = Mapping[str, list[list[int]]]


class ConfigurationError(ConfigError):
    """What AllenNLP raised for a wrong setting."""


def batch_to_ids(batch: Sequence[Sequence[str]], *, max_characters: int = MAX_CHARACTERS) -> Tensor:
    """Character ids of sentences without boundaries, (sentences, words, max_characters).

    0 is padding. As in AllenNLP, a string is a sentence of characters. Words may be bytes of UTF-8,
    as in the arrays of NumPy and TensorFlow.
    """
    sentences = [
        check_words([decoded(word) for word in sentence], f"sentence {number}")[0]
        for number, sentence in enumerate(batch)
    ]
    ids = np.zeros((len(sentences), max(map(len, sentences), default=0), max_characters), np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)], _ = CharacterIndexer(max_characters).encode(sentence)
    return torch.from_numpy(ids)


class ELMoCharacterMapper:
    """A word as 50 character ids; a word of `tokens_to_add` has a single id of its own."""

    max_word_length = MAX_CHARACTERS
    beginning_of_sentence_character = 256
    end_of_sentence_character = 257
    beginning_of_word_character = 258
    end_of_word_character = 259
    padding_character = 260
    beginning_of_sentence_characters = [258, 256, 259, *[260] * (MAX_CHARACTERS - 3)]
    end_of_sentence_characters = [258, 257, 259, *[260] * (MAX_CHARACTERS - 3)]
    bos_token = "<S>"
    eos_token = "</S>"

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoCharacterMapper) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def convert_word_to_char_ids(self, word: str) -> list[int]:
        """The ids of a word; a byte b has the id b + 1."""
        rows, _ = _INDEXER.encode(["x" if word in self.tokens_to_add else word])
        ids: list[int] = rows[0].tolist()
        if word in self.tokens_to_add:
            ids[1] = self.tokens_to_add[word] + 1
        return ids


class ELMoTokenCharactersIndexer:
    """Turns tokens (strings, or objects with a `text`) into lists of character ids.

    AllenNLP 0.x calls `get_keys`, `get_padding_token` and `as_padded_tensor`, and asks for the
    padding lengths of one token; 2.x calls `get_empty_token_list` and `as_padded_tensor_dict`, and
    asks for the padding lengths of all tokens.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._mapper = ELMoCharacterMapper(tokens_to_add)
        self._namespace = namespace
        self._token_min_padding_length = token_min_padding_length

    def count_vocab_items(self, token: object, counter: Mapping[str, Mapping[str, int]]) -> None:
        """Count nothing: characters need no vocabulary."""

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        return {"elmo_tokens": []}

    def tokens_to_indices(
        self, tokens: Iterable[object], vocabulary: object = None, index_name: str = "elmo_tokens"
    ) -> dict[str, list[list[int]]]:
        """The ids of each token; the vocabulary is ignored."""
        ids = []
        for token in tokens:
            text = decoded(getattr(token, "text", token))
            if not isinstance(text, str):
                raise ConfigurationError(f"the text of a token is {text!r}, expected a string")
            ids.append(self._mapper.convert_word_to_char_ids(text))
        return {index_name: ids}

    def get_keys(self, index_name: str) -> list[str]:
        return [index_name]

    def get_token_min_padding_length(self) -> int:
        return self._token_min_padding_length

    def get_padding_token(self) -> list[int]:
        return []

    def get_padding_lengths(self, tokens: IndexedTokens | list[int]) -> dict[str, int]:
        """How many words a tensor of these tokens needs; {} for the ids of one token."""
        if not isinstance(tokens, Mapping):
            return {}
        least = self._token_min_padding_length
        return {name: max(len(rows), least) for name, rows in tokens.items()}

    def as_padded_tensor(
        self,
        tokens: IndexedTokens,
        desired_num_tokens: Mapping[str, int],
        padding_lengths: Mapping[str, int],
    ) -> dict[str, Tensor]:
        """`as_padded_tensor_dict`, as 0.x calls it."""
        return self.as_padded_tensor_dict(tokens, desired_num_tokens)

    def as_padded_tensor_dict(
        self, tokens: IndexedTokens, padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """The ids as tensors, padded with zeros to these numbers of words."""
        padded = {}
        for name, rows in tokens.items():
            ids = torch.zeros(padding_lengths[name], MAX_CHARACTERS, dtype=torch.long)
            rows = rows[: padding_lengths[name]]  # noqa: PLW2901
            if rows:
                ids[: len(rows)] = torch.tensor(rows)
            padded[name] = ids
        return padded


def add_sentence_boundary_token_ids(
    tensor: Tensor, mask: Tensor, sentence_begin_token: Any, sentence_end_token: Any
) -> tuple[Tensor, Tensor]:
    """Ids with a boundary before and after each sentence, and their mask.

    Ids are (sentences, steps), and boundaries numbers; or (sentences, steps, ids), and boundaries
    tensors. As in AllenNLP, the end stands after as many steps as the mask has, even where the
    padding is in front.
    """
    if tensor.dim() not in (2, 3):
        raise InputError(
            f"ids have the shape {tuple(tensor.shape)}, expected (sentences, steps) or "
            "(sentences, steps, ids)"
        )
    num_sentences, num_steps = tensor.shape[:2]
    padded = tensor.new_zeros(num_sentences, num_steps + 2, *tensor.shape[2:])
    padded[:, 1:-1] = tensor
    begin, end = (
        torch.as_tensor(token, dtype=tensor.dtype, device=tensor.device)
        for token in (sentence_begin_token, sentence_end_token)
    )
    padded[:, 0] = begin
    sentences = torch.arange(num_sentences, device=tensor.device)
    padded[sentences, get_lengths_from_binary_sequence_mask(mask) + 1] = end
    return padded, padded != 0 if tensor.dim() == 2 else (padded > 0).any(2)


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors, (sentences, steps, dim), without the first and the last one of each, and their mask.

    Padding becomes zero.
    """
    lengths = get_lengths_from_binary_sequence_mask(mask) - 2
    inner = get_mask_from_sequence_lengths(lengths, max(0, tensor.shape[1] - 2))
    return tensor[:, 1:-1].masked_fill(~inner[..., None], 0), inner.to(mask.dtype)


def get_lengths_from_binary_sequence_mask(mask: Tensor) -> Tensor:
    """The number of words of each sentence, (sentences,), of a mask (sentences, steps)."""
    return mask.sum(-1)


def get_mask_from_sequence_lengths(sequence_lengths: Tensor, max_length: int) -> Tensor:
    """The mask, (sentences, max_length), of sentences with so many words."""
    steps = torch.arange(max_length, device=sequence_lengths.device)
    return steps < sequence_lengths[:, None]


def get_text_field_mask(
    text_field_tensors: Mapping[str, Tensor | Mapping[str, Tensor]],
    num_wrapping_dims: int = 0,
    padding_id: int = 0,
) -> Tensor:
    """Which words of a text field are not padding: of its mask, its word ids or character ids."""
    tensors: list[Tensor] = []
    for name, value in text_field_tensors.items():
        if name == "mask" and isinstance(value, Tensor):
            return value.bool()
        values = value if isinstance(value, Mapping) else {name: value}
        if "mask" in values:
            return values["mask"].bool()
        tensors += values.values()
    ids = min(tensors, key=Tensor.dim)
    if ids.dim() == num_wrapping_dims + 2:
        return ids != padding_id
    return (ids > 0).any(-1)
