"""Bytes of responses: JSON, NumPy's .npy and .npz, and errors."""

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from starlette.responses import Response, StreamingResponse

from elmokit.errors import NumericError, ServiceError
from elmokit.pooling import Vectors
from elmokit.server.model_calls import TokenizedTexts
from elmokit.server.schemas import JSON, NPY, NPZ, Record

# Numbers are written so many at a time: while they are, the process does nothing else.
_NUMBERS_PER_PIECE = 2**16
_CHUNK_BYTES = 2**17
# Responses up to this size are written within a few milliseconds; another thread writes others.
_SMALL_NUMBERS, _SMALL_ARRAYS = {JSON: 2**14, NPZ: 2**18}, 8


def json_response(content: object) -> Response:
    """A dictionary or a record as JSON; numbers that are not finite become null."""
    return Response(_json(content), media_type=JSON)


def embeddings_response(
    texts: TokenizedTexts, layers: tuple[int, ...], vectors: list[Vectors], media_type: str
) -> Response:
    """The vectors of the sentences of texts, as JSON or as .npz."""
    if media_type == NPZ:
        return _vectors_response(_embeddings_npz(texts, vectors), NPZ, vectors)
    check_finite(vectors)
    return _vectors_response(_embeddings_json(texts, layers, vectors), JSON, vectors)


def encodings_response(vectors: Vectors, media_type: str) -> Response:
    """One vector per text, (texts, dim), as JSON or as .npy."""
    if media_type == NPY:
        return Response(_npy(vectors), media_type=NPY)
    check_finite([vectors])
    pieces = (b'{"vectors":', *_array_json(vectors), b"}")
    return _vectors_response(pieces, JSON, [vectors])


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as JSON, whose `error` says in one sentence what is wrong."""
    return Response(_json({"error": message}), status, headers, JSON)


def service_error_response(error: ServiceError) -> Response:
    """The response for an error of the service."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return error_response(error.status, str(error), headers)


def choose_media_type(accept: str | None, binary: str) -> str:
    """JSON or the route's binary type, whichever an Accept header names first; JSON for any."""
    for part in (accept or "*/*").split(","):
        media_type = part.split(";")[0].strip().lower()
        if media_type == binary:
            return binary
        if media_type in (JSON, "application/*", "*/*"):
            return JSON
    raise ServiceError(f"only {JSON} and {binary} can be sent, not {accept}", status=406)


def check_finite(arrays: Sequence[Vectors]) -> None:
    """Refuse numbers that JSON cannot express."""
    for index, array in enumerate(arrays):
        if not np.isfinite(array).all():
            raise NumericError(
                f"the vectors of sentence {index} are not finite, which JSON cannot express; "
                "ask for NumPy's format, and check the model"
            )


def _vectors_response(
    pieces: Iterable[bytes], media_type: str, arrays: Sequence[Vectors]
) -> Response:
    """A response made of pieces; a large one is written by another thread while it is sent."""
    numbers = sum(array.size for array in arrays)
    if numbers <= _SMALL_NUMBERS[media_type] and len(arrays) <= _SMALL_ARRAYS:
        return Response(b"".join(pieces), media_type=media_type)
    return StreamingResponse(_in_chunks(pieces), media_type=media_type)


def _embeddings_json(
    texts: TokenizedTexts, layers: tuple[int, ...], vectors: list[Vectors]
) -> Iterator[bytes]:
    yield b'{"layers":%s,"sentences":[' % _json(layers)
    rows = zip(texts.text_indices, texts.sentences, vectors, strict=True)
    for number, (text_index, words, array) in enumerate(rows):
        comma = b"," if number else b""
        head = b'%s{"text_index":%d,"words":%s,"vectors":'
        yield head % (comma, text_index, _json(words))
        yield from _array_json(array)
        yield b"}"
    yield b"]}"


def _embeddings_npz(texts: TokenizedTexts, vectors: list[Vectors]) -> Iterator[bytes]:
    """Arrays "0", "1" …, one per sentence, and sentences.json with words and text indices."""
    file = _Pieces()
    with zipfile.ZipFile(file, "w") as archive:
        sentences = {"words": texts.sentences, "text_indices": texts.text_indices}
        archive.writestr("sentences.json", _json(sentences))
        for index, array in enumerate(vectors):
            archive.writestr(f"{index}.npy", _npy(array))
            yield from file.take()
    yield from file.take()


class _Pieces(io.RawIOBase):
    """A file that is taken away piece by piece while it is written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def take(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces


def _array_json(array: npt.NDArray[Any]) -> Iterator[bytes]:
    if array.size <= _NUMBERS_PER_PIECE or array.ndim == 1:
        yield _json(np.ascontiguousarray(array))
        return
    for index, part in enumerate(array):
        yield b"," if index else b"["
        yield from _array_json(part)
    yield b"]"


def _in_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces joined until they are worth sending."""
    chunk = bytearray()
    for piece in pieces:
        chunk += piece
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)


def _npy(array: Vectors) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _json(value: object) -> bytes:
    return orjson.dumps(value, _plain, orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> object:
    """What orjson does not know: records, named tuples, and arrays that are not contiguous."""
    if isinstance(value, Record):
        return value.model_dump()
    return value._asdict() if hasattr(value, "_asdict") else list(value)
