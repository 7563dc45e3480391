"""Texts of a request become sentences, within limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.embedder import Embedder, Text
from elmokit.errors import InputError, ServiceError
from elmokit.server.limits import Limits


@dataclass(frozen=True)
class Sentences:
    """The sentences of texts, each with the place of its text."""

    words: list[list[str]]
    texts: list[int]

    @classmethod
    def of(cls, embedder: Embedder, texts: Sequence[Text], limits: Limits) -> "Sentences":
        """The sentences of texts that are within the limits."""
        if len(texts) > limits.texts:
            raise too_much(f"{len(texts):,} texts were given", limits.texts)
        words, places, tokens = list[list[str]](), list[int](), 0
        for place, text in enumerate(texts):
            check_characters(text, f"text {place}")
            for sentence in embedder.tokenize(text):
                tokens += len(sentence) + 2
                if tokens > limits.tokens:
                    raise too_much(f"text {place} makes {tokens:,} words to read", limits.tokens)
                _check_words(sentence, place, limits)
                words.append(sentence)
                places.append(place)
        return cls(words, places)

    @property
    def tokens(self) -> int:
        """How much is read: words, and two marks a sentence."""
        return sum(len(sentence) + 2 for sentence in self.words)


def too_much(found: str, limit: int) -> ServiceError:
    """The error of a request that is too big in some way."""
    return ServiceError(f"{found}, the limit is {limit:,}; ask in smaller parts", status=413)


def check_characters(text: Text, name: str) -> None:
    """Refuse what JSON can spell and no text can hold: half of a character."""
    try:
        (text if isinstance(text, str) else "".join(text)).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} has {error.object[error.start]!r}, half of a character; "
            "expected text that is Unicode"
        ) from None


def _check_words(sentence: list[str], place: int, limits: Limits) -> None:
    longest = max(map(len, sentence), default=0)
    if longest > limits.word_characters:
        raise too_much(f"text {place} has a word of {longest:,} characters", limits.word_characters)
