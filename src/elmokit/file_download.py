"""Downloading a file: resumed, checked, and from the first of its addresses that works.

The transport is httpx. huggingface_hub downloads from its own hub alone; pooch starts again from
the first byte, does not wait as a server asks, and lets two processes write the same file.
"""

import hashlib
import json
import re
import shutil
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import url2pathname

from pydantic import ConfigDict

from elmokit.atomic import rename_atomically, write_atomically
from elmokit.errors import DownloadError, InputError, OutputError
from elmokit.progress import DownloadProgress

if TYPE_CHECKING:
    import ssl

    import httpx

_SIGNATURES = {
    ".hdf5": b"\x89HDF\r\n\x1a\n",
    ".zip": b"PK\x03\x04",
    ".gz": b"\x1f\x8b",
    ".bz2": b"BZh",
}
_WEB_PAGE = re.compile(rb"\s*<(!doctype|html)", re.IGNORECASE)
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d+/(\d{1,18}|\*)")

# An attempt that got so many bytes further does not count as a failure.
_WORTHWHILE_BYTES = 2**20
_LONGEST_PAGE = 2**20  # bytes of a web page that are looked at
_BLOCK = 2**20


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be downloaded, from the first of its addresses that works.

    `hash` is an algorithm and a digest, such as "sha256:9f86d0..."; "" if it is not known.
    """

    name: str
    urls: tuple[str, ...] = ()
    size: int | None = None  # bytes
    hash: str = ""

    __pydantic_config__ = ConfigDict(extra="forbid")  # where it is read from TOML

    def __post_init__(self) -> None:
        algorithm, _, digest = self.hash.partition(":")
        known = algorithm in hashlib.algorithms_guaranteed
        length = 2 * hashlib.new(algorithm).digest_size if known else 0
        if self.hash and not (length and re.fullmatch(f"[0-9a-f]{{{length}}}", digest)):
            raise InputError(
                f"{self.name}: hash is {self.hash!r}, expected an algorithm such as sha256, a "
                "colon, and the digest in lower-case hexadecimal"
            )


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently each address is tried."""

    attempts: int = 4
    first_wait_seconds: float = 1.0  # doubled from attempt to attempt
    max_wait_seconds: float = 60.0  # a server that asks for more is given up
    timeout_seconds: float = 30.0  # without a byte


@dataclass(frozen=True)
class Download:
    """What was downloaded: the file's sha256 and size, and the address that gave it."""

    sha256: str
    size: int
    url: str


class _AddressError(Exception):
    """This address cannot give the file."""


class _TransientError(Exception):
    """This address may give the file later."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class _WrongContentError(Exception):
    """What was downloaded is another file, or a part of one."""


def download(
    file: RemoteFile,
    target: Path,
    *,
    sha256: str | None = None,
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
) -> Download:
    """Download a file; it appears at `target` when it is complete and checked.

    `sha256` is what an earlier download had; another content is refused. What a killed process has
    downloaded is used. No two processes may write the same target at once. Raises DownloadError if
    no address gives the file.
    """
    partial = _PartialFile(target)
    problems = []
    with _client(policy) as client:
        for url in file.urls:
            try:
                actual = _Transfer(client, url, file, partial, sha256).run(policy)
            except _AddressError as problem:
                problems.append(f"{urlsplit(url).hostname or url} {problem}")
                continue
            except OutputError:
                raise
            except OSError as error:
                raise OutputError(
                    f"{partial.path}: cannot be written ({error.strerror or error})"
                ) from None
            size = partial.size()
            rename_atomically(partial.path, target)
            partial.discard()
            return Download(actual, size, url)
    raise DownloadError(
        f"{file.name} cannot be downloaded: {'; '.join(problems) or 'no address is known'}"
    )


def check_content(path: Path, file: RemoteFile, sha256: str | None = None) -> str:
    """The sha256 of a downloaded file; DownloadError if it is not the file that was expected."""
    try:
        return _check(path, file, sha256)
    except _WrongContentError as error:
        raise DownloadError(f"{path}: {error}; remove it to download it again") from None


def _client(policy: RetryPolicy) -> "httpx.Client":
    import httpx  # noqa: PLC0415  takes a while, and most commands download nothing

    from elmokit import __version__  # noqa: PLC0415

    try:
        return httpx.Client(
            follow_redirects=True,
            timeout=policy.timeout_seconds,
            # No connection is used twice: one that the server has closed would fail a good attempt.
            limits=httpx.Limits(max_keepalive_connections=0),
            verify=_ssl_context(),
            headers={"User-Agent": f"elmokit/{__version__}", "Accept-Encoding": "identity"},
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:  # a proxy it cannot use
        raise DownloadError(
            f"the proxy that the environment names cannot be used ({error}); "
            "see HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
        ) from None


@cache
def _ssl_context() -> "ssl.SSLContext":
    """Trusted certificates, read once: they take longer than a small file."""
    import httpx  # noqa: PLC0415

    return httpx.create_ssl_context()


@dataclass(frozen=True)
class _Transfer:
    """One file from one address."""

    client: "httpx.Client"
    url: str
    file: RemoteFile
    partial: "_PartialFile"
    sha256: str | None  # that the file had before

    def run(self, policy: RetryPolicy) -> str:
        """Fetch the file, again and again where that may help; returns its sha256."""
        import httpx  # noqa: PLC0415

        failures = 0
        while True:
            offset, wait = self._offset(), None
            try:
                self._fetch()
                return _check(self.partial.path, self.file, self.sha256)
            except _WrongContentError as error:
                self.partial.discard()
                if offset == 0:
                    raise _AddressError(str(error)) from None
                reason, wait = str(error), 0.0  # two versions of the file, perhaps
            except _TransientError as error:
                reason, wait = str(error), error.retry_after
            except (
                httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects, UnicodeError
            ) as error:  # fmt: skip
                raise _AddressError(f"cannot be used ({_describe(error)})") from None
            except httpx.TransportError as error:
                reason = f"failed ({_describe(error)})"
            if self.partial.size() >= offset + _WORTHWHILE_BYTES:
                failures = 0
            failures += 1
            if wait is None:
                wait = min(policy.first_wait_seconds * 2 ** (failures - 1), policy.max_wait_seconds)
            if failures >= policy.attempts or wait > policy.max_wait_seconds:
                raise _AddressError(reason)
            time.sleep(wait)

    def _offset(self) -> int:
        """How many bytes of this very file were downloaded before."""
        origin = self.partial.origin()
        same = origin.get("url") == self.url and (origin.get("validator") or self.file.hash)
        return self.partial.size() if same else 0

    def _fetch(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            self._copy(Path(url2pathname(parts.path)))
            return
        offset = self._offset()
        if offset and offset == self.partial.origin().get("total"):
            return
        page = self._get(self.url, offset)
        if page is None:
            return
        confirmed = _confirmation_url(page, self.url)
        if confirmed is None or self._get(confirmed, offset) is not None:
            raise _AddressError("answered with a web page instead of the file")

    def _copy(self, path: Path) -> None:
        self.partial.discard()
        try:
            source = open(path, "rb")
        except OSError as error:
            raise _AddressError(f"cannot be read ({error.strerror})") from None
        with source, open(self.partial.path, "wb") as copy:
            shutil.copyfileobj(source, copy, _BLOCK)

    def _get(self, url: str, offset: int) -> str | None:
        """Write the rest of the file; or return the web page that came instead."""
        origin = self.partial.origin()
        headers = {}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if origin.get("validator"):
                headers["If-Range"] = origin["validator"]
        with self.client.stream("GET", url, headers=headers) as response:
            self._check_status(response)
            if response.headers.get("content-type", "").startswith("text/html"):
                return _read_page(response)
            length = response.headers.get("content-length")
            total = int(length) if length is not None and length.isdigit() else None
            if response.status_code == 206:
                total = self._check_range(response, offset)
            else:
                offset = 0
            self._check_length(response, total)
            if offset == 0:
                record = {"url": self.url, "validator": _validator(response), "total": total}
                self.partial.start(record)
            self._write(response, offset, total)
        return None

    def _check_status(self, response: "httpx.Response") -> None:
        status = response.status_code
        answer = f"answered {status} {response.reason_phrase}".rstrip()
        if status == 416:  # the file is shorter than what was downloaded before
            self.partial.discard()
            raise _TransientError(answer, 0.0)
        if status in (408, 425, 429) or status >= 500:
            raise _TransientError(answer, _retry_after(response))
        if status not in (200, 206):
            raise _AddressError(answer)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise _AddressError("sends the file compressed, which was not asked for")

    def _check_range(self, response: "httpx.Response", offset: int) -> int | None:
        """The size of the whole file; what was downloaded is dropped if this is no rest of it."""
        content_range = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        origin = self.partial.origin()
        if content_range is not None and int(content_range[1]) == offset:
            total = None if content_range[2] == "*" else int(content_range[2])
            if offset == 0:
                return total
            if total == origin["total"] and _validator(response) in ("", origin["validator"]):
                return total
        self.partial.discard()
        raise _TransientError("sent another part of the file than was asked for", 0.0)

    def _check_length(self, response: "httpx.Response", total: int | None) -> None:
        size = self.file.size
        if size is not None and total is not None and total != size:
            raise _AddressError(f"has a file of {total:,} bytes, expected {size:,}")
        chunked = "chunked" in response.headers.get("transfer-encoding", "")
        if total is None and size is None and not chunked and not self.file.hash:
            raise _AddressError("does not say how long the file is")

    def _write(self, response: "httpx.Response", offset: int, total: int | None) -> None:
        expected = self.file.size or total
        free = shutil.disk_usage(self.partial.path.parent).free
        if expected is not None and expected - offset > free:
            raise OutputError(
                f"{self.partial.path}: needs {expected - offset:,} more bytes, but the disk has "
                f"{free:,}; free some, or name another folder in ELMOKIT_CACHE"
            )
        with (
            DownloadProgress(expected, done=offset) as progress,
            open(self.partial.path, "ab") as file,
        ):
            for block in response.iter_raw():
                if offset == 0:
                    _check_start(block, self.file.name)
                file.write(block)
                offset += len(block)
                if expected is not None and offset > expected:
                    raise _AddressError(f"sends more than {expected:,} bytes")
                progress.update(offset)
        if total is not None and offset != total:
            raise _TransientError(f"stopped after {offset:,} of {total:,} bytes")


class _PartialFile:
    """What has been downloaded of a file, and a record of where it came from."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self._record = target.with_name(f"{target.name}.part.json")

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def origin(self) -> dict[str, Any]:
        """The record that `start` was given; empty if there is none, or a damaged one."""
        try:
            record = json.loads(self._record.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        complete = isinstance(record, dict) and {"url", "validator", "total"} <= {*record}
        return record if complete else {}

    def start(self, origin: Mapping[str, Any]) -> None:
        """Begin anew, with an empty file."""
        self.discard()
        self.path.touch()
        write_atomically(self._record, json.dumps(origin))

    def discard(self) -> None:
        """Remove the file and its record."""
        self._record.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def _check(path: Path, file: RemoteFile, sha256: str | None) -> str:
    """The sha256 of a file; _WrongContentError unless it is what `file` and `sha256` say."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise _WrongContentError(f"has {size:,} bytes, expected {file.size:,}")
    with open(path, "rb") as opened:
        _check_content(opened, file.name)
        opened.seek(0)
        algorithm, _, expected = file.hash.partition(":")
        digests = {name: hashlib.new(name) for name in {"sha256", algorithm or "sha256"}}
        for block in iter(lambda: opened.read(_BLOCK), b""):
            for digest in digests.values():
                digest.update(block)
    if expected and digests[algorithm].hexdigest() != expected:
        raise _WrongContentError(
            f"has another content than was published: {algorithm} "
            f"{digests[algorithm].hexdigest()[:16]}…, expected {expected[:16]}…"
        )
    actual = digests["sha256"].hexdigest()
    if sha256 is not None and actual != sha256:
        raise _WrongContentError(
            "has another content than when it was first downloaded: sha256 "
            f"{actual[:16]}…, then {sha256[:16]}…"
        )
    return actual


def _check_content(file: BinaryIO, name: str) -> None:
    start = file.read(64)
    _check_start(start, name)
    if not start:
        raise _WrongContentError("is empty")
    if name.endswith(".json"):
        try:
            json.loads(start + file.read())
        except ValueError:
            raise _WrongContentError("is not a JSON file") from None
    elif name.endswith(".zip") and not zipfile.is_zipfile(file):
        raise _WrongContentError("is not a whole zip archive")


def _check_start(start: bytes, name: str) -> None:
    """Refuse what is plainly another kind of file, from some of its first bytes."""
    if _WEB_PAGE.match(start):
        raise _WrongContentError("is a web page instead of the file")
    signature = _SIGNATURES.get(Path(name).suffix, b"")[: len(start)]
    if not start.startswith(signature):
        raise _WrongContentError(f"is no {Path(name).suffix} file: it begins with {start[:8]!r}")


def _validator(response: "httpx.Response") -> str:
    """What identifies this version of the file: If-Range takes no weak ETag, but a date."""
    etag, date = (str(response.headers.get(name, "")) for name in ("etag", "last-modified"))
    validator = date if etag.startswith("W/") else etag or date
    return validator if validator.isascii() else ""


def _retry_after(response: "httpx.Response") -> float | None:
    """How many seconds the server asks to wait; a date is allowed too."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    with suppress(ValueError, OverflowError):  # a year that no clock has
        date = parsedate_tz(value)
        return None if date is None else max(0.0, mktime_tz(date) - time.time())
    return None


def _read_page(response: "httpx.Response") -> str:
    page = b""
    for block in response.iter_raw():
        page += block
        if len(page) > _LONGEST_PAGE:
            break
    return page.decode(errors="replace")


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _confirmation_url(page: str, url: str) -> str | None:
    """Where Google Drive's page about a file too large for its virus scan leads."""
    form = _ConfirmationForm()
    form.feed(page)
    if form.action is None:
        return None
    return f"{urljoin(url, form.action)}?{urlencode(form.fields)}"


class _ConfirmationForm(HTMLParser):
    """The form of that page: its address and its hidden fields."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "form" and values.get("id") == "download-form":
            self.action = values.get("action")
        if tag == "input" and values.get("type") == "hidden" and values.get("name"):
            self.fields[values["name"] or ""] = values.get("value") or ""
