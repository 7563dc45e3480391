"""Numbers become what a service takes on: a frozen record, checked on birth."""

from dataclasses import dataclass, fields

from elmokit.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """How much a service takes on, of a request and of all together.

    `texts`, `tokens` (words and two marks a sentence), `fill_tokens` (what filling gaps reads: each
    sentence again for every word that is tried) and `word_characters` bound a request, `body_bytes`
    its body. `queue` requests may wait at most, and `open` ones may be read, answered or sent at
    once; the vectors that are computed for them, or not yet sent, take `answer_bytes` at most. A
    request has `seconds` to arrive, as many to be answered, and each part of its answer as many to
    be taken. Requests that arrive within `gather_milliseconds` are computed together, up to
    `batch_tokens`.
    """

    body_bytes: int = 2**20
    texts: int = 1024
    tokens: int = 8192
    fill_tokens: int = 32768
    word_characters: int = 1000
    answer_bytes: int = 2**30
    queue: int = 64
    open: int = 256
    seconds: float = 30.0
    batch_tokens: int = 4096
    gather_milliseconds: float = 3.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "gather_milliseconds" else 1
            if not least <= value:
                raise ConfigError(f"{field.name} is {value}, expected {least} or more")
