"""APIs of other ELMo packages."""

from typing import Any


def decoded(word: Any) -> Any:
    """The text of bytes of UTF-8, as in arrays of NumPy and TensorFlow; else the same object."""
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else word
