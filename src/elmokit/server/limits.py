"""Limits of a service: what it accepts, for one request and for all of them together."""

from dataclasses import dataclass

from elmokit.errors import ServiceError
from elmokit.toml_settings import check_ranges, setting


@dataclass(frozen=True)
class Limits:
    """What a service accepts, for one request and for all of them together."""

    max_body_bytes: int = setting("The largest body of a request.", 2**20, "> 0")
    max_texts: int = setting("The most texts in a request.", 1024, "> 0")
    max_tokens: int = setting(
        "The most words in a request, with two special tokens for each sentence.", 8192, "> 0"
    )
    max_fill_tokens: int = setting(
        "The most words to compute for filling gaps: a sentence for each word that is tried.",
        32768,
        "> 0",
    )
    max_word_characters: int = setting("The longest word of a request.", 1000, "> 0")
    max_response_bytes: int = setting(
        "The most bytes of vectors computed and not yet sent.", 2**30, "> 0"
    )
    max_queued: int = setting("The most requests that wait for the model.", 64, "> 0")
    max_open: int = setting("The most requests that are read, answered or sent.", 256, "> 0")
    timeout_seconds: float = setting(
        "The longest time until a request has arrived, until it is answered, and until a part of "
        "its response is received.",
        30.0,
        "> 0",
    )
    tokens_per_batch: int = setting(
        "How many words of requests are computed together.", 4096, "> 0"
    )
    batch_wait_milliseconds: float = setting(
        "How long a request waits for others to join its batch.", 3.0, ">= 0"
    )

    def __post_init__(self) -> None:
        check_ranges(self)


def too_large(what: str, limit: int) -> ServiceError:
    """The error of a request that exceeds a limit."""
    return ServiceError(
        f"{what}, the limit is {limit:,}; split it into smaller requests", status=413
    )


def busy(message: str, status: int = 429) -> ServiceError:
    """The error of a request that may succeed a second later."""
    return ServiceError(message, status=status, retry_after=1)
