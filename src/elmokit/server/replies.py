"""Vectors and records become the bytes of an answer: JSON, or NumPy's own files."""

import io
import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from elmokit.errors import NumericError, ServiceError
from elmokit.pooling import Vectors
from elmokit.results import Perplexity, Prediction
from elmokit.server.jobs import Embedded, Scored
from elmokit.server.media import JSON

# Numbers become text so many at a time: meanwhile nothing else of the process runs.
_NUMBERS_AT_ONCE = 16384
_PARCEL_BYTES = 2**17


def choose_form(accept: str | None, binary: str) -> str:
    """JSON or the route's binary form, whichever a client names first; JSON if it takes all."""
    for part in (accept or "*/*").split(","):
        kind = part.split(";")[0].strip().lower()
        if kind == binary:
            return binary
        if kind in (JSON, "application/*", "*/*"):
            return JSON
    raise ServiceError(f"only {JSON} and {binary} can be sent, not {accept}", status=406)


def embedded_json(embedded: Embedded) -> Iterator[bytes]:
    """The sentences with their vectors, piece by piece."""
    yield b'{"layers": %s, "sentences": [' % _json(embedded.layers)
    for place, array in enumerate(embedded.vectors):
        text, words = embedded.sentences.texts[place], embedded.sentences.words[place]
        comma = b", " if place else b""
        yield b'%s{"text_index": %d, "words": %s, "vectors": ' % (comma, text, _json(words))
        yield from _array_json(array)
        yield b"}"
    yield b"]}"


def embedded_npz(embedded: Embedded) -> Iterator[bytes]:
    """An array a sentence, "0", "1" …, and sentences.json with their words and texts, in pieces."""
    sentences, made = embedded.sentences, _Pieces()
    with zipfile.ZipFile(made, "w") as members:
        members.writestr(
            "sentences.json", _json({"words": sentences.words, "text_indices": sentences.texts})
        )
        for place, array in enumerate(embedded.vectors):
            members.writestr(f"{place}.npy", npy(array))
            yield from made.taken()
    yield from made.taken()


def encoded_json(vectors: Vectors) -> Iterator[bytes]:
    """One vector a text, piece by piece."""
    yield b'{"vectors": '
    yield from _array_json(vectors)
    yield b"}"


def npy(array: Vectors) -> bytes:
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def scored(found: Scored) -> dict[str, Any]:
    """A ScoreReply."""
    total = Perplexity.of(found.scores) if found.scores else None
    return {
        "perplexity": total
        and {
            "forward": _finite(total.forward),
            "backward": _finite(total.backward),
            "average": _finite(total.average),
            "geometric_mean": _finite(total.geometric_mean),
            "words": total.words,
            "unknown": total.unknown,
            "predictions": total.predictions,
        },
        "sentences": [
            {
                "text_index": text,
                "words": score.words,
                "unknown": score.unknown,
                "perplexity": _finite(score.perplexity),
                "forward": None if score.forward is None else score.forward.tolist(),
                "backward": None if score.backward is None else score.backward.tolist(),
            }
            for text, score in zip(found.sentences.texts, found.scores, strict=True)
        ],
    }


def guessed(guesses: Sequence[Prediction]) -> list[dict[str, Any]]:
    """A list of PredictedWord."""
    return [guess._asdict() for guess in guesses]


def in_parcels(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces put together until they are worth sending."""
    parcel = bytearray()
    for piece in pieces:
        parcel += piece
        if len(parcel) >= _PARCEL_BYTES:
            yield bytes(parcel)
            parcel.clear()
    yield bytes(parcel)


class _Pieces:
    """A file that is read while it is written, and cannot go back."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """The last piece was the end."""

    def taken(self) -> list[bytes]:
        """What was written since the last time."""
        taken, self._pieces = self._pieces, []
        return taken


def _array_json(array: Vectors) -> Iterator[bytes]:
    if array.size <= _NUMBERS_AT_ONCE or array.ndim == 1:
        yield _json(array.tolist())
        return
    rows = max(1, _NUMBERS_AT_ONCE // array[0].size)
    for start in range(0, len(array), rows):
        yield b", " if start else b"["
        if rows > 1:
            yield _json(array[start : start + rows].tolist())[1:-1]
        else:
            yield from _array_json(array[start])
    yield b"]"


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _finite(value: float | None) -> float | None:
    """JSON has no word for what is not finite."""
    return None if value is None or not math.isfinite(value) else value


def check_finite(arrays: Sequence[Vectors]) -> None:
    """Refuse numbers that JSON cannot say."""
    for place, array in enumerate(arrays):
        if not np.isfinite(array).all():
            raise NumericError(
                f"the vectors of text {place} are not finite, which JSON cannot say; "
                "ask for NumPy's form, and look at the model"
            )
