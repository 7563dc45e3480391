"""Limits of a service, and tokenized texts that are within them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from elmokit.embedder import Embedder, Text
from elmokit.errors import ConfigError, InputError, ServiceError


@dataclass(frozen=True)
class Limits:
    """What a service accepts, for one request and for all of them together.

    One request: `max_body_bytes`, `max_texts`, `max_tokens` (words, and two special tokens per
    sentence), `max_fill_tokens` (filling a gap reads the sentence once for each candidate word)
    and `max_word_characters`.

    All together: at most `max_queued` requests wait for the model and `max_open` are being read,
    answered or sent; vectors that are computed or not yet sent take at most `max_response_bytes`.

    A request has `timeout_seconds` to arrive and as many to be answered, and each part of its
    response as many to be received. Requests that arrive within `batch_wait_milliseconds` are
    computed together, up to `tokens_per_batch`.
    """

    max_body_bytes: int = 2**20
    max_texts: int = 1024
    max_tokens: int = 8192
    max_fill_tokens: int = 32768
    max_word_characters: int = 1000
    max_response_bytes: int = 2**30
    max_queued: int = 64
    max_open: int = 256
    timeout_seconds: float = 30.0
    tokens_per_batch: int = 4096
    batch_wait_milliseconds: float = 3.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            minimum = 0 if field.name == "batch_wait_milliseconds" else 1
            if not minimum <= value:
                raise ConfigError(f"{field.name} is {value}, expected {minimum} or more")


@dataclass(frozen=True)
class TokenizedTexts:
    """The sentences of texts, and for each sentence the index of its text."""

    sentences: list[list[str]]
    text_indices: list[int]

    @classmethod
    def from_texts(
        cls, embedder: Embedder, texts: Sequence[Text], limits: Limits
    ) -> "TokenizedTexts":
        """Tokenize texts, and refuse them as soon as a limit is exceeded."""
        if len(texts) > limits.max_texts:
            raise too_large(f"{len(texts):,} texts were given", limits.max_texts)
        sentences, text_indices, num_tokens = list[list[str]](), list[int](), 0
        for index, text in enumerate(texts):
            check_unicode(text, f"text {index}")
            for sentence in embedder.tokenize(text):
                num_tokens += len(sentence) + 2
                if num_tokens > limits.max_tokens:
                    raise too_large(
                        f"text {index} brings the request to {num_tokens:,} tokens",
                        limits.max_tokens,
                    )
                _check_word_lengths(sentence, index, limits)
                sentences.append(sentence)
                text_indices.append(index)
        return cls(sentences, text_indices)

    @property
    def num_tokens(self) -> int:
        """Words, and two special tokens per sentence."""
        return sum(len(sentence) + 2 for sentence in self.sentences)

    def words_of(self, text_index: int) -> list[str]:
        """All words of one text."""
        return [
            word
            for sentence, index in zip(self.sentences, self.text_indices, strict=True)
            if index == text_index
            for word in sentence
        ]


def too_large(what: str, limit: int) -> ServiceError:
    """The error of a request that exceeds a limit."""
    return ServiceError(
        f"{what}, the limit is {limit:,}; split it into smaller requests", status=413
    )


def check_unicode(text: Text, name: str) -> None:
    """Refuse lone surrogates, which JSON can express but no text contains."""
    try:
        (text if isinstance(text, str) else "".join(text)).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} has {error.object[error.start]!r}, half of a surrogate pair; "
            "expected valid Unicode"
        ) from None


def _check_word_lengths(sentence: list[str], text_index: int, limits: Limits) -> None:
    longest = max(map(len, sentence), default=0)
    if longest > limits.max_word_characters:
        raise too_large(
            f"text {text_index} has a word of {longest:,} characters", limits.max_word_characters
        )
